"""Bytes that are no message, and messages too large for the wire: one stream ends with a status, others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.v1.client_event_pb2 import ConnectRequest

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors, Peer

_BAD_UTF8 = b"\x0a\x02\xff\xfe"
_UNDECODABLE = {
    "bytes that are no message": b"\xff\xff\xff\xff",
    "a message that is cut off": b"\x2a\x7f\x0a",
    "a request id that is not UTF-8": _BAD_UTF8,
    "a model that is not UTF-8": b"\x2a\x04" + _BAD_UTF8,
    "a group that never ends": b"\x0b" * 10,
    "nesting without end": b"",
}


def _nested(levels: int) -> bytes:
    """Builds a create whose tools are namespaces in namespaces."""
    data = b""
    for _ in range(levels):
        inner = data
        # Tool.namespace = 3, NamespaceTool.tools = 3
        for field in (b"\x1a", b"\x1a"):
            inner = field + _varint(len(inner)) + inner
        data = inner
    tools = b"\x0a" + _varint(len(data)) + data
    create = b"\x2a" + _varint(len(tools)) + tools
    return b"\x2a" + _varint(len(create)) + create


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


_UNDECODABLE["nesting without end"] = _nested(5_000)


@pytest.mark.parametrize("data", _UNDECODABLE.values(), ids=_UNDECODABLE)
async def test_undecodable_bytes_end_their_stream_and_no_other(door: Door, peer: Peer, data: bytes) -> None:
    other = door.connect()
    running = await peer.create("a")
    await other.create("a")

    await peer.send_bytes(data)

    ended = await peer.ended()
    assert ended.code is grpc.StatusCode.INVALID_ARGUMENT
    assert ended.error == ("invalid_request_error", None)
    assert ended.reason == "INVALID_REQUEST_ERROR"
    assert "ConnectRequest" in ended.message
    await door.told(running, "abort")
    await door.completes(other)
    await door.completes(door.connect())


async def test_a_deeply_nested_tool_is_refused_and_the_stream_lives(door: Door, peer: Peer) -> None:
    ConnectRequest.FromString(_nested(20))
    await peer.send_bytes(_nested(20))
    assert (await peer.until("rejected")).error.code in ("invalid_value", "missing_required_parameter")
    await door.completes(peer)


async def test_deeply_nested_json_is_refused_and_the_stream_lives(door: Door, peer: Peer) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    tools = {"tools": [{"function": {"name": "f", "parameters": deep}}]}
    assert await peer.refusal(create=peer.asking(tools=tools)) == (
        "invalid_function_parameters",
        "tools[0].parameters",
    )
    assert await peer.refusal(create=peer.asking(prompt_cache_options=deep)) == ("invalid_json", "prompt_cache_options")
    await door.completes(peer)


async def test_a_message_over_the_transport_limit_ends_its_stream_and_no_other(open_door: Doors) -> None:
    door = await open_door(options=GrpcOptions(max_message_bytes=64 * 1024))
    peer, other = door.connect(), door.connect()
    running = await peer.create("a")
    await other.create("a")

    await peer.send_bytes(ConnectRequest(create=peer.asking("x" * 70_000)).SerializeToString())

    assert (await peer.ended()).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await door.told(running, "abort")
    await door.completes(other)


@pytest.mark.parametrize("name", ["CreateResponse", "GetResponse", "DeleteResponse"])
async def test_undecodable_one_shot_requests_say_what_they_should_be(door: Door, name: str) -> None:
    ended = await door.ask(name, b"\xff\xff\xff")
    assert not isinstance(ended, bytes)
    assert (ended.code, ended.error) == (grpc.StatusCode.INVALID_ARGUMENT, ("invalid_request_error", None))
    assert f"{name}Request" in ended.message


async def test_an_unknown_method_is_unimplemented(door: Door) -> None:
    ended = await door.ask("Compose", b"")
    assert not isinstance(ended, bytes)
    assert ended.code is grpc.StatusCode.UNIMPLEMENTED


async def test_an_empty_message_holds_no_event(door: Door, peer: Peer) -> None:
    await peer.send_bytes(b"")
    assert (await peer.until("rejected")).error.code == "missing_event"
    await door.completes(peer)
