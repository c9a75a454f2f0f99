from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Kind, Target
from turnwire.server.tools.config import McpLimits, McpServer
from turnwire.server.tools.room import HostedRoom

from .conftest import Hosts, declared

QUICK = McpLimits(connect_timeout=3.0, list_timeout=3.0, call_timeout=3.0)
TOOLS = declared("s")


async def call(room: HostedRoom, tool: str, principal: str = "", **arguments: Any) -> ToolResult:
    return await room.run(Target(Kind.MCP, "s", tool), json.dumps(arguments), TOOLS, principal)


async def test_a_server_is_started_listed_called_and_ended(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio())
    listed = await room.list_tools("s", TOOLS, "")
    assert listed.error == ""
    first = json.loads(listed.tools[0])
    assert list(first) == ["annotations", "description", "input_schema", "name"]
    assert (first["name"], first["annotations"]) == ("add", {"readOnlyHint": True})
    assert first["input_schema"]["required"] == ["a", "b"]
    assert await call(room, "add", a=1, b=2) == ToolResult("3")
    await hosts.witness.heard("started")
    await room.aclose()
    await hosts.witness.left()


async def test_a_server_sees_only_the_environment_that_it_was_given(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWIRE_SECRET", "s3cret")
    room = hosts.room(s=hosts.stdio(env={**hosts.witness.environment(), "GIVEN": "this"}))
    assert (await call(room, "environment", name="GIVEN")).output == "this"
    assert (await call(room, "environment", name="TURNWIRE_SECRET")).output == "unset"


async def test_calls_share_a_connection_and_principals_do_not(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio())
    results = await asyncio.gather(*(call(room, "add", principal, a=n, b=n) for n, principal in enumerate("aabb")))
    assert [result.output for result in results] == ["0", "2", "4", "6"]
    assert hosts.witness.connected == 2


async def test_a_failure_is_an_output(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio())
    failed = await call(room, "fail", reason="broken")
    assert failed.failed
    assert failed.output.startswith("Error executing tool fail")
    assert (await call(room, "nowhere")).failed
    assert (await call(room, "add", a="one")).failed
    for arguments in ("[1]", "{", '"x"', "\ud800"):
        bad = await room.run(Target(Kind.MCP, "s", "add"), arguments, TOOLS, "")
        assert bad == ToolResult("The arguments are not the text of a JSON object.", failed=True)
    assert not (await room.run(Target(Kind.MCP, "s", "picture"), "", TOOLS, "")).failed


async def test_what_is_no_text_is_named(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio())
    assert (await call(room, "picture")).output == "[image, image/png, 102 bytes, not shown]"


async def test_long_outputs_are_cut_with_a_note(hosts: Hosts) -> None:
    room = hosts.room(limits=McpLimits(max_output_bytes=1_001, max_message_bytes=100_000), s=hosts.stdio())
    whole = await call(room, "big", size=1_000)
    assert whole.output == "é" * 500
    cut = await call(room, "big", size=10_000)
    assert cut.output == "é" * 500 + "\n[The output was cut: it has 10000 bytes, of which the first 1000 are shown.]"
    unread = await call(room, "big", size=50_000_000)
    assert not unread.failed
    assert unread.output.startswith("é" * 500 + "\n[The output was cut: it has more than ")
    assert (await call(room, "add", a=1, b=2)).output == "3"


async def test_a_cancelled_call_is_cancelled_at_the_server(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio())
    running = asyncio.create_task(call(room, "hang"))
    await hosts.witness.heard("hanging")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await hosts.witness.heard("cancelled")
    assert (await call(room, "add", a=1, b=2)).output == "3"


async def test_a_call_that_takes_too_long_ends_with_words(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio(), limits=McpLimits(call_timeout=1.5))
    assert await call(room, "hang") == ToolResult("The MCP server 's' did not answer within 1.5 seconds.", failed=True)
    await hosts.witness.heard("cancelled")


async def test_a_server_that_dies_is_started_again(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio())
    died = await call(room, "die")
    assert died == ToolResult("The connection to the MCP server 's' broke.", failed=True)
    assert (await call(room, "add", a=1, b=2)).output == "3"


async def test_an_idle_connection_is_closed(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio(), limits=McpLimits(idle_timeout=0.05))
    assert (await call(room, "add", a=1, b=2)).output == "3"
    await hosts.witness.left()
    assert (await call(room, "add", a=1, b=2)).output == "3"


async def test_the_idlest_connection_makes_room(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio(), limits=McpLimits(max_connections=1))
    assert (await call(room, "add", "anna", a=1, b=2)).output == "3"
    await hosts.witness.heard("started")
    busy = asyncio.create_task(call(room, "hang", "berta"))
    await hosts.witness.heard("hanging")
    full = await call(room, "add", "anna", a=1, b=2)
    assert full.failed
    assert full.output == "Too many connections to MCP servers are in use (1). Try again later."
    busy.cancel()


async def test_a_server_that_cannot_be_started(hosts: Hosts) -> None:
    room = hosts.room(s=McpServer(command=("/nowhere/to/be/found",)))
    listed = await room.list_tools("s", TOOLS, "")
    assert listed.error == "The MCP server 's' could not be reached."
    assert (await call(room, "add")).failed


@pytest.mark.parametrize("way", ["polite", "noisy"])
async def test_a_server_of_the_first_protocol(hosts: Hosts, way: str) -> None:
    room = hosts.room(s=hosts.rude(way), limits=QUICK)
    assert len((await room.list_tools("s", TOOLS, "")).tools) == 1
    assert (await call(room, "echo", a=1)).output == '{"a": 1}'


@pytest.mark.parametrize("way", ["mute", "deaf"])
async def test_a_server_that_does_not_answer(hosts: Hosts, way: str) -> None:
    room = hosts.room(s=hosts.rude(way), limits=McpLimits(connect_timeout=0.5))
    listed, called = await asyncio.gather(room.list_tools("s", TOOLS, ""), call(room, "echo"))
    assert listed.error == "The MCP server 's' did not answer in time."
    assert called.failed


async def test_tools_that_cannot_be_used_are_left_out(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.rude("sloppy"), limits=McpLimits(max_tool_bytes=10_000))
    listed = await room.list_tools("s", TOOLS, "")
    assert [json.loads(tool)["name"] for tool in listed.tools] == ["echo"]


@pytest.mark.parametrize(
    ("way", "words"), [("liar", "does not follow the protocol"), ("abyss", "The answer could not be read.")]
)
async def test_a_listing_that_is_none(hosts: Hosts, way: str, words: str) -> None:
    room = hosts.room(s=hosts.rude(way), limits=QUICK)
    listed = await room.list_tools("s", TOOLS, "")
    assert listed.tools == ()
    assert words in listed.error
    assert (await call(room, "echo", a=1)).output == '{"a": 1}'


async def test_a_listing_has_bounds(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.rude("many"), limits=McpLimits(max_tools=10))
    assert len((await room.list_tools("s", TOOLS, "")).tools) == 10
    room = hosts.room(s=hosts.rude("many"), limits=McpLimits(max_listing_bytes=300))
    assert 0 < len((await room.list_tools("s", TOOLS, "")).tools) < 5
    room = hosts.room(s=hosts.rude("endless"))
    assert len((await room.list_tools("s", TOOLS, "")).tools) == 1


async def test_fifty_megabytes_on_one_line_are_not_kept(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.rude("flood"), limits=McpLimits(max_output_bytes=100))
    result = await call(room, "echo")
    assert not result.failed
    assert result.output.startswith("y" * 100 + "\n[The output was cut: it has more than ")


async def test_a_server_that_quits_when_it_is_called(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.rude("quitter"), limits=QUICK)
    assert len((await room.list_tools("s", TOOLS, "")).tools) == 1
    assert (await call(room, "echo")).output == "The connection to the MCP server 's' broke."


async def test_an_operator_limits_the_tools_of_a_server(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio(allowed_tools=("add",)))
    listed = await room.list_tools("s", TOOLS, "")
    assert [json.loads(tool)["name"] for tool in listed.tools] == ["add"]
    assert await call(room, "die") == ToolResult("The tool 'die' of 's' may not be called.", failed=True)


async def test_a_room_that_closes_leaves_no_process_behind(hosts: Hosts) -> None:
    room = hosts.room(s=hosts.stdio())
    running = asyncio.create_task(call(room, "hang"))
    await hosts.witness.heard("hanging")
    await room.aclose()
    assert (await running).failed
    await hosts.witness.left()
