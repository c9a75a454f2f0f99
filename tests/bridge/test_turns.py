"""Turns through a bridge: over HTTP and WebSocket, chained and side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.bridge.scene import Server, Stage, Wire, bridging
from tests.websocket.conftest import Peer

from turnwire.client import connect
from turnwire.v1.tool_pb2 import ToolSet

PAGES = "words " * 10_000


async def test_a_whole_response_comes_over_grpc(server: Server, stage: Stage) -> None:
    response = await stage.whole("Say hi.", "hi", instructions="Be brief.")
    assert response["status"] == "completed"
    assert response["instructions"] == "Be brief."
    assert response["output"][0]["content"][0]["text"] == "hi"
    assert stage.bridge.routes.current.address.startswith("grpc://")


async def test_a_stored_response_is_found_listed_and_deleted(stage: Stage) -> None:
    response = await stage.whole("Say hi.", "hi")
    path = f"/responses/{response['id']}"
    assert await stage.ask("GET", path) == (200, response)
    status, page = await stage.ask("GET", f"{path}/input_items")
    assert (status, page["data"][0]["content"][0]["text"]) == (200, "Say hi.")
    assert (await stage.ask("DELETE", path))[1]["deleted"] is True
    assert await stage.refusal("GET", path) == (404, "response_not_found", "response_id")


async def test_models_are_listed_and_tokens_counted(stage: Stage) -> None:
    assert (await stage.ask("GET", "/models"))[1]["data"][0]["id"] == "stepped"
    body = {"model": "stepped", "input": "one two three"}
    assert (await stage.ask("POST", "/responses/input_tokens", json=body))[1]["input_tokens"] > 2


async def test_a_stream_comes_token_by_token(server: Server, stage: Stage) -> None:
    async with stage.stream() as events:
        response_id = await server.begun()
        server.say(response_id, "Hel")
        assert (await events.until("response.output_text.delta"))["delta"] == "Hel"
        server.finish(response_id, "lo")
        end = await events.until("response.completed")
        assert await events.next() is None
    assert [event["sequence_number"] for event in events.seen] == list(range(len(events.seen)))
    assert end["response"]["output"][0]["content"][0]["text"] == "Hello"


async def test_a_client_that_goes_away_cancels_its_response(server: Server, stage: Stage) -> None:
    async with stage.stream():
        response_id = await server.begun()
    await server.aborted(response_id)


async def test_creates_that_store_nothing_are_chained_over_http(server: Server, stage: Stage) -> None:
    """Which no other way over HTTP can: requests of one key share a session."""
    first = await stage.whole("My name is Ada.", "Hi.", store=False)
    second = await stage.whole("My name?", "Ada.", store=False, previous_response_id=first["id"])
    assert server.read_by(second["id"]) == ["My name is Ada.", "Hi.", "My name?"]


async def test_a_socket_finds_what_it_did_not_store(server: Server, stage: Stage) -> None:
    async with stage.peer() as peer:
        first = await peer.create("My name is Ada.", store=False)
        server.finish(await server.begun(1), "Hi.")
        await peer.turn()
        second = await peer.create("My name?", store=False, previous_response_id=first)
        server.finish(await server.begun(2), "Ada.")
        assert (await peer.turn())[-1]["type"] == "response.completed"
        assert server.read_by(second) == ["My name is Ada.", "Hi.", "My name?"]
        # The rules are those of the public API: the older one has left its lane.
        refused = await peer.refusal(input="Again.", store=False, previous_response_id=first)
        assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")


async def test_a_session_of_our_own_finds_what_it_did_not_store(server: Server, stage: Stage) -> None:
    async with connect(f"ws://127.0.0.1:{stage.port}") as session:
        stream = await session.create(model="stepped", input="Say hi.", store=False)
        server.finish(await server.begun(1), "hi")
        whole = await stream.get_final_response()
        assert (await session.get_response(whole.id)).output == whole.output


async def test_lanes_of_a_socket_run_side_by_side(server: Server, stage: Stage) -> None:
    async with stage.peer() as peer:
        a = await peer.create("a", stream_id="a")
        b = await peer.create("b", stream_id="b")
        await server.begun(2)
        server.finish(b, "second")
        assert (await peer.turn("b"))[-1]["response"]["id"] == b
        server.finish(a, "first")
        assert (await peer.turn("a"))[-1]["response"]["id"] == a


async def test_a_warm_up_is_gone_on_from(server: Server, stage: Stage) -> None:
    async with stage.peer() as peer:
        await peer.send(input="Be ready.", generate=False, store=False)
        warm = (await peer.turn())[-1]["response"]
        assert warm["output"] == []
        response_id = await peer.create("Go.", store=False, previous_response_id=warm["id"])
        server.finish(await server.begun(1), "Gone.")
        assert (await peer.turn())[-1]["type"] == "response.completed"
        assert server.read_by(response_id) == ["Be ready.", "Go."]


@pytest.mark.parametrize("way", ["http", "websocket"])
async def test_a_turn_sends_nothing_up_but_what_is_new(server: Server, way: str) -> None:
    """Though clients of the public API send their instructions and tools again with every turn."""
    settings = {"instructions": PAGES, "tools": [{"type": "function", "name": "look", "description": PAGES}]}
    wire = Wire(server.grpc_port)
    await wire.start()
    async with bridging(server, port=wire.port) as stage, stage.peer() as peer:
        turn = turns(server, stage, peer, way)
        response = await turn(PAGES, **settings)
        assert wire.up > 3 * len(PAGES)
        for number in range(3):
            before = wire.up
            of_the_turn = {"previous_response_id": response["id"], "client_metadata": {"turn": str(number)}}
            response = await turn("And then?", **of_the_turn, **settings)
            assert wire.up - before < 1024
            assert asked_for(server, response["id"]) == (PAGES, ["look"])
            assert (response["instructions"], response["tools"][0]["description"]) == (PAGES, PAGES)
        assert server.read_by(response["id"])[0] == PAGES
    await wire.stop()


CHANGES: dict[str, tuple[dict[str, Any], tuple[str, list[str]]]] = {
    "other-tools": ({"instructions": "a", "tools": [{"type": "function", "name": "find"}]}, ("a", ["find"])),
    "other-instructions": ({"instructions": "b", "tools": [{"type": "function", "name": "look"}]}, ("b", ["look"])),
    "no-tools": ({"instructions": "a"}, ("a", [])),
    "no-instructions": ({"tools": [{"type": "function", "name": "look"}]}, ("", ["look"])),
    "nothing": ({}, ("", [])),
}


@pytest.mark.parametrize("way", ["http", "websocket"])
@pytest.mark.parametrize("change", CHANGES)
async def test_settings_that_changed_are_those_of_the_turn(server: Server, stage: Stage, way: str, change: str) -> None:
    settings, expected = CHANGES[change]
    first: dict[str, Any] = {
        "instructions": "a",
        "tools": [{"type": "function", "name": "look"}],
        "temperature": 0.5,
    }
    async with stage.peer() as peer:
        turn = turns(server, stage, peer, way)
        before = await turn("One.", **first)
        changed = await turn("Two.", previous_response_id=before["id"], **settings)
        assert asked_for(server, changed["id"]) == expected
        assert not server.engine.find(changed["id"]).prompt.settings.HasField("temperature")
        # The same settings again, after others: a chain goes on from what its response was asked for with.
        again = await turn("Three.", previous_response_id=before["id"] if way == "http" else changed["id"], **first)
        assert asked_for(server, again["id"]) == ("a", ["look"])
        assert server.engine.find(again["id"]).prompt.settings.temperature == 0.5


def asked_for(server: Server, response_id: str) -> tuple[str, list[str]]:
    """Returns the instructions and the names of the tools that the model was given for a response."""
    prompt = server.engine.find(response_id).prompt
    tools = ToolSet.FromString(prompt.tools.data).tools
    return prompt.settings.instructions, [tool.function.name for tool in tools]


def turns(server: Server, stage: Stage, peer: Peer, way: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Returns what plays a turn over HTTP or on a socket, storing nothing, and returns the response."""

    async def turn(text: str, **fields: Any) -> dict[str, Any]:
        if way == "http":
            return await stage.whole(text, "Yes.", store=False, **fields)
        begun = len(server.engine.passes)
        await peer.create(text, store=False, **fields)
        server.finish(await server.begun(begun + 1), "Yes.")
        response: dict[str, Any] = (await peer.turn())[-1]["response"]
        return response

    return turn
