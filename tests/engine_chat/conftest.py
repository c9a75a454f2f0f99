"""The fake upstream in a process of its own, and engines that ask it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import ChatEngine

from .scene import FakeUpstream, RecordingSink

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """Runs these tests on the loop that servers run on, and the engine's own on the standard one too."""
    del config
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.name == "test_engine.py":
        loops["asyncio"] = asyncio.new_event_loop
    return loops


@pytest.fixture(scope="session")
def upstream_port() -> Iterator[int]:
    script = Path(__file__).with_name("upstream.py")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@pytest.fixture
async def upstream(upstream_port: int) -> AsyncIterator[FakeUpstream]:
    async with aiohttp.ClientSession() as session:
        fake = FakeUpstream(upstream_port, session)
        await fake.control("reset")
        yield fake


Make = Callable[..., ChatEngine]


@pytest.fixture
async def make_engine(upstream: FakeUpstream) -> AsyncIterator[Make]:
    made: list[ChatEngine] = []

    def make(**config: Any) -> ChatEngine:
        options: dict[str, Any] = {"base_url": upstream.url, "models": (ChatModel("m"),)}
        engine = ChatEngine(ChatEngineConfig(**(options | config)))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        await engine.aclose()


@pytest.fixture
def engine(make_engine: Make) -> ChatEngine:
    return make_engine()


@pytest.fixture
async def sink() -> RecordingSink:
    return RecordingSink()
