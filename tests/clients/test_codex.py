"""The Codex CLI repairs the sample project with its own tools, over HTTP and over WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnwire.client.demo.sample import copy_project, plain_pytest, run_tests

from .harness.codex import Codex, CodexRun
from .harness.node import installed
from .harness.proxy import Proxy, Turn
from .harness.server import Server, serving
from .harness.streams import check_stream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

TOOL_OUTPUTS = {"function_call_output", "custom_tool_call_output"}
CALLS = {"function_call", "custom_tool_call"}


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    installed()


@pytest.fixture
async def outside() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that lets nothing through: its address, and what was asked of it."""
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    server.close()


async def repair(proxy: Proxy, codex: Codex, folder: Path) -> CodexRun:
    """Lets Codex repair a copy of the sample project, and checks that it did."""
    project = copy_project(folder / "project")
    with plain_pytest():
        before = await run_tests(project)
        async with proxy.listening():
            run = await codex.exec(proxy.base_url, project)
        after = await run_tests(project)
    assert before.failed
    assert run.exit_code == 0, run.stderr
    assert after.passed, after.summary
    assert after.summary.startswith("26 passed")
    for turn in proxy.turns:
        check_stream(turn.events)
    return run


def kinds(turn: Turn) -> list[str]:
    return [item["type"] for item in turn.body["input"]]


@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
async def test_codex_repairs_the_sample_project_with_its_own_tools(
    codex_server: Server, tmp_path: Path, outside: tuple[str, list[bytes]], websockets: bool
) -> None:
    proxy = Proxy(codex_server.base_url)
    refuses, asked = outside
    run = await repair(proxy, Codex(tmp_path / "home", websockets=websockets, proxy=refuses), tmp_path)
    assert run.answer.startswith("Two causes, both repaired")
    commands = [(item["command"], item["exit_code"]) for item in run.items("command_execution")]
    tests = [exit_code for command, exit_code in commands if "pytest" in command]
    assert tests == [1, 1, 0]
    assert len(commands) == 6
    changed = [Path(change["path"]).name for item in run.items("file_change") for change in item["changes"]]
    assert changed == ["periods.py", "money.py"]
    assert {turn.outcome for turn in proxy.turns} == {"response.completed"}
    assert set(proxy.requests) == {"GET /v1/responses upgrade" if websockets else "POST /v1/responses"}
    # Nothing but this server was spoken to.
    assert asked == []


async def test_over_websocket_every_turn_after_the_first_sends_only_what_is_new(
    codex_server: Server, tmp_path: Path
) -> None:
    proxy = Proxy(codex_server.base_url)
    await repair(proxy, Codex(tmp_path / "home"), tmp_path)
    assert proxy.requests == ["GET /v1/responses upgrade"]
    warm, first, *later = proxy.turns
    assert warm.warms_up
    assert first.body["previous_response_id"] == _id(warm)
    assert not set(kinds(first)) & (TOOL_OUTPUTS | CALLS)
    assert len(later) == 6
    for before, turn in zip([first, *later], later, strict=False):
        assert turn.body["previous_response_id"] == _id(before)
        made = [item for item in before.events[-1]["response"]["output"] if item["type"] in CALLS]
        assert set(kinds(turn)) <= TOOL_OUTPUTS
        assert [item["call_id"] for item in turn.body["input"]] == [call["call_id"] for call in made]


async def test_over_http_every_turn_replays_all_and_is_understood(codex_server: Server, tmp_path: Path) -> None:
    proxy = Proxy(codex_server.base_url)
    await repair(proxy, Codex(tmp_path / "home", websockets=False), tmp_path)
    assert set(proxy.requests) == {"POST /v1/responses"}
    assert not any("previous_response_id" in turn.body for turn in proxy.turns)
    assert all(turn.body["store"] is False for turn in proxy.turns)
    for before, turn in zip(proxy.turns, proxy.turns[1:], strict=False):
        replayed = [item.get("call_id") for item in turn.body["input"] if item["type"] in CALLS]
        made = [item["call_id"] for item in before.events[-1]["response"]["output"] if item["type"] in CALLS]
        assert replayed[-len(made) :] == made
    sealed = [item for item in proxy.turns[-1].body["input"] if item["type"] == "reasoning"]
    assert len(sealed) == 4
    assert all(item["encrypted_content"] for item in sealed)


@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        pytest.param("gpt-5.5", "tool_search", id="a-known-model"),
        pytest.param("local-model", "namespace", id="an-unknown-model"),
        pytest.param("gpt-6-sol", "additional_tools", id="a-model-that-takes-tools-as-input"),
    ],
)
async def test_what_codex_declares_is_taken_whatever_it_is(
    codex_server: Server, tmp_path: Path, model: str, kind: str, websockets: bool
) -> None:
    proxy = Proxy(codex_server.base_url)
    project = tmp_path / "project"
    project.mkdir()
    async with proxy.listening():
        run = await Codex(tmp_path / "home", model=model, websockets=websockets).exec(
            proxy.base_url, project, "Say hello"
        )
    assert run.answer == "Hello! I play a scenario."
    assert len(proxy.turns) == 1 + websockets
    declared = [*proxy.turns[-1].body.get("tools", ()), *proxy.turns[-1].body["input"]]
    assert kind in [each["type"] for each in declared]


@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
async def test_a_session_goes_on_with_a_server_that_was_started_anew(tmp_path: Path, websockets: bool) -> None:
    codex = Codex(tmp_path / "home", websockets=websockets)
    with serving("codex", tmp_path) as server:
        await repair(Proxy(server.base_url), codex, tmp_path)
    with serving("codex", tmp_path) as server:
        proxy = Proxy(server.base_url)
        async with proxy.listening():
            run = await codex.exec(proxy.base_url, tmp_path / "project", "Say hello", resume=True)
    assert run.answer == "Hello! I play a scenario."
    # The new server cannot open what the old one sealed; it carries it, and reads the rest.
    replayed = kinds(proxy.turns[-1])
    assert replayed.count("reasoning") == 5
    assert set(replayed) >= TOOL_OUTPUTS | CALLS


def _id(turn: Turn) -> str:
    return str(turn.events[-1]["response"]["id"])
