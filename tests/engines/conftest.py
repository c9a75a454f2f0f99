"""A real llama.cpp with a real model, once for all tests, and servers in the test's own process over it.

The model is tiny and was never trained to chat: these tests look at protocol and state, never at wit. One thread, since
llama.cpp's threads spin while they wait for each other, and tests share their cores.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from turnwire.client import connect
from turnwire.client.session import Session
from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.engine import LocalEngine
from turnwire.server.engine.local.llama import LlamaServer, Loaded
from turnwire.server.engine.local.model import ModelFile, find_model
from turnwire.server.engine.local.speech import Speech, open_speech
from turnwire.server.testing import make_services, serving

CONFIG = LocalConfig(slots=2, context=2048, threads=1, batch=64)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "engines":
            item.add_marker(pytest.mark.engines)


@pytest.fixture(scope="session")
def model_file() -> ModelFile:
    return find_model(CONFIG)


@pytest.fixture(scope="session")
def server(model_file: ModelFile) -> Iterator[LlamaServer]:
    loaded = LlamaServer(CONFIG, model_file)
    yield loaded
    loaded.close()


class Kept:
    """A loaded model that outlives the engine over it."""

    def __init__(self, server: LlamaServer) -> None:
        self._server = server
        self.loaded: Loaded = server.loaded

    def complete(self, body: bytes, on_event: Callable[[bytes], bool]) -> None:
        self._server.complete(body, on_event)

    def generate(self, body: bytes, on_event: Callable[[bytes], bool]) -> None:
        self._server.generate(body, on_event)

    def tokenize(
        self, content: Sequence[str | int], *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        return self._server.tokenize(content, add_special=add_special, parse_special=parse_special)

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def llama_url(model_file: ModelFile) -> Iterator[str]:
    """The same llama.cpp as others run it: a server that is asked over HTTP."""
    package: Any = importlib.import_module("xllamacpp")
    params = package.CommonParams()
    params.model.path = str(model_file.path)
    params.chat_template = model_file.template
    params.n_parallel, params.n_ctx = 2, 4096
    params.n_batch = params.n_ubatch = 64
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.port, params.hostnames = 0, ["127.0.0.1"]
    params.verbosity = 0
    running = package.Server(params)
    yield f"{running.listening_address}/v1"
    del running


@pytest.fixture
async def chat_engine(llama_url: str) -> AsyncIterator[ChatEngine]:
    engine = ChatEngine(ChatEngineConfig(llama_url, flavour="llamacpp", models=(ChatModel("small"),)))
    yield engine
    await engine.aclose()


@pytest.fixture
async def chat_session(chat_engine: ChatEngine) -> AsyncIterator[Session]:
    async with serving(make_services([chat_engine])) as address, connect(address) as session:
        yield session


@pytest.fixture(scope="session")
def speech(server: LlamaServer, model_file: ModelFile) -> Speech:
    return open_speech(model_file, server)


@pytest.fixture
async def engine(server: LlamaServer, model_file: ModelFile, speech: Speech) -> AsyncIterator[LocalEngine]:
    engine = LocalEngine(CONFIG, model_file, Kept(server), speech)
    yield engine
    await engine.aclose()


@pytest.fixture
async def session(engine: LocalEngine) -> AsyncIterator[Session]:
    async with serving(make_services([engine])) as address, connect(address) as session:
        yield session


@pytest.fixture
async def chatting(server: LlamaServer, model_file: ModelFile) -> AsyncIterator[Session]:
    """The same model, whose prompts llama.cpp renders."""
    engine = LocalEngine(CONFIG, model_file, Kept(server))
    async with serving(make_services([engine])) as address, connect(address) as session:
        yield session
    await engine.aclose()
