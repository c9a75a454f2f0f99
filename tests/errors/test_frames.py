"""What is wrong with a WebSocket message, alike at the server's own door and at a bridge: the socket goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.bridge.scene import Server, bridging, serving
from tests.websocket.conftest import Peer
from websockets.asyncio.client import connect

from turnwire.server.session.limits import SessionLimits

pytestmark = pytest.mark.parametrize("door", ["websocket", "bridge"])

_STREAM_ID = (
    "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters,"
    " numbers, underscores, hyphens, and periods."
)
_STREAM_LIMIT = (
    "This WebSocket connection has reached its maximum number of distinct stream IDs (32). Reuse an existing stream_id"
    " or open a new WebSocket connection."
)


@asynccontextmanager
async def socket(door: str, limits: SessionLimits | None = None) -> AsyncGenerator[tuple[Server, Peer]]:
    async with serving(limits=limits, http=True) as server:
        if door == "bridge":
            async with bridging(server) as stage, stage.peer() as peer:
                yield server, peer
            return
        url = f"ws://127.0.0.1:{server.http_port}/v1/responses"
        async with connect(url, ping_interval=None, compression=None, max_size=None, proxy=None) as own:
            yield server, Peer(own)


def parts(event: dict[str, Any]) -> tuple[int, str, str | None]:
    return event["status"], event["error"]["code"], event["error"]["param"]


async def goes_on(server: Server, peer: Peer) -> None:
    """Shows that the socket is alive."""
    before = len(server.engine.passes)
    response_id = await peer.create()
    await server.begun(before + 1)
    server.finish(response_id, "alive")
    assert (await peer.turn())[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[]", "invalid_json", None),
        ("null", "invalid_json", None),
        ("{}", "missing_required_parameter", "type"),
        ('{"type":5}', "invalid_type", "type"),
        ('{"type":"response.invent"}', "invalid_value", "type"),
        ('{"type":"open"}', "invalid_value", "type"),
        ('{"type":"response.create","input":[3]}', "invalid_type", "input[0]"),
        (
            '{"type":"response.create","model":"stepped","input":"x","background":true}',
            "unsupported_parameter",
            "background",
        ),
    ],
)
async def test_a_message_that_cannot_be_obeyed(door: str, text: str, code: str, param: str | None) -> None:
    async with socket(door) as (server, peer):
        await peer.send_raw(text)
        assert parts(await peer.error()) == (400, code, param)
        await goes_on(server, peer)


@pytest.mark.parametrize("lane", ["", "a b", "x" * 257, 7])
async def test_a_name_that_no_lane_can_have_is_not_echoed(door: str, lane: Any) -> None:
    async with socket(door) as (server, peer):
        event = await peer.refusal(input="x", stream_id=lane)
        assert parts(event) == (400, "invalid_stream_id", "stream_id")
        assert event["error"]["message"] == _STREAM_ID
        assert "stream_id" not in event
        await goes_on(server, peer)


async def test_the_33rd_lane_is_refused_by_its_name(door: str) -> None:
    async with socket(door) as (server, peer):
        for index in range(32):
            await peer.send(input="x", generate=False, store=False, stream_id=f"lane-{index}")
            assert (await peer.turn(f"lane-{index}"))[-1]["type"] == "response.completed"
        event = await peer.refusal(input="x", stream_id="one-more")
        assert parts(event) == (400, "websocket_stream_limit_reached", "stream_id")
        assert (event["error"]["message"], event["stream_id"]) == (_STREAM_LIMIT, "one-more")
        await goes_on(server, peer)


async def test_a_continuation_that_fails_evicts_its_parent(door: str) -> None:
    async with socket(door) as (server, peer):
        await peer.send(input="x", generate=False, store=False)
        parent = (await peer.turn())[-1]["response"]["id"]
        output = {"type": "function_call_output", "call_id": "call_missing", "output": "x"}
        more: dict[str, Any] = {"previous_response_id": parent, "store": False}
        event = await peer.refusal(input=[output], **more)
        assert parts(event) == (400, "invalid_request_error", "input")
        event = await peer.refusal(input="retry", **more)
        assert parts(event) == (400, "previous_response_not_found", "previous_response_id")
        await goes_on(server, peer)


async def test_too_many_waiting_requests(door: str) -> None:
    async with socket(door, SessionLimits(max_queued=1)) as (server, peer):
        running = await peer.create()
        await peer.send(input="waits")
        event = await peer.refusal(input="too many")
        assert parts(event)[:2] == (429, "too_many_requests")
        server.finish(running)


async def test_appends_and_steers_that_cannot_be_taken(door: str) -> None:
    async with socket(door) as (server, peer):
        output = {"type": "function_call_output", "call_id": "c1", "output": "1"}
        event = await peer.refusal("response.append", response_id="resp_x", input=[output])
        assert parts(event) == (404, "response_not_found", "response_id")
        plain = await peer.create(stream_id="plain")
        event = await peer.refusal("response.append", response_id=plain, input=[output])
        assert parts(event) == (409, "response_not_held", "response_id")
        await peer.send("response.steer", previous_response_id=plain, input="faster")
        failed = await peer.until("response.steer.failed")
        assert failed["error"]["code"] == "steering_not_supported"
        held = await peer.create(hold=True, stream_id="held")
        event = await peer.refusal("response.append", response_id=held, append_index=3, input=[output])
        assert parts(event) == (409, "append_index_gap", "append_index")
        server.finish(held)
        await peer.turn("held")
        event = await peer.refusal("response.append", response_id=held, input=[output])
        assert parts(event) == (409, "response_already_completed", "response_id")


async def test_cancels_of_what_is_not_there(door: str) -> None:
    async with socket(door) as (server, peer):
        for more in ({}, {"response_id": "resp_x"}):
            assert parts(await peer.refusal("response.cancel", **more)) == (404, "response_not_found", "response_id")
        await goes_on(server, peer)


async def test_a_message_over_the_limit_closes_the_socket_with_1009(door: str) -> None:
    async with socket(door) as (_, peer):
        await peer.send_raw(json.dumps({"type": "response.create", "model": "stepped", "input": "x" * 2**24}))
        assert (await peer.closed())[0] == 1009
        assert not peer.seen


async def test_a_binary_message_closes_the_socket_with_1003(door: str) -> None:
    async with socket(door) as (_, peer):
        await peer.send_raw(b"\x00")
        assert (await peer.closed())[0] == 1003
