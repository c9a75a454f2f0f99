"""Plays through the WebSocket door in the subprotocol `turnwire.v1`: our own messages as binary frames.

Above: the tests. Below: the HTTP host, the door, the runtime and the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from turnwire.server.address import Address
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.doors.websocket.native import SUBPROTOCOL
from turnwire.server.runtime.local import LocalBackend
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import ERRORS
from turnwire.v1.responses_service_pb2 import ConnectResponse

from .door_driver import PATIENCE, AnyName, DoorDriver
from .inbox import Inbox
from .transcript import Transcript


class Seat:
    """One socket."""

    def __init__(self, socket: ClientConnection, inbox: Inbox) -> None:
        self.socket = socket
        self.inbox = inbox
        self.reader: asyncio.Task[None] | None = None


class SocketDriver(DoorDriver):
    """Real sockets to a real server."""

    subprotocols: tuple[str, ...] = (SUBPROTOCOL,)

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self.seats: dict[str, Seat] = {}
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Serves for the length of the block."""
        async with self.serving():
            try:
                yield self
            finally:
                for seat in self.seats.values():
                    seat.socket.transport.abort()
                    await seat.socket.wait_closed()
                    if seat.reader is not None:
                        await asyncio.gather(seat.reader, return_exceptions=True)
                await self.until(lambda: not self.services.sessions, "every session was let go")

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serves at `port` for the length of the block."""
        backend = LocalBackend(self.room, AnyName())
        server = HttpServer(backend, self.clock, websocket=WebSocketDoor(backend).handle)
        self.port = (await server.listen(Address("127.0.0.1", 0))).port
        yield
        await server.stop(0)

    async def open(self, name: str, principal: str) -> Inbox:
        """Opens a session under a name of the transcript."""
        before = set(self.services.sessions)
        socket = await connect(
            f"ws://127.0.0.1:{self.port}/v1/responses",
            additional_headers={"Authorization": f"Bearer {principal}"},
            subprotocols=[Subprotocol(each) for each in self.subprotocols] or None,
            ping_interval=None,
            compression=None,
            max_size=None,
            proxy=None,
        )
        seat = self.seats[name] = Seat(socket, Inbox(self.bell))
        seat.reader = asyncio.create_task(self._read(seat))
        await self.take_new(name, before)
        return seat.inbox

    async def _read(self, seat: Seat) -> None:
        try:
            async for data in seat.socket:
                self.take(seat, data)
            self._ended(seat)
        except ConnectionClosed:
            self._ended(seat)
        except Exception as problem:
            seat.inbox.end(f"a rule was broken: {problem!r}")

    def take(self, seat: Seat, data: str | bytes) -> None:
        """Takes a message."""
        assert isinstance(data, bytes)
        seat.inbox.take(ConnectResponse.FromString(data))

    def _ended(self, seat: Seat) -> None:
        """Says by which gRPC status the session would have ended."""
        code, reason = seat.socket.close_code, seat.socket.close_reason or ""
        error = ERRORS.get(reason)
        if code == 1006:
            seat.inbox.end("CANCELLED")
        else:
            self.forget_last_words(seat.inbox, reason)
            seat.inbox.end("OK" if error is None else error.grpc_status)

    def forget_last_words(self, inbox: Inbox, code: str) -> None:
        """Takes out what said the same as the close frame, for which gRPC has its status."""
        last = inbox.answers[-1] if inbox.answers else {}
        rejected: dict[str, Any] = last.get("rejected", {})
        if not rejected.get("request_id") and rejected.get("error", {}).get("code") == code:
            inbox.answers.pop()
            inbox.received -= 1

    async def say(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event."""
        await self.seats[name].socket.send(request.SerializeToString())

    async def half_close(self, name: str) -> None:
        """Is never called: see `skips`."""
        msg = "a socket has no half to close"
        raise NotImplementedError(msg)

    async def vanish(self, name: str) -> None:
        """Resets the connection."""
        self.seats[name].socket.transport.abort()

    async def settle(self) -> None:
        """Waits until nothing is on its way: what was sent before an answer to a ping came before it."""
        await super().settle()
        for seat in self.seats.values():
            if not seat.inbox.status:
                try:
                    async with asyncio.timeout(PATIENCE):
                        await (await seat.socket.ping())
                except ConnectionClosed:
                    continue
        await super().settle()

    def quiet(self) -> bool:
        """Tells whether everything that waited has been sent."""
        if any(seat.inbox.status == "CANCELLED" for seat in self.seats.values()):
            return True
        return not any(
            self.sessions[name].sendable
            for name, seat in self.seats.items()
            if name in self.sessions and not seat.inbox.status
        )
