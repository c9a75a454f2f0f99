"""What the tests of the WebSocket door share: a door with a core behind it, and a client that does anything it is told.

Every door checks, when its test is over, that nothing was left behind: no session, no pass in the engine, no timer, no
task.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.doors.websocket.options import WebSocketOptions
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.keys import KeyRing
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.services import Services, Unobserved
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Channel, TextChunk
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.session import Session
from turnwire.server.testing import ManualClock, make_services

BOUND = 5.0
"""Seconds after which a test gives up waiting for what should come at once."""
MODEL = "stepped"
TERMINAL = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})

Event = dict[str, Any]


class Peer:
    """The client's end of one socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[Event] = []
        """Every event that was taken, in order."""

    async def send(self, kind: str = "response.create", **fields: Any) -> None:
        """Sends an event; a create gets a model."""
        more = {"model": MODEL} if kind == "response.create" and "model" not in fields else {}
        await self.send_raw(json.dumps({"type": kind, **more, **fields}))

    async def send_raw(self, data: str | bytes) -> None:
        async with asyncio.timeout(BOUND):
            await self.socket.send(data)

    async def next(self) -> Event:
        async with asyncio.timeout(BOUND):
            data = await self.socket.recv()
        assert isinstance(data, str)
        event: Event = json.loads(data)
        self.seen.append(event)
        return event

    async def until(self, kind: str, lane: str | None = None) -> Event:
        """Takes events until one of a kind comes (in a lane, where one is named)."""
        while True:
            event = await self.next()
            if event["type"] == kind and lane in (None, event.get("stream_id")):
                return event

    async def turn(self, lane: str | None = None) -> list[Event]:
        """Takes events to the terminal one of a lane, and returns those of the lane."""
        events: list[Event] = []
        while True:
            event = await self.next()
            if event.get("stream_id") == lane:
                events.append(event)
                if event["type"] in TERMINAL:
                    return events

    async def create(self, text: Any = "hello", **fields: Any) -> str:
        """Creates a response, waits until it is at work, and returns its id."""
        await self.send(**{"input": text, **fields})
        lane = fields.get("stream_id")
        while True:
            event = await self.next()
            if event.get("stream_id") != lane:
                continue
            assert event["type"] != "error", event
            if event["type"] == "response.in_progress":
                response_id: str = event["response"]["id"]
                return response_id

    async def refusal(self, kind: str = "response.create", **fields: Any) -> Event:
        """Sends an event that must be refused, and returns the next event of the socket."""
        await self.send(kind, **fields)
        return await self.error()

    async def error(self) -> Event:
        """Takes the next event, which has to be a well-formed error."""
        event = await self.next()
        assert event["type"] == "error", event
        assert isinstance(event["status"], int)
        assert set(event["error"]) >= {"type", "code", "message", "param"}
        assert all(isinstance(event["error"][key], str) for key in ("type", "code", "message"))
        return event

    async def closed(self) -> tuple[int, str]:
        """Reads to the end of the connection; returns the code and the reason of the server's close frame."""
        while True:
            try:
                await self.next()
            except ConnectionClosed as end:
                return (end.rcvd.code, end.rcvd.reason) if end.rcvd else (1006, "")


