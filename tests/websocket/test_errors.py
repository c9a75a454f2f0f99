"""Error frames: every row of the table, and that the socket goes on after each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from turnwire.server.session.limits import SessionLimits

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Doors, Event, Peer

_INVALID = "invalid_request_error"
_BAD_STREAM_ID = (
    "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters,"
    " numbers, underscores, hyphens, and periods."
)


def parts(event: Event) -> tuple[int, str, str, str | None]:
    error = event["error"]
    return event["status"], error["type"], error["code"], error["param"]


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("hello", "invalid_json", None),
        ("[]", "invalid_json", None),
        ('"response.create"', "invalid_json", None),
        ("null", "invalid_json", None),
        ("12", "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ("{}", "missing_required_parameter", "type"),
        ('{"model":"stepped","input":"hi"}', "missing_required_parameter", "type"),
        ('{"type":null}', "missing_required_parameter", "type"),
        ('{"type":5}', "invalid_type", "type"),
        ('{"type":"response.invent"}', "invalid_value", "type"),
        ('{"type":"response.cancelled"}', "invalid_value", "type"),
        ('{"type":"open"}', "invalid_value", "type"),
        ('{"type":"response.create","model":5}', "invalid_type", "model"),
        ('{"type":"response.create","input":[{"type":"message","role":"user","content":3}]}', "invalid_type", None),
        ('{"type":"response.create","temperature":"warm"}', "invalid_type", "temperature"),
    ],
)
async def test_what_is_no_client_event_is_answered_and_the_socket_stays_open(
    door: Door, peer: Peer, text: str, code: str, param: str | None
) -> None:
    await peer.send_raw(text)
    event = await peer.error()
    status, kind, got, named = parts(event)
    assert (status, kind, got) == (400, _INVALID, code)
    assert "stream_id" not in event
    if param is not None or code == "invalid_json":
        assert named == param
    await door.completes(peer)


async def test_text_that_is_not_utf8_is_no_json(door: Door, peer: Peer) -> None:
    await peer.socket.send(b'{"type":"response.create","input":"\xff"}', text=True)
    assert parts(await peer.error())[2] == "invalid_json"
    await door.completes(peer)


async def test_a_refused_message_is_tagged_with_its_lane_where_that_can_be_read(peer: Peer) -> None:
    event = await peer.refusal(stream_id="a", temperature="warm")
    assert event["stream_id"] == "a"
    event = await peer.refusal("response.invent", stream_id="a")
    assert event["stream_id"] == "a"
    event = await peer.refusal("response.invent", stream_id="not a name")
    assert "stream_id" not in event


async def test_an_unknown_previous_response_is_named_before_anything_is_created(door: Door, peer: Peer) -> None:
    for lane in ({}, {"stream_id": "a"}):
        event = await peer.refusal(input="hi", previous_response_id="resp_abc", store=False, **lane)
        assert parts(event) == (400, _INVALID, "previous_response_not_found", "previous_response_id")
        assert event["error"]["message"] == "Previous response with id 'resp_abc' not found."
        assert event.get("stream_id") == lane.get("stream_id")
    assert not door.engine.passes
    await door.completes(peer)


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "é", "x" * 257, "a\n", 7, ["a"], {"a": 1}, True])
async def test_an_invalid_stream_id_is_refused_and_not_repeated(door: Door, peer: Peer, bad: Any) -> None:
    event = await peer.refusal(input="hi", stream_id=bad)
    assert parts(event) == (400, _INVALID, "invalid_stream_id", "stream_id")
    assert event["error"]["message"] == _BAD_STREAM_ID
    assert "stream_id" not in event
    assert not door.engine.passes
    await door.completes(peer, stream_id="x" * 256)


async def test_the_33rd_named_lane_is_refused_and_those_before_go_on(door: Door, peer: Peer) -> None:
    for index in range(32):
        await door.completes(peer, stream_id=f"lane-{index}")
    event = await peer.refusal(input="hi", stream_id="one-more")
    assert parts(event) == (400, _INVALID, "websocket_stream_limit_reached", "stream_id")
    assert event["error"]["message"] == (
        "This WebSocket connection has reached its maximum number of distinct stream IDs (32). Reuse an existing"
        " stream_id or open a new WebSocket connection."
    )
    assert event["stream_id"] == "one-more"
    await door.completes(peer, stream_id="lane-31")
    await door.completes(peer)


@pytest.mark.parametrize(
    ("kind", "what"),
    [("function_call_output", "function call output"), ("custom_tool_call_output", "custom tool call output")],
)
async def test_an_output_without_its_call_is_refused(door: Door, peer: Peer, kind: str, what: str) -> None:
    event = await peer.refusal(input=[{"type": kind, "call_id": "call_x", "output": "?"}])
    assert parts(event)[::3] == (400, "input")
    assert event["error"]["message"] == f"No tool call found for {what} with call_id call_x."
    await door.completes(peer)


async def test_a_call_that_is_left_unanswered_is_refused(door: Door, peer: Peer) -> None:
    first = await peer.create(store=True)
    door.call(first, "call_1")
    door.finish(first)
    await peer.turn()
    event = await peer.refusal(input="and now?", previous_response_id=first)
    assert parts(event)[::3] == (400, "input")
    assert event["error"]["message"] == "No tool output found for function call call_1."
    await door.completes(peer)


async def test_the_id_of_an_item_has_to_begin_as_its_kind_demands(door: Door, peer: Peer) -> None:
    item = {"type": "message", "role": "user", "id": "x", "content": "hi"}
    event = await peer.refusal(input=[item])
    assert parts(event)[:3] == (400, _INVALID, "invalid_value")
    assert "Expected an ID that begins with 'msg'." in event["error"]["message"]
    await door.completes(peer)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"background": True}, "unsupported_parameter", "background"),
        ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "unsupported_parameter", "prompt"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"max_output_tokens": 1}, "invalid_value", "max_output_tokens"),
        ({"input": []}, "missing_required_parameter", "input"),
        ({"model": None}, "missing_required_parameter", "model"),
    ],
)
async def test_a_create_that_cannot_be_obeyed_is_refused_by_name(
    door: Door, peer: Peer, fields: dict[str, Any], code: str, param: str
) -> None:
    event = await peer.refusal(**{"input": "hi", "stream_id": "a", **fields})
    assert parts(event) == (400, _INVALID, code, param)
    assert event["stream_id"] == "a"
    await door.completes(peer, stream_id="a")


async def test_an_unknown_model_has_the_status_of_http(peer: Peer) -> None:
    event = await peer.refusal(model="nobody", input="hi")
    assert parts(event) == (404, _INVALID, "model_not_found", "model")


async def test_a_full_queue_is_a_request_scoped_429(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_queued=2))
    peer = await door.connect()
    running = await peer.create()
    await peer.send(input="second")
    await peer.send(input="third")
    event = await peer.refusal(input="fourth")
    assert parts(event)[:3] == (429, "rate_limit_error", "too_many_requests")
    door.finish(running)
    await peer.turn()
    for _ in range(2):
        begun = await peer.until("response.in_progress")
        door.finish(begun["response"]["id"])
        assert (await peer.turn())[-1]["type"] == "response.completed"


async def test_an_error_comes_instead_of_created_and_not_after_it(door: Door, peer: Peer) -> None:
    await peer.send(input="hi", previous_response_id="resp_none")
    await peer.send(input="hi")
    assert (await peer.error())["error"]["code"] == "previous_response_not_found"
    created = await peer.next()
    assert created["type"] == "response.created"
    door.finish(created["response"]["id"])
    await peer.turn()


async def test_keys_that_nobody_knows_do_not_hide_the_error(peer: Peer) -> None:
    await peer.send_raw(json.dumps({"type": "response.create", "response": {"model": "stepped", "input": "hi"}}))
    event = await peer.error()
    assert parts(event)[2:] == ("missing_required_parameter", "input")
