"""The port behind the official shapes, over the core in this process.

Above it: the JSON doors. Below it: the sessions of the server, its store and its engines.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, Protocol

from turnwire.server.runtime.compacting import compact_response
from turnwire.server.runtime.one_shot import one_response
from turnwire.server.runtime.probing import count_input_tokens
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.responses_service_pb2 import CompactResponseResponse, ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen


class Keys(Protocol):
    """Who may come in."""

    def authenticate(self, authorization: str | None) -> str:
        """Returns the principal of an `Authorization` header; raises RequestError."""
        ...


class LocalLink:
    """A session in this process."""

    def __init__(self, room: SessionRoom, runner: SessionRunner) -> None:
        """Takes a session of a room's."""
        self._room = room
        self._runner = runner

    @property
    def close_error(self) -> Error | None:
        """Why the session has ended; None where it ended in order."""
        return self._runner.close_error

    @property
    def on_cut(self) -> Callable[[], object] | None:
        """Hears that the session has ended whether or not the client takes what is being written."""
        return self._runner.on_cut

    @on_cut.setter
    def on_cut(self, hear: Callable[[], object] | None) -> None:
        self._runner.on_cut = hear

    async def send(self, request: ConnectRequest, size: int) -> None:
        """Takes a client event; waits while the session has no room. Safe to cancel: the event was taken."""
        self._runner.receive(request, size)
        await self._runner.room()

    async def next_batch(self) -> ConnectResponse | None:
        """Waits for events; None when the session has ended. Safe to cancel."""
        return await self._runner.next_batch()

    def sent(self, size: int, events: int) -> None:
        """Hears the size in bytes of the last batch as it went to the client."""
        self._runner.sent(size, events)

    def close(self) -> None:
        """Ends the session at once. Idempotent."""
        self._room.leave(self._runner)


class LocalCaller:
    """What one principal may do."""

    def __init__(self, room: SessionRoom, principal: str, door: str) -> None:
        """Takes where sessions come from, whose they are, and the door for metrics."""
        self._room = room
        self._principal: Final = principal
        self._door = door

    async def respond(
        self, create: ResponseCreate, context: RequestContext
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Creates a response outside of any session; see `Caller`."""
        with self._room.session(self._principal, self._door) as runner:
            async for events in one_response(runner, create, context):
                yield events

    def connect(self, opening: SessionOpen | None, door: str) -> LocalLink:
        """Opens a session; see `Caller`."""
        runner = self._room.enter(self._principal, door)
        if opening is not None:
            request = ConnectRequest(open=opening)
            runner.receive(request, request.ByteSize())
        return LocalLink(self._room, runner)

    async def count_input_tokens(self, create: ResponseCreate) -> int:
        """Counts the tokens of a create's prompt; see `Caller`."""
        return await count_input_tokens(self._room.services, self._principal, create)

    async def compact_response(self, create: ResponseCreate) -> CompactResponseResponse:
        """Compacts a conversation; see `Caller`."""
        return await compact_response(self._room.services, self._principal, create)


class LocalBackend:
    """The core in this process, as the port behind the official shapes."""

    def __init__(
        self,
        room: SessionRoom,
        keys: Keys | None = None,
        on_refused: Callable[[str], None] = lambda door: None,
        door: str = "http",
    ) -> None:
        """Takes where sessions come from, who may come in (None for everybody), and who hears of bad keys, at which
        door."""
        self._room = room
        self._keys = keys
        self._on_refused = on_refused
        self._door = door

    def caller(self, authorization: str | None) -> LocalCaller:
        """Returns what the holder of an `Authorization` header may do.

        Raises:
            RequestError: `invalid_api_key`.
        """
        if self._keys is None:
            return LocalCaller(self._room, "", self._door)
        try:
            principal = self._keys.authenticate(authorization)
        except RequestError:
            self._on_refused(self._door)
            raise
        return LocalCaller(self._room, principal, self._door)
