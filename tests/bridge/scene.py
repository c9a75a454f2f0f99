"""A server with all its doors and a bridge in front of it, in this process, over real loopback sockets.

Above it: the tests, and those that go through every door. Below it: the doors, the core, and an engine and a clock of
the bridge's that the test commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from tests.websocket.conftest import Peer
from websockets.asyncio.client import connect

from turnwire.bridge.app import Bridge
from turnwire.bridge.config import BridgeConfig
from turnwire.client import ChannelOptions
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
from turnwire.server.testing import ManualClock, make_services

BOUND = 10.0
"""Seconds after which a test gives up waiting for what should come at once."""
MODEL = "stepped"
LOOPBACK = Address("127.0.0.1", 0)


class Server:
    """A server whose doors open, close, and open again at the same ports."""

    def __init__(self, limits: SessionLimits | None = None, keys: KeyRing | None = None) -> None:
        self.engine = StepEngine()
        self.services = make_services([self.engine], limits=limits)
        self._keys = keys
        self._grpc: GrpcServer | None = None
        self._http: HttpServer | None = None
        self.grpc_port = 0
        self.http_port = 0

    async def open_grpc(self) -> None:
        self._grpc = GrpcServer(self.services, self._keys)
        self.grpc_port = self._grpc.listen(f"127.0.0.1:{self.grpc_port}")
        await self._grpc.start()

    async def open_http(self) -> None:
        # In a room of its own, so that each door can close without the other.
        backend = LocalBackend(SessionRoom(self.services), self._keys)
        self._http = HttpServer(backend, self.services.clock, websocket=WebSocketDoor(backend).handle)
        self.http_port = (await self._http.listen(Address("127.0.0.1", self.http_port))).port

    async def close_grpc(self) -> None:
        if self._grpc is not None:
            await self._grpc.stop(0)
            self._grpc = None

    async def close_http(self) -> None:
        if self._http is not None:
            await self._http.stop(0)
            self._http = None

    async def begun(self, count: int = 1) -> str:
        """Waits until so many passes have begun in all; returns the response id of the newest."""
        async with asyncio.timeout(BOUND):
            return (await self.engine.started(count))[-1].prompt.response_id

    def say(self, response_id: str, text: str) -> None:
        self.engine.emit(response_id, [TextChunk(Channel.TEXT, text)])

    def finish(self, response_id: str, text: str = "") -> None:
        """Lets the model say something and stop."""
        if text:
            self.say(response_id, text)
        self.engine.finish(response_id)

    def read_by(self, response_id: str) -> list[str]:
        """Returns the texts of the items that the model was given for a response."""
        return [entry.text() for entry in self.engine.find(response_id).prompt.transcript.walk()]

    async def aborted(self, response_id: str) -> None:
        """Waits until a response was cancelled."""
        async with asyncio.timeout(BOUND):
            await self.engine.told(response_id, "abort")


class Wire:
    """The way to a port, with a count of the bytes that went up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._copying: set[asyncio.Task[None]] = set()
        self.port = 0
        self.up = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._copying:
            task.cancel()
        await asyncio.gather(*self._copying, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._port)
        for copy in (self._copy(reader, out, up=True), self._copy(there, writer, up=False)):
            task = asyncio.create_task(copy)
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    self.up += len(data) if up else 0
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()


