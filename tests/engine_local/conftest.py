"""Engines over a llama.cpp that says what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.engine import LocalEngine
from turnwire.server.engine.local.model import ModelFile

from .scene import FakeLlama, RecordingSink

Make = Callable[..., LocalEngine]


@pytest.fixture
def llama() -> FakeLlama:
    return FakeLlama()


@pytest.fixture
async def make_engine(llama: FakeLlama) -> AsyncIterator[Make]:
    made: list[LocalEngine] = []

    def make(*, stop: tuple[str, ...] = (), **config: Any) -> LocalEngine:
        engine = LocalEngine(LocalConfig(**config), ModelFile(Path("m.gguf"), "m", "", stop), llama)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        await engine.aclose()


@pytest.fixture
async def sink() -> RecordingSink:
    return RecordingSink()
