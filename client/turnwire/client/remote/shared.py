"""One session for everything that the holder of one key asks: opened when first needed, and again after it was lost.

Above it: `caller`. Below it: the client's connections.

A response runs in a lane of its own, so that none waits for another; names of lanes are used again, the one longest
free first, because a session knows only so many. Both credits are on: HTTP/2's flow control knows streams only, and
here all responses share one. Without credit per response, one whose reader is slow would either stop the others or fill
memory; with it the server holds that one back after `response_credit_bytes`, and samples no further.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Final

from turnwire.client._connection import Connection, Signal
from turnwire.client._dial import open_transport
from turnwire.client._fold import ResponseState
from turnwire.client._transport import ServerTransport
from turnwire.client.client import FEATURES
from turnwire.client.exceptions import SessionLost, TurnwireError
from turnwire.client.remote.failures import lost_error, open_failure, request_error
from turnwire.client.remote.options import RemoteOptions
from turnwire.client.remote.resent import Settings
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError, make_error, reject
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen

_AROUND_A_REQUEST: Final = 512
"""Bytes of the ids and lengths in the message that carries a request, and more."""


class Lanes:
    """Names of lanes, each for one response at a time."""

    def __init__(self, limit: int) -> None:
        """Takes how many there may be."""
        self._limit: Final = limit
        self._free: deque[str] = deque()
        self._made = 0

    @property
    def taken(self) -> int:
        """How many are in use."""
        return self._made - len(self._free)

    def take(self) -> str:
        """Takes a free one out.

        Raises:
            RequestError: `too_many_requests`: all are in use.
        """
        if self._free:
            return self._free.popleft()
        if self._made >= self._limit:
            message = f"{self._limit} responses are at work already, as many as there may be."
            raise RequestError(make_error("too_many_requests", message, retry_after=1.0, limit=str(self._limit)))
        self._made += 1
        return f"r{self._made}"

    def give_back(self, lane: str) -> None:
        """Takes one back. If its response is still being cancelled, the next one waits for that in its lane."""
        self._free.append(lane)


class OpenSession:
    """A session that was opened, and the one-shot methods beside it."""

    def __init__(self, connection: Connection, transport: ServerTransport, max_responses: int) -> None:
        """Takes an open connection."""
        self.connection: Final = connection
        # On the session's own channel, because what it made may be known to that worker only.
        self._stub: Final = ResponsesServiceStub(transport.channel)
        opened = connection.protocol.opened
        limits = opened.limits if opened is not None else None
        most = [max_responses]
        self.max_request_bytes = connection.options.max_message_bytes
        if limits is not None:
            most += [limit for limit in (limits.max_lanes, limits.max_in_flight) if limit]
            if limits.max_request_bytes:
                self.max_request_bytes = min(self.max_request_bytes, limits.max_request_bytes)
        self.lanes: Final = Lanes(min(most))
        self.settings: Final = Settings()
        self._calls = 0
        self._no_calls: Final = asyncio.Event()
        self._no_calls.set()

    @contextlib.contextmanager
    def calling(self) -> Generator[ResponsesServiceStub, None, None]:
        """Gives the one-shot methods for the length of the block, in which the channel stays open."""
        self._calls += 1
        self._no_calls.clear()
        try:
            yield self._stub
        finally:
            self._calls -= 1
            if not self._calls:
                self._no_calls.set()

    async def over(self) -> None:
        """Waits until the session has ended and no one-shot method runs beside it. Cancelling it is safe."""
        await self.connection.ended()
        await self._no_calls.wait()

    @property
    def usable(self) -> bool:
        """Whether it takes new requests."""
        protocol = self.connection.protocol
        return self.connection.lost is None and protocol.go_away is None and not protocol.closing


class SharedSession:
    """The session of one key. Belongs to the event loop that it is first used on."""

    def __init__(self, address: str, metadata: Sequence[tuple[str, str]], options: RemoteOptions) -> None:
        """Takes where to connect and as whom; connects when it is first needed."""
        self._address: Final = address
        self._metadata: Final = metadata
        self._options: Final = options
        self._channel_options: Final = options.session_channel()
        self._current: OpenSession | None = None
        self._opening: asyncio.Task[OpenSession] | None = None
        self._tending: Final[set[asyncio.Task[None]]] = set()
        self._sessions: Final[set[OpenSession]] = set()
        self._closed = False
        self._users = 0

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._users

    @contextlib.contextmanager
    def in_use(self) -> Generator[None, None, None]:
        """Notes that a call is under way for the length of the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    async def open(self) -> OpenSession:
        """Returns the session, opened if it is not open. Cancelling it is safe: the session is opened all the same.

        Raises:
            UnreachableError: Nobody answers there, or nobody who speaks this protocol.
            RequestError: The server refused the key, or a session.
        """
        if self._closed:
            raise reject("session_closing", "The client was closed.")
        if self._current is not None and self._current.usable:
            return self._current
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    async def respond(
        self, create: ResponseCreate, context: RequestContext
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Creates a response and yields its events in batches; see `Caller.respond`.

        Cancelling it, or closing the generator, cancels the response, without waiting for that.

        Raises:
            RequestError: The request was refused; or the session was lost, with the response.
        """
        session = await self.open()
        size = create.ByteSize() + context.ByteSize() + _AROUND_A_REQUEST
        if size > session.max_request_bytes:
            # It would end the stream, and with it everybody else's responses.
            limit = str(session.max_request_bytes)
            message = f"The request has {size} bytes; at most {limit} are taken."
            raise reject("request_too_large", message, limit=limit)
        lane = session.lanes.take()
        connection = session.connection
        try:
            light, digest = session.settings.lighter(create)
            response = await connection.create(light, lane=lane, context=context)
            session.settings.learn(response.id, digest)
            try:
                async with contextlib.aclosing(_events(connection, response)) as batches:
                    async for events in batches:
                        yield events
            finally:
                response.listener = None
                connection.abandon(response)
        except SessionLost as lost:
            raise RequestError(lost_error(lost)) from lost
        except TurnwireError as refused:
            raise request_error(refused) from refused
        finally:
            session.lanes.give_back(lane)

    async def close(self) -> None:
        """Ends the session; what runs raises `session_closing` or `session_lost`. Idempotent.

        Cancelling it leaves connections to the garbage collector.
        """
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await asyncio.gather(*(session.connection.close() for session in self._sessions))
        for tending in self._tending:
            tending.cancel()
        await asyncio.gather(*self._tending, return_exceptions=True)

    async def _open(self) -> OpenSession:
        options = self._channel_options
        transport = open_transport(self._address, self._metadata, options)
        connection = Connection(transport, options, self._address)
        settings = SessionOpen(
            features=FEATURES,
            session_credit_bytes=options.session_credit_bytes,
            response_credit_bytes=options.response_credit_bytes,
            max_event_bytes=options.max_event_bytes,
        )
        try:
            await connection.open(settings)
        except TurnwireError as failure:
            await connection.abort()
            raise open_failure(self._address, failure) from failure
        except BaseException:
            await connection.abort()
            raise
        session = self._current = OpenSession(connection, transport, self._options.max_responses)
        self._sessions.add(session)
        tending = asyncio.create_task(self._tend(session))
        self._tending.add(tending)
        tending.add_done_callback(self._tending.discard)
        return session

    def _opened(self, task: asyncio.Task[OpenSession]) -> None:
        self._opening = None
        if not task.cancelled():
            # Whoever waited has it; if nobody does any more, it is of no interest.
            task.exception()

    async def _tend(self, session: OpenSession) -> None:
        """Gives a connection back once its session has ended: one that was told to go away lasts until then."""
        try:
            await session.over()
        finally:
            self._sessions.discard(session)
            await session.connection.abort()


async def _events(connection: Connection, response: ResponseState) -> AsyncGenerator[list[ServerEvent], None]:
    """Yields the events of a response in batches, `done` last.

    Raises:
        SessionLost: The session ended before the response did.
    """
    changed = Signal()
    response.listener = changed.notify
    while True:
        events = response.take_all()
        if events:
            yield events
            # Only now has somebody taken them: what waits in a slow reader's hands holds the server back.
            if response.consumed:
                connection.return_credit(response)
        elif response.ended:
            return
        else:
            connection.check()
            await changed.wait()