class Stage:
    """A bridge, and clients of it."""

    def __init__(self, server: Server, bridge: Bridge, clock: ManualClock, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.bridge = bridge
        self.clock = clock
        self._http = http
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """Sends a request and reads the whole answer: its status and its JSON."""
        async with asyncio.timeout(BOUND), self._http.request(method, self.url + path, **more) as response:
            text = await response.text()
        return response.status, json.loads(text) if text else None

    async def refusal(self, method: str, path: str, **more: Any) -> tuple[int, str, str | None]:
        """Sends a request that must be refused; returns status, code and parameter."""
        status, body = await self.ask(method, path, **more)
        return status, body["error"]["code"], body["error"]["param"]

    async def create(self, text: str = "hello", **more: Any) -> asyncio.Task[tuple[int, Any]]:
        """Begins to ask for a whole response."""
        body = {"model": MODEL, "input": text, **more}
        return asyncio.create_task(self.ask("POST", "/responses", json=body))

    async def whole(self, text: str = "hello", says: str = "done", **more: Any) -> dict[str, Any]:
        """Asks for a response, lets the model answer, and returns it."""
        before = len(self.server.engine.passes)
        asking = await self.create(text, **more)
        self.server.finish(await self.server.begun(before + 1), says)
        status, body = await asking
        assert status == 200, body
        response: dict[str, Any] = body
        return response

    @asynccontextmanager
    async def stream(self, **more: Any) -> AsyncGenerator[Events]:
        """Asks for an event stream; leaving the block goes away from it."""
        body = {"model": MODEL, "input": "hello", "stream": True, **more}
        async with self._http.post(f"{self.url}/responses", json=body) as response:
            assert response.status == 200, await response.text()
            yield Events(response)

    @asynccontextmanager
    async def peer(self, **more: Any) -> AsyncGenerator[Peer]:
        """Opens a WebSocket."""
        url = f"ws://127.0.0.1:{self.port}/v1/responses"
        async with connect(url, ping_interval=None, compression=None, max_size=None, proxy=None, **more) as socket:
            yield Peer(socket)


class Events:
    """The client's end of an event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._text = ""
        self.seen: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any] | None:
        """Reads the next event; None at the end."""
        while True:
            while "\n\n" not in self._text:
                async with asyncio.timeout(BOUND):
                    piece = await self._response.content.readany()
                assert piece, "the stream was cut off"
                self._text += piece.decode()
            frame, self._text = self._text.split("\n\n", 1)
            if frame == "data: [DONE]":
                return None
            if not frame.startswith(":"):
                event: dict[str, Any] = json.loads(frame.split("\ndata: ", 1)[1])
                self.seen.append(event)
                return event

    async def until(self, kind: str) -> dict[str, Any]:
        """Reads events until one of a kind comes."""
        while (event := await self.next()) is not None:
            if event["type"] == kind:
                return event
        msg = f"no {kind} among {[each['type'] for each in self.seen]}"
        raise AssertionError(msg)


@asynccontextmanager
async def bridging(
    server: Server, *, port: int | None = None, fallback: bool = False, clock: ManualClock | None = None, **more: Any
) -> AsyncGenerator[Stage]:
    """Runs a bridge to a server for the length of the block.

    Args:
        server: The server.
        port: Where gRPC is looked for, if not where the server has it.
        fallback: Whether the server's WebSocket door may be used.
        clock: The bridge's clock.
        **more: Further fields of `BridgeConfig`.
    """
    clock = clock or ManualClock()
    config = BridgeConfig(
        server=more.pop("to", f"grpc://127.0.0.1:{port or server.grpc_port}"),
        fallback=f"ws://127.0.0.1:{server.http_port}" if fallback else None,
        listen=(LOOPBACK,),
        channel=more.pop("channel", ChannelOptions(connect_timeout=BOUND)),
        **more,
    )
    bridge = Bridge(config, clock)
    async with aiohttp.ClientSession() as http:
        stage = Stage(server, bridge, clock, http)
        stage.port = (await bridge.listen(LOOPBACK)).port
        try:
            yield stage
        finally:
            await bridge.stop(0)


@asynccontextmanager
async def serving(
    *, limits: SessionLimits | None = None, keys: KeyRing | None = None, http: bool = False
) -> AsyncGenerator[Server]:
    """Serves gRPC, and HTTP if it is asked for, for the length of the block."""
    server = Server(limits, keys)
    await server.open_grpc()
    if http:
        await server.open_http()
    try:
        yield server
    finally:
        await server.close_http()
        await server.close_grpc()


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits for something of which nobody tells."""
    async with asyncio.timeout(BOUND):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)