class Watcher(Unobserved):
    """Hears of sessions that begin and end."""

    def __init__(self) -> None:
        self.open = 0
        self.doors: list[str] = []
        self.refused_keys: list[str] = []
        self.sent_bytes = 0
        self._changed = asyncio.Event()

    def session_opened(self, door: str) -> None:
        self.open += 1
        self.doors.append(door)
        self._notify()

    def session_closed(self, door: str) -> None:
        self.open -= 1
        self._notify()

    def sent(self, door: str, size: int, events: int) -> None:
        self.sent_bytes += size

    def key_refused(self, door: str) -> None:
        self.refused_keys.append(door)

    async def until(self, condition: Callable[[Watcher], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not condition(self):
                changed = self._changed
                await changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Door:
    """A WebSocket door in this process, with an engine and a clock that the test commands."""

    def __init__(
        self, room: SessionRoom, services: Services, engine: StepEngine, clock: ManualClock, watcher: Watcher, port: int
    ) -> None:
        self.room = room
        self.services = services
        self.engine = engine
        self.clock = clock
        self.watcher = watcher
        self.port = port
        self.url = f"ws://127.0.0.1:{port}/v1/responses"
        self.sockets: list[ClientConnection] = []

    async def connect(self, query: str = "", **options: Any) -> Peer:
        """Opens a socket with settings of its own. The client sends no pings, compresses nothing, and takes all."""
        wish: dict[str, Any] = {"ping_interval": None, "compression": None, "max_size": None, "proxy": None, **options}
        async with asyncio.timeout(BOUND):
            socket = await connect(self.url + query, **wish)
        self.sockets.append(socket)
        return Peer(socket)

    def only(self) -> Session:
        """Returns the only session."""
        (session,) = self.services.sessions.values()
        return session

    def sampling(self, response_id: str) -> SteppedPass:
        return self.engine.find(response_id)

    async def started(self, response_id: str) -> SteppedPass:
        """Waits until the model is at work on a response."""
        async with asyncio.timeout(BOUND):
            count = 0
            while True:
                for each in self.engine.passes:
                    if each.prompt.response_id == response_id:
                        return each
                count = len(self.engine.passes)
                await self.engine.started(count + 1)

    async def passes(self, seconds: float) -> None:
        """Lets time pass in steps, between which what is due is sent: nothing seems to be stuck."""
        for _ in range(int(seconds // 5)):
            self.clock.advance(5.0)
            for _ in range(3):
                await asyncio.sleep(0)
        self.clock.advance(seconds % 5)

    def read_by(self, response_id: str) -> list[str]:
        """Returns the texts of the items that the model was given for a response."""
        return [entry.text() for entry in self.sampling(response_id).prompt.transcript.walk()]

    def breaks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gives sessions a bug that shows with the next output."""

        def broken(*_: Any) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(Session, "engine_output", broken)

    def say(self, response_id: str, text: str) -> None:
        """Lets the model say something."""
        self.sampling(response_id).emit([TextChunk(Channel.TEXT, text)])

    def call(self, response_id: str, call_id: str, arguments: str = "{}", name: str = "look") -> None:
        """Lets the model call a function."""
        self.sampling(response_id).emit([CallStart(name, call_id=call_id), CallDelta(arguments), CallEnd()])

    def finish(self, response_id: str, text: str = "") -> None:
        """Lets the model say something and stop."""
        if text:
            self.say(response_id, text)
        self.engine.finish(response_id)

    async def told(self, response_id: str, call: Any) -> None:
        async with asyncio.timeout(BOUND):
            await self.engine.told(response_id, call)

    async def completes(self, peer: Peer, text: str = "alive", **fields: Any) -> Event:
        """Runs a response to its end; shows that the socket is alive."""
        response_id = await peer.create(**fields)
        self.finish(response_id, text)
        end = (await peer.turn(fields.get("stream_id")))[-1]
        assert end["type"] == "response.completed"
        whole: Event = end["response"]
        return whole

    async def emptied(self) -> None:
        """Waits until the server has let go of every session."""
        await self.watcher.until(lambda watcher: watcher.open == 0)
        async with asyncio.timeout(BOUND):
            await self.room.idle()

    async def check_nothing_left(self) -> None:
        for socket in self.sockets:
            await socket.close()
        await self.emptied()
        assert not self.services.sessions
        assert all(each.ended or each.aborted for each in self.engine.passes)
        assert self.clock.pending == 0


Doors = Callable[..., Awaitable[Door]]


@asynccontextmanager
async def _serving(
    *,
    limits: SessionLimits | None,
    keys: KeyRing | None,
    options: WebSocketOptions | None,
    max_sessions: int,
) -> AsyncGenerator[Door, None]:
    before = asyncio.all_tasks()
    clock, engine, watcher = ManualClock(), StepEngine(), Watcher()
    services = make_services([engine], limits=limits, clock=clock, observer=watcher)
    room = SessionRoom(services, max_sessions)
    backend = LocalBackend(room, keys, watcher.key_refused, "websocket")
    app = web.Application()
    app.router.add_get("/v1/responses", WebSocketDoor(backend, options).handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=BOUND)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port: int = runner.addresses[0][1]
    door = Door(room, services, engine, clock, watcher, port)
    try:
        yield door
        await door.check_nothing_left()
    finally:
        for socket in door.sockets:
            await socket.close()
        await runner.cleanup()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=BOUND)
    assert not left


@pytest.fixture
async def open_door() -> AsyncIterator[Doors]:
    """Opens doors with settings of their own, for the length of a test."""
    async with AsyncExitStack() as stack:

        async def open_one(
            *,
            limits: SessionLimits | None = None,
            keys: str | None = None,
            options: WebSocketOptions | None = None,
            max_sessions: int = 1_000,
        ) -> Door:
            return await stack.enter_async_context(
                _serving(
                    limits=limits,
                    keys=None if keys is None else KeyRing.parse(keys),
                    options=options,
                    max_sessions=max_sessions,
                )
            )

        yield open_one


@pytest.fixture
async def door(open_door: Doors) -> Door:
    return await open_door()


@pytest.fixture
async def peer(door: Door) -> Peer:
    """A socket of its own through the door."""
    return await door.connect()
