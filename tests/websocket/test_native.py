"""The subprotocol `turnwire.v1`: our own messages as binary frames, with the rules of gRPC's Connect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, ToolOutput
from turnwire.v1.response_pb2 import DoneReason, Input, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionRules

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Doors
    from websockets.asyncio.client import ClientConnection

_BOUND = 5.0


class Native:
    """The client's end of one socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[ServerEvent] = []
        self._waiting: list[ServerEvent] = []
        self._last_event_id = 0

    async def send(self, **event: Any) -> None:
        await self.socket.send(ConnectRequest(**event).SerializeToString())

    async def next(self) -> ServerEvent:
        while not self._waiting:
            async with asyncio.timeout(_BOUND):
                data = await self.socket.recv()
            assert isinstance(data, bytes)
            batch = ConnectResponse.FromString(data)
            assert batch.first_event_id == self._last_event_id + 1
            self._last_event_id += len(batch.events)
            self._waiting.extend(batch.events)
        event = self._waiting.pop(0)
        self.events.append(event)
        return event

    async def until(self, kind: str) -> Any:
        while True:
            event = await self.next()
            if event.WhichOneof("event") == kind:
                return getattr(event, kind)

    async def closed(self) -> tuple[int, str]:
        while True:
            try:
                await self.next()
            except ConnectionClosed as end:
                return (end.rcvd.code, end.rcvd.reason) if end.rcvd else (1006, "")

    async def last_words(self) -> tuple[Error, int, str]:
        """Reads to the end; returns the error that was said last, and what the close frame says."""
        code, reason = await self.closed()
        last = self.events[-1]
        assert last.WhichOneof("event") == "rejected"
        assert not last.rejected.request_id
        return last.rejected.error, code, reason


def asking(text: str = "hello", **more: Any) -> ResponseCreate:
    fields: dict[str, Any] = {"model": "stepped", "input": Input(text=text), **more}
    return ResponseCreate(**fields)


async def connected(door: Door) -> Native:
    peer = await door.connect(subprotocols=["turnwire.v1"])
    assert peer.socket.subprotocol == "turnwire.v1"
    return Native(peer.socket)


@pytest.fixture
async def native(door: Door) -> Native:
    return await connected(door)


async def created(door: Door, native: Native, **more: Any) -> str:
    await native.send(create=asking(**more))
    response_id: str = (await native.until("created")).response.id
    await door.started(response_id)
    return response_id


async def test_a_session_need_not_be_opened(door: Door, native: Native) -> None:
    response_id = await created(door, native)
    door.finish(response_id, "hi")
    assert (await native.until("done")).reason == DoneReason.DONE_REASON_COMPLETED
    assert native.events[0].WhichOneof("event") == "created"


async def test_the_clients_own_opening_is_in_force_and_its_credit_too(door: Door, native: Native) -> None:
    await native.send(open={"response_credit_bytes": 4096, "session_credit_bytes": 0})
    opened = await native.until("opened")
    assert opened.response_credit_bytes == 4096
    assert opened.rules == SessionRules.SESSION_RULES_TREE
    await native.send(open={})
    assert (await native.until("rejected")).error.code == "session_already_open"
    response_id = await created(door, native)
    while not door.sampling(response_id).paused:
        door.say(response_id, "x" * 4096)
        await asyncio.sleep(0)
    while not door.sampling(response_id).calls.count("resume"):
        event = await native.next()
        await native.send(credit={"response": event.response, "bytes": event.ByteSize()})
    door.finish(response_id)
    while (event := await native.next()).WhichOneof("event") != "done":
        await native.send(credit={"response": event.response, "bytes": event.ByteSize()})


async def test_appends_and_forks_work_as_on_grpc(door: Door, native: Native) -> None:
    response_id = await created(door, native, hold=True)
    door.call(response_id, "call_1")
    door.finish(response_id)
    assert (await native.until("done")).reason == DoneReason.DONE_REASON_TOOL_CALLS
    seen = Item(function_call_output=FunctionCallOutput(call_id="call_1", output=ToolOutput(text="seen")))
    await native.send(append={"response_id": response_id, "input": [seen]})
    await native.until("appended")
    door.finish(response_id, "I see.")
    assert (await native.until("done")).reason == DoneReason.DONE_REASON_COMPLETED
    # Every response stays addressable, not only the latest of a lane.
    for _ in range(2):
        child = await created(door, native, previous_response_id=response_id, store=False)
        door.finish(child)
        await native.until("done")


async def test_a_client_that_is_content_closes_and_is_answered_with_1000(native: Native) -> None:
    await native.send(close={})
    assert await native.closed() == (1000, "")


async def test_bytes_that_are_no_message_end_the_session_and_say_so(door: Door, native: Native) -> None:
    response_id = await created(door, native)
    await native.socket.send(b"\xff\xff\xff")
    error, code, reason = await native.last_words()
    assert (error.code, code, reason) == ("invalid_request_error", 1007, "invalid_request_error")
    assert "ConnectRequest" in error.message
    await door.told(response_id, "abort")


async def test_a_message_without_an_event_is_refused_and_the_session_goes_on(door: Door, native: Native) -> None:
    await native.socket.send(b"")
    assert (await native.until("rejected")).error.code == "missing_event"
    door.finish(await created(door, native))
    await native.until("done")


async def test_text_closes_with_1003(native: Native) -> None:
    await native.socket.send("{}")
    code, reason = await native.closed()
    assert code == 1003
    assert "text" in reason


async def test_a_bug_is_said_with_its_code_before_the_close(
    door: Door, native: Native, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    response_id = await created(door, native)

    door.breaks(monkeypatch)
    door.say(response_id, "crash")
    error, code, reason = await native.last_words()
    assert (error.code, code, reason) == ("server_error", 1011, "server_error")
    assert "a bug" in caplog.text


async def test_a_drain_is_announced_and_ends_as_a_restart(door: Door, native: Native) -> None:
    response_id = await created(door, native)
    door.room.go_away("shutdown", 10.0, 0.0)
    assert (await native.until("go_away")).reason == "shutdown"
    door.finish(response_id)
    await native.until("done")
    assert await native.closed() == (1012, "shutdown")


async def test_both_languages_are_spoken_to_those_who_offer_others_too(door: Door) -> None:
    peer = await door.connect(subprotocols=["chat", "turnwire.v1"])
    assert peer.socket.subprotocol == "turnwire.v1"


async def test_a_key_may_be_offered_where_headers_cannot_be_set(open_door: Doors) -> None:
    door = await open_door(keys="alice:sk-alice-000000000000\n")
    peer = await door.connect(subprotocols=["turnwire.v1", "openai-insecure-api-key.sk-alice-000000000000"])
    assert peer.socket.subprotocol == "turnwire.v1"
    native = Native(peer.socket)
    door.finish(await created(door, native))
    await native.until("done")
