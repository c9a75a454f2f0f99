"""How connections end: by age, idleness, drain, silence, broken rules, clients that go or do not read, and bugs."""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed

from turnwire.server.doors.websocket.options import WebSocketOptions
from turnwire.server.session.limits import SessionLimits
from turnwire.v1.errors import make_error

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Doors, Event, Peer

    from turnwire.server.runtime.runner import SessionRunner

_HOUR = 3600.0
_LIMIT = "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."
_HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def is_limit(event: Event) -> bool:
    assert (event["status"], event["error"]["message"], event["error"]["param"]) == (400, _LIMIT, None)
    return event["error"]["code"] == "websocket_connection_limit_reached" and "stream_id" not in event


class Raw:
    """A client that reads only when told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, door: Door) -> Raw:
        raw = sockets.socket()
        raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", door.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
        writer.write(_HANDSHAKE)
        async with asyncio.timeout(5):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        return cls(reader, writer)

    def send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        head = bytes((0x80 | opcode, 0x80 | size)) if size < 126 else bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2)
        self.writer.write(head + bytes(4) + payload)

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(5):
            first, size = await self.reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2))
            return first & 0x0F, await self.reader.readexactly(size)

    async def ended(self) -> None:
        """Reads until the server has dropped the connection."""
        async with asyncio.timeout(5):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass


@pytest.fixture
async def raw(door: Door) -> AsyncIterator[Raw]:
    client = await Raw.connect(door)
    yield client
    client.writer.close()


async def test_an_idle_socket_of_an_hour_is_told_so_and_closed_in_order(door: Door, peer: Peer) -> None:
    await door.completes(peer)
    # Not idle for longer than the limit of idleness.
    for _ in range(2):
        await door.passes(_HOUR / 2 - 1)
        await door.completes(peer)
    peer.seen = []
    await door.passes(2)
    assert await peer.closed() == (1001, "max_age")
    (event,) = peer.seen
    assert is_limit(event)


async def test_the_age_that_a_socket_may_reach_can_be_set(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(websocket_max_age=120.0))
    peer = await door.connect()
    await door.passes(120)
    assert await peer.closed() == (1001, "max_age")
    (event,) = peer.seen
    assert "(2 minutes)" in event["error"]["message"]


async def test_a_running_response_may_finish_before_the_socket_is_closed_for_its_age(door: Door, peer: Peer) -> None:
    running = await peer.create(stream_id="a")
    door.say(running, "It takes ")
    await peer.until("response.output_text.delta")
    await door.passes(_HOUR)
    refused = await peer.refusal(input="another", stream_id="b")
    assert refused["error"]["code"] == "websocket_connection_limit_reached"
    assert refused["stream_id"] == "b"
    door.finish(running, "just in time")
    assert (await peer.turn("a"))[-1]["type"] == "response.completed"
    assert is_limit(await peer.error())
    assert await peer.closed() == (1001, "max_age")


async def test_a_response_that_does_not_finish_within_the_grace_fails_before_the_close(door: Door, peer: Peer) -> None:
    running = await peer.create()
    door.say(running, "It takes too")
    await door.passes(_HOUR)
    await door.passes(SessionLimits().grace)
    end = (await peer.turn())[-1]
    assert end["type"] == "response.failed"
    assert end["response"]["error"]["code"] == "websocket_connection_limit_reached"
    assert end["response"]["id"] == running
    assert is_limit(await peer.error())
    assert await peer.closed() == (1001, "max_age")
    await door.told(running, "abort")


async def test_a_socket_without_requests_is_closed_after_the_idle_time_out(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(idle_timeout=60.0))
    peer = await door.connect()
    await door.completes(peer)
    peer.seen = []
    door.clock.advance(120.0)
    assert await peer.closed() == (1001, "idle")
    assert not peer.seen


async def test_a_drain_lets_what_runs_end_once_and_closes_as_a_restart(door: Door, peer: Peer) -> None:
    idle = await door.connect()
    running = await peer.create(stream_id="a")
    await peer.send(input="waits", stream_id="a")
    await peer.refusal("response.invent")
    door.room.go_away("shutdown", 10.0, 0.0)
    assert await idle.closed() == (1012, "shutdown")
    refused = await peer.refusal(input="too late")
    assert (refused["status"], refused["error"]["code"]) == (503, "server_shutting_down")
    peer.seen = []
    door.finish(running)
    assert (await peer.turn("a"))[-1]["type"] == "response.completed"
    waited = (await peer.until("response.in_progress", "a"))["response"]["id"]
    door.clock.advance(10.0)
    assert await peer.closed() == (1012, "shutdown")
    ends = [event for event in peer.seen if event["type"] in ("response.completed", "response.failed")]
    assert [event["response"]["id"] for event in ends] == [running, waited]


async def test_every_waiting_create_has_its_end_when_the_grace_is_over(door: Door, peer: Peer) -> None:
    await peer.create("runs")
    for text in ("waits", "waits too"):
        await peer.send(input=text)
    await peer.refusal("response.invent")
    peer.seen = []
    door.room.go_away("shutdown", 10.0, 0.0)
    door.clock.advance(10.0)
    assert await peer.closed() == (1012, "shutdown")
    ends = [event["type"] for event in peer.seen if event["type"] in ("response.failed", "error")]
    assert len(ends) == 3


async def test_a_client_that_drops_the_connection_frees_everything_at_once(door: Door, peer: Peer) -> None:
    running = [await peer.create(stream_id="a"), await peer.create(hold=True)]
    await peer.send(input="waits")
    await peer.refusal("response.invent")
    peer.socket.transport.abort()
    for response_id in running:
        await door.told(response_id, "abort")
    await door.emptied()


async def test_a_client_that_closes_is_answered_and_frees_everything_at_once(door: Door, peer: Peer) -> None:
    running = await peer.create()
    await peer.socket.close(1000)
    assert peer.socket.close_code == 1000
    await door.told(running, "abort")
    await door.emptied()


async def test_a_message_of_the_limit_is_taken_and_a_larger_one_closes_with_1009(open_door: Doors) -> None:
    limit = 200_000
    door = await open_door(options=WebSocketOptions(max_message_bytes=limit))
    for compression in (None, "deflate"):
        peer = await door.connect(compression=compression)
        text = '{"type":"response.invent","pad":"%s"}'
        pad = limit - len(text) + 2
        await peer.send_raw(text % ("x" * pad))
        assert (await peer.error())["error"]["code"] == "invalid_value"
        for more in (1, limit + 1):
            other = await door.connect(compression=compression)
            running = await other.create(stream_id="a")
            other.seen = []
            await other.send_raw(text % ("x" * (pad + more)))
            code, _ = await other.closed()
            assert code == 1009
            assert not other.seen
            await door.told(running, "abort")
        await door.completes(peer)


async def test_sixteen_mebibytes_are_the_default_limit() -> None:
    assert WebSocketOptions().max_message_bytes == 16_777_216


async def test_a_binary_message_closes_with_1003(door: Door, peer: Peer) -> None:
    running = await peer.create()
    await peer.send_raw(b'{"type":"response.create"}')
    code, reason = await peer.closed()
    assert code == 1003
    assert "binary" in reason
    await door.told(running, "abort")


async def test_a_ping_is_answered_while_a_response_runs(door: Door, peer: Peer) -> None:
    running = await peer.create()
    async with asyncio.timeout(5):
        await (await peer.socket.ping(b"there?"))
    door.finish(running)
    await peer.turn()


async def test_a_client_that_answers_pings_stays_and_one_that_does_not_is_gone(open_door: Doors) -> None:
    door = await open_door(options=WebSocketOptions(ping_interval=0.02, pong_timeout=0.02))
    peer = await door.connect()
    running = await peer.create()
    raw = await Raw.connect(door)
    for _ in range(3):
        opcode, payload = await raw.frame()
        assert (opcode, payload) == (0x9, b"")
        raw.send(0xA, b"")
    await raw.ended()
    raw.writer.close()
    await door.watcher.until(lambda watcher: watcher.open == 1)
    door.finish(running)
    assert (await peer.turn())[-1]["type"] == "response.completed"


async def fill(door: Door, response_id: str) -> None:
    """Lets the model talk until it was told to pause and stays paused."""
    sampling = door.sampling(response_id)
    quiet = pieces = 0
    while quiet < 25:
        if sampling.paused:
            quiet += 1
            # Socket buffers empty in their own time: only silence tells that they are full.
            await asyncio.sleep(0.002)
            continue
        quiet = 0
        door.say(response_id, "x" * 4096)
        pieces += 1
        assert pieces < 4_000, "the engine is never paused"
        await asyncio.sleep(0)


async def begun(door: Door, raw: Raw) -> str:
    raw.send(0x1, b'{"type":"response.create","model":"stepped","input":"tell me all"}')
    async with asyncio.timeout(5):
        return (await door.engine.started(1))[0].prompt.response_id


async def test_a_client_that_does_not_read_pauses_its_engine_and_is_cut_off_in_the_end(door: Door, raw: Raw) -> None:
    response_id = await begun(door, raw)
    await fill(door, response_id)
    assert door.watcher.open == 1
    for _ in range(int(SessionLimits().stall_timeout * 2)):
        door.clock.advance(1.0)
        await asyncio.sleep(0)
    await door.told(response_id, "abort")
    await door.emptied()
    await raw.ended()


async def test_a_client_that_reads_again_in_time_gets_everything(door: Door, raw: Raw) -> None:
    response_id = await begun(door, raw)
    await fill(door, response_id)
    reading = asyncio.create_task(raw.ended())
    await door.told(response_id, "resume")
    door.finish(response_id)
    raw.send(0x8, b"")
    await reading
    await door.emptied()


@pytest.mark.parametrize(("opcode", "payload"), [(0x1, b"{}" * 30), (0x9, b"x" * 125)], ids=["messages", "pings"])
async def test_a_client_that_floods_and_does_not_read_is_cut_off(open_door: Doors, opcode: int, payload: bytes) -> None:
    door = await open_door(options=WebSocketOptions(stall_timeout=0.05))
    raw = await Raw.connect(door)
    try:
        async with asyncio.timeout(10):
            while door.watcher.open:
                for _ in range(100):
                    raw.send(opcode, payload)
                await raw.writer.drain()
                await asyncio.sleep(0)
    except ConnectionError:
        pass
    await door.emptied()
    raw.writer.close()


async def test_a_bug_ends_every_create_with_an_error_and_the_socket_with_1011(
    door: Door, peer: Peer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await peer.create(stream_id="a")
    await peer.send(input="waits", stream_id="a")
    await peer.refusal("response.invent")
    peer.seen = []

    door.breaks(monkeypatch)
    door.say(running, "crash")
    assert await peer.closed() == (1011, "server_error")
    assert [event["error"]["code"] for event in peer.seen] == ["server_error", "server_error"]
    assert [event["status"] for event in peer.seen] == [500, 500]
    assert {event["stream_id"] for event in peer.seen} == {"a"}
    assert [event.get("sequence_number") for event in peer.seen] == [2, None]
    assert "a bug" in caplog.text


async def test_a_bug_of_the_door_itself_ends_its_socket_with_1011(
    door: Door, peer: Peer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnwire.v1.official.stream import OfficialStream

    running = await peer.create()
    peer.seen = []

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug of the door")

    monkeypatch.setattr(OfficialStream, "feed", broken)
    door.say(running, "crash")
    assert await peer.closed() == (1011, "server_error")
    assert [event["error"]["code"] for event in peer.seen] == ["server_error"]
    assert "a bug of the door" in caplog.text
    await door.told(running, "abort")


async def test_a_lost_server_behind_the_port_ends_every_create_as_lost(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a bridge: clients answer by connecting again."""
    links: list[SessionRunner] = []
    enter = door.room.enter

    def remembering(principal: str, name: str) -> SessionRunner:
        links.append(enter(principal, name))
        return links[-1]

    monkeypatch.setattr(door.room, "enter", remembering)
    peer = await door.connect()
    running = await peer.create()
    links[0].break_off(make_error("session_lost", "The connection to the server was lost."))
    event = await peer.error()
    assert (event["status"], event["error"]["code"]) == (503, "session_lost")
    assert await peer.closed() == (1012, "session_lost")
    await door.told(running, "abort")


async def test_a_socket_that_was_closed_takes_no_more(door: Door, peer: Peer) -> None:
    await peer.send_raw(b"\0")
    await peer.closed()
    with pytest.raises(ConnectionClosed):
        await peer.send(input="hi")
