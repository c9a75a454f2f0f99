"""A real server in this process, with an engine that the test commands, and a backend that reaches it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from turnwire.client.remote import RemoteBackend, RemoteOptions
from turnwire.server.address import Address
from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.keys import KeyRing
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import Channel, TextChunk
from turnwire.server.session.limits import SessionLimits
from turnwire.server.testing import make_services
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.response_pb2 import Input, ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent

BOUND = 10.0
"""Seconds after which a test gives up waiting for what should come at once."""
MODEL = "stepped"


class Place:
    """An address where a server runs, is stopped and runs again: gRPC, or WebSocket with its one-shot methods."""

    def __init__(self, scheme: str, limits: SessionLimits | None, keys: KeyRing | None) -> None:
        self.scheme = scheme
        self.engine = StepEngine()
        self._services = make_services([self.engine], limits=limits)
        self._keys = keys
        self.room = SessionRoom(self._services)
        self._grpc: GrpcServer | None = None
        self._http: HttpServer | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Begins to serve, at the port of the last time."""
        self.room = SessionRoom(self._services)
        if self.scheme == "grpc":
            self._grpc = GrpcServer(self._services, self._keys, room=self.room)
            self.port = self._grpc.listen(f"127.0.0.1:{self.port}")
            await self._grpc.start()
        else:
            backend = LocalBackend(self.room, self._keys)
            self._http = HttpServer(backend, self._services.clock, websocket=WebSocketDoor(backend).handle)
            self.port = (await self._http.listen(Address("127.0.0.1", self.port))).port

    async def stop(self, grace: float = 0.0) -> None:
        """Ends to serve."""
        if self._grpc is not None:
            await self._grpc.stop(grace)
            self._grpc = None
        if self._http is not None:
            self.room.go_away("shutdown", grace, 0.0)
            await self._http.stop(grace)
            self._http = None

    def say(self, response_id: str, text: str) -> None:
        """Lets the model say something."""
        self.engine.emit(response_id, [TextChunk(Channel.TEXT, text)])

    async def begun(self, count: int) -> None:
        """Waits until so many responses have begun in all."""
        async with asyncio.timeout(BOUND):
            await self.engine.started(count)

    async def aborted(self, response_id: str) -> None:
        """Waits until a response was cancelled."""
        async with asyncio.timeout(BOUND):
            await self.engine.told(response_id, "abort")

    async def emptied(self) -> None:
        """Waits until no session is left."""
        async with asyncio.timeout(BOUND):
            await self.room.idle()


class Wire:
    """A way to a server that can be cut, as networks do: without a word."""

    def __init__(self, scheme: str, port: int) -> None:
        self._scheme = scheme
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.address = ""
        self.accepting = True

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"{self._scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Resets every connection there is."""
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, out}
        await asyncio.gather(self._copy(reader, out), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Reader:
    """Reads one response."""

    def __init__(self, backend: RemoteBackend, create: ResponseCreate, authorization: str | None = None) -> None:
        caller = backend.caller(authorization)
        self.batches = caller.respond(create, RequestContext())
        self.events: list[ServerEvent] = []

    async def more(self) -> Sequence[ServerEvent]:
        """Takes the next batch."""
        async with asyncio.timeout(BOUND):
            events = await anext(self.batches)
        self.events.extend(events)
        return events

    async def until(self, kind: str) -> Any:
        """Takes batches until an event of a kind has come, and returns its member."""
        while True:
            for event in self.events:
                if event.WhichOneof("event") == kind:
                    return getattr(event, kind)
            await self.more()

    async def created(self) -> str:
        """Waits until the response exists; returns its id."""
        response_id: str = (await self.until("created")).response.id
        return response_id

    async def rest(self) -> list[ServerEvent]:
        """Reads to the end and returns everything."""
        async with asyncio.timeout(BOUND):
            async for events in self.batches:
                self.events.extend(events)
        return self.events

    @property
    def text(self) -> str:
        return "".join(event.output_text_delta.delta for event in self.events)


def asking(text: str = "hello", **more: Any) -> ResponseCreate:
    """Builds a create as an HTTP door asks for a stream."""
    fields: dict[str, Any] = {"model": MODEL, "input": Input(text=text), "verbosity": Verbosity.VERBOSITY_FULL, **more}
    return ResponseCreate(**fields)


@pytest.fixture
def limits() -> SessionLimits | None:
    """The server's limits, for tests to choose others."""
    return None


@pytest.fixture
def keys() -> KeyRing | None:
    """The server's keys, for tests to choose some."""
    return None


@pytest.fixture(params=["grpc", "ws"])
def scheme(request: pytest.FixtureRequest) -> str:
    """How the server is reached."""
    scheme: str = request.param
    return scheme


@pytest.fixture
async def place(scheme: str, limits: SessionLimits | None, keys: KeyRing | None) -> AsyncIterator[Place]:
    place = Place(scheme, limits, keys)
    await place.start()
    yield place
    await place.stop()


@pytest.fixture
async def wire(place: Place) -> AsyncIterator[Wire]:
    wire = Wire(place.scheme, place.port)
    await wire.start()
    yield wire
    await wire.stop()


@pytest.fixture
async def backend(place: Place) -> AsyncIterator[RemoteBackend]:
    async with RemoteBackend(place.address, RemoteOptions(max_responses=64)) as backend:
        yield backend
    await nothing_left()


async def nothing_left() -> None:
    """Waits until no task of the client's is left."""
    left = {task for task in asyncio.all_tasks() if "client/turnwire" in repr(task.get_coro())}
    if left:
        _, left = await asyncio.wait(left, timeout=BOUND)
    assert not left


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits for something of which nobody tells."""
    async with asyncio.timeout(BOUND):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)
