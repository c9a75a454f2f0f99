"""What the Codex CLI does about everything that a server can do to it; the server's errors are the real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from turnwire.client.demo.sample import copy_project, plain_pytest, run_tests
from turnwire.v1.errors import make_error
from turnwire.v1.official.errors import error_body, error_frame

from .harness.codex import Codex, CodexRun
from .harness.faults import Fault, asks_for, says
from .harness.node import installed
from .harness.proxy import Proxy
from .harness.server import Server, serving

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

HELLO = "Say hello"
ANSWER = "Hello! I play a scenario."

NOT_FOUND = asks_for(previous_response_id="resp_unknown")
CONNECTION_LIMIT = Fault(
    frame=error_frame(make_error("websocket_connection_limit_reached", "Responses websocket connection limit reached")),
    close=1000,
)
SERVER_ERROR = Fault(frame=error_frame(make_error("server_error", "a bad day")))
RATE_LIMIT = Fault(frame=error_frame(make_error("rate_limit_exceeded", "too much", retry_after=0.05)))


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    installed()


@pytest.fixture
def codex(tmp_path: Path) -> Codex:
    return Codex(tmp_path / "home")


async def hello(proxy: Proxy, codex: Codex, folder: Path) -> CodexRun:
    project = folder / "project"
    project.mkdir()
    async with proxy.listening():
        return await codex.exec(proxy.base_url, project, HELLO)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(NOT_FOUND, id="previous-response-not-found"),
        pytest.param(CONNECTION_LIMIT, id="connection-limit"),
        pytest.param(SERVER_ERROR, id="error-500"),
        pytest.param(RATE_LIMIT, id="error-429"),
        pytest.param(says("fault: server_error"), id="failed-server-error"),
        pytest.param(Fault(close=1000), id="close-1000"),
        pytest.param(Fault(close=1001), id="close-1001"),
        pytest.param(Fault(close=1011), id="close-1011"),
        pytest.param(Fault(close=1012), id="close-1012"),
        pytest.param(Fault(cut_after=6), id="dropped-in-mid-stream"),
    ],
)
async def test_codex_connects_again_and_sends_everything_again(
    codex_server: Server, codex: Codex, tmp_path: Path, fault: Fault
) -> None:
    proxy = Proxy(codex_server.base_url, {0: fault})
    run = await hello(proxy, codex, tmp_path)
    assert run.exit_code == 0, run.stderr
    assert run.answer == ANSWER
    _, harmed, again = proxy.turns
    assert again.connection > harmed.connection
    assert "previous_response_id" not in again.body
    assert len(again.body["input"]) > len(harmed.body["input"])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(asks_for(temperature=9), "temperature", id="error-400"),
        pytest.param(says("fault: context_length_exceeded"), "context window", id="failed-context-length"),
        pytest.param(says("fault: length"), "max_output_tokens", id="incomplete"),
    ],
)
@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
async def test_codex_gives_up_on_what_would_fail_again(
    codex_server: Server, codex: Codex, tmp_path: Path, fault: Fault, said: str, websockets: bool
) -> None:
    proxy = Proxy(codex_server.base_url, dict.fromkeys(range(9), fault))
    run = await hello(proxy, replace(codex, websockets=websockets, stream_retries=0), tmp_path)
    assert run.exit_code != 0
    assert said in run.failure
    assert len([turn for turn in proxy.turns if not turn.warms_up]) == 1


async def test_codex_waits_as_long_as_it_is_told(codex_server: Server, codex: Codex, tmp_path: Path) -> None:
    proxy = Proxy(codex_server.base_url, {0: says("fault: rate_limit_exceeded")})
    run = await hello(proxy, codex, tmp_path)
    assert run.answer == ANSWER
    _, harmed, again = proxy.turns
    assert harmed.outcome == "response.failed"
    assert harmed.events[-1]["response"]["error"]["code"] == "rate_limit_exceeded"
    assert again.outcome == "response.completed"


async def test_codex_goes_on_over_http_at_once_where_websocket_is_switched_off(codex: Codex, tmp_path: Path) -> None:
    with serving("codex", tmp_path, "--websocket", "false") as server:
        proxy = Proxy(server.base_url)
        run = await hello(proxy, codex, tmp_path)
    assert run.answer == ANSWER
    assert proxy.requests == ["GET /v1/responses upgrade", "POST /v1/responses"]


@pytest.mark.parametrize("status", [404, 405])
async def test_codex_goes_on_over_http_after_some_tries_where_websocket_is_not_known(
    codex_server: Server, codex: Codex, tmp_path: Path, status: int
) -> None:
    proxy = Proxy(codex_server.base_url, upgrade_status=status)
    run = await hello(proxy, codex, tmp_path)
    assert run.answer == ANSWER
    *upgrades, last = proxy.requests
    assert set(upgrades) == {"GET /v1/responses upgrade"}
    assert len(upgrades) > 1
    assert last == "POST /v1/responses"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=500, body=error_body(make_error("server_error", "a bad day"))), id="status-500"),
        pytest.param(
            Fault(status=429, body=error_body(make_error("rate_limit_exceeded", "x")), headers=(("retry-after", "0"),)),
            id="status-429",
        ),
        pytest.param(says("fault: server_error"), id="failed-server-error"),
        pytest.param(says("fault: rate_limit_exceeded"), id="failed-rate-limit"),
        pytest.param(Fault(cut_after=6), id="dropped-in-mid-stream"),
    ],
)
async def test_over_http_codex_tries_again(codex_server: Server, codex: Codex, tmp_path: Path, fault: Fault) -> None:
    proxy = Proxy(codex_server.base_url, {0: fault})
    run = await hello(proxy, replace(codex, websockets=False), tmp_path)
    assert run.exit_code == 0, run.stderr
    assert run.answer == ANSWER
    assert len(proxy.turns) == 2


@pytest.mark.parametrize(
    "fault",
    [pytest.param(NOT_FOUND, id="previous-response-not-found"), pytest.param(Fault(close=1012), id="close-1012")],
)
async def test_a_repair_survives_the_loss_of_its_state(
    codex_server: Server, codex: Codex, tmp_path: Path, fault: Fault
) -> None:
    proxy = Proxy(codex_server.base_url, {3: fault})
    project = copy_project(tmp_path / "project")
    async with proxy.listening():
        run = await codex.exec(proxy.base_url, project)
    with plain_pytest():
        after = await run_tests(project)
    assert run.exit_code == 0, run.stderr
    assert after.passed, after.summary
    # What the model thought before was replayed, sealed, and taken.
    again = next(turn for turn in proxy.turns if turn.connection == 2 and not turn.warms_up)
    assert any(item["type"] == "reasoning" for item in again.body["input"])
    assert again.outcome == "response.completed"
