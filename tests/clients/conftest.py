"""What the tests of real clients share: real servers, and clients that are told where they are."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from openai import OpenAI

from .harness.server import Server, serving

# Whatever the machine is set up for must not lead a client anywhere else.
_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBSOCKET_BASE_URL")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_VARIABLES, *_PROXIES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def sdk_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """Plays `sdk.toml`."""
    with serving("sdk", tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def codex_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """Plays `codex.toml`."""
    with serving("codex", tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(sdk_server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=sdk_server.base_url, api_key="a-key", max_retries=0, timeout=20) as client:
        yield client
