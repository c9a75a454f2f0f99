"""Plays in the public API's WebSocket mode: through the server's own door, or through a bridge in front of gRPC.

Above: the tests. Below: the doors, and `official`, which knows what JSON does not say.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from turnwire.bridge.backend import BridgeBackend, BridgeLink
from turnwire.bridge.routes import Routes
from turnwire.client.remote import RemoteBackend
from turnwire.server.address import Address
from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.session.rules import MAX_AGE
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.json import to_json
from turnwire.v1.session_pb2 import SessionOpen

from . import official
from .door_driver import AnyName
from .inbox import Inbox
from .skips import is_opening, wants_all
from .socket_driver import Seat, SocketDriver
from .transcript import Transcript


class OfficialDriver(SocketDriver):
    """JSON text on real sockets."""

    subprotocols = ()

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._translations: dict[int, official.Translation] = {}

    def expected(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Returns what the door says of an event that a transcript expects; None where it says nothing."""
        return official.expected(wanted)

    async def send(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event and waits until the session has it. Sockets are opened by their door."""
        if not is_opening(request):
            await super().send(name, request)

    async def say(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event."""
        await self.seats[name].socket.send(to_json(request).decode())

    def take(self, seat: Seat, data: str | bytes) -> None:
        """Takes a message."""
        assert isinstance(data, str)
        translation = self._translations.get(id(seat))
        if translation is None:
            full = wants_all(self.transcript)
            translation = self._translations[id(seat)] = official.Translation(seat.inbox, full=full)
        translation.take(data)

    def forget_last_words(self, inbox: Inbox, code: str) -> None:
        """Takes out what said the same as `go_away`, which JSON does not have."""
        if code == MAX_AGE:
            super().forget_last_words(inbox, official.TOO_OLD)


class BridgeDriver(OfficialDriver):
    """JSON text on real sockets to a bridge, which reaches the server over gRPC."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._passed_on = 0

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serves at `port` for the length of the block: a bridge without its guard, whose sessions would count."""
        server = GrpcServer(self.services, AnyName(), room=self.room)
        address = f"grpc://127.0.0.1:{server.listen('127.0.0.1:0')}"
        await server.start()
        routes = Routes(RemoteBackend(address), None, self.clock)
        backend = _Watched(routes, self._note)
        bridge = HttpServer(backend, self.clock, websocket=WebSocketDoor(backend).handle)
        self.port = (await bridge.listen(Address("127.0.0.1", 0))).port
        yield
        await bridge.stop(0)
        await routes.aclose()
        await server.stop(0)

    def _note(self, events: int) -> None:
        self._passed_on += events
        self.bell.ring()

    async def open(self, name: str, principal: str) -> Inbox:
        """Opens a session under a name of the transcript, and waits until its opening has come by gRPC."""
        before = self.counter.messages
        inbox = await super().open(name, principal)
        await self.until(lambda: self.counter.messages > before, "the session was opened")
        return inbox

    def quiet(self) -> bool:
        """Tells whether everything that waited has been sent, and passed on."""
        lost = any(seat.inbox.status for seat in self.seats.values())
        return super().quiet() and (lost or self._passed_on == self.counter.events)


class _Watched(BridgeBackend):
    """Tells how many events went on to clients."""

    def __init__(self, routes: Routes, note: Any) -> None:
        super().__init__(routes)
        self._note = note

    def caller(self, authorization: str | None) -> Any:
        caller = super().caller(authorization)
        connect = caller.connect

        def noted(size: int, events: int) -> None:
            self._note(events)

        def watched(opening: SessionOpen | None, door: str) -> BridgeLink:
            link = connect(opening, door)
            setattr(link, "sent", noted)  # noqa: B010
            return link

        setattr(caller, "connect", watched)  # noqa: B010
        return caller
