"""Sessions and lanes: the public surface over one or several streams.

Below: `_connection`, one per stream. Above: the application, the agent loop, `client.connect`.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, Unpack

from turnwire.client._body import CreateFields, build_create
from turnwire.client._connection import Connection
from turnwire.client._rpc import OneShotStream, Rpc
from turnwire.client.exceptions import TurnwireError
from turnwire.client.stream import ResponseStream
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.response_pb2 import Response
from turnwire.v1.responses_service_pb2 import GetCapabilitiesResponse, ListInputItemsResponse, Model
from turnwire.v1.session_pb2 import SessionGoAway, SessionOpened


class Session:
    """A session with a server: any number of responses, one after the other in a lane, at the same time across lanes.

    Over several streams each lane lives on one of them, found by its name; a fork lives where its parent does. When a
    stream is lost, so are its lanes, and no others.
    """

    def __init__(self, connections: Sequence[Connection], rpc: Rpc | None) -> None:
        """Made by `connect`."""
        self._connections: Final = tuple(connections)
        self._rpc: Final = rpc
        self._pins: dict[str, Connection] = {}

    @property
    def opened(self) -> SessionOpened:
        """What the server said when the session was opened: id, features, limits. Of the first stream."""
        opened = self._connections[0].protocol.opened
        return opened if opened is not None else SessionOpened()

    @property
    def id(self) -> str:
        """The server's id of the session, of its first stream."""
        return self.opened.session_id

    @property
    def go_away(self) -> SessionGoAway | None:
        """The server's wish that this client moves to another connection, where one stream has it."""
        for connection in self._connections:
            if connection.protocol.go_away is not None:
                return connection.protocol.go_away
        return None

    @property
    def lost(self) -> bool:
        """Whether every stream has ended."""
        return all(connection.lost is not None for connection in self._connections)

    async def create(
        self,
        *,
        lane: str = "",
        request_id: str = "",
        context: RequestContext | None = None,
        connection: Connection | None = None,
        **fields: Unpack[CreateFields],
    ) -> ResponseStream:
        """Creates a response and returns its stream once the server has begun with it.

        In a lane that is busy that may take as long as what runs there. Cancelling this call is safe: the request is
        withdrawn, and its response cancelled if it exists already.

        Args:
            lane: Where it runs: empty is the default lane, else 1 to 256 characters of `[A-Za-z0-9_.-]`.
            request_id: Names the request, so that sending it again is harmless. Empty lets the library choose.
            context: Trace context, end user and labels of this one request.
            connection: For the library itself: the stream to use.
            **fields: The body; see `ResponseCreate`.

        Raises:
            TypeError: There is no such field, or its value is of another type. Nothing was sent.
            ValueError: A field does not take its value, or `request_id` is still in use. Nothing was sent.
            RequestRejectedError: The server refused it.
            SessionLost: The session has ended.
        """
        body = build_create(fields)
        if connection is None:
            connection = self._route(lane, body.previous_response_id)
        if len(self._connections) > 1:
            self._pins[lane] = connection
        state = await connection.create(body, lane=lane, context=context, request_id=request_id)
        return ResponseStream(state, connection, self)

    def lane(self, name: str) -> Lane:
        """Returns a lane: creates there continue each other."""
        return Lane(self, name)

    def last_response_id(self, lane: str = "") -> str | None:
        """Returns what the next create of a lane would continue: the response at work there, else the last one that
        can be continued.
        """
        return self._route(lane, "").protocol.lanes.last_response_id(lane)

    async def ping(self) -> float:
        """Asks every stream for a sign of life and returns the seconds the slowest took. Cancelling it is safe.

        Raises:
            SessionLost: A stream has ended.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        pings = [(connection, connection.protocol.ping()) for connection in self._connections]
        for connection, _ in pings:
            connection.wake()
        for connection, ping in pings:
            await connection.settled(ping)
        return loop.time() - begun

    async def close(self, *, drain: bool = False) -> None:
        """Ends the session; repeated calls do nothing. Cancelling it ends the session by force.

        Args:
            drain: Whether running responses may finish first; somebody has to read them meanwhile.
        """
        await asyncio.gather(*(connection.close(drain=drain) for connection in self._connections))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # One-shot methods.

    async def create_response(
        self, *, context: RequestContext | None = None, **fields: Unpack[CreateFields]
    ) -> Response:
        """Creates one response outside the session's streams; see `Rpc.create_response`. Cancelling it is safe."""
        return await self.rpc.create_response(context=context, **fields)

    def stream_response(
        self, *, context: RequestContext | None = None, **fields: Unpack[CreateFields]
    ) -> OneShotStream:
        """Creates one response on a stream of its own; see `Rpc.stream_response`."""
        return self.rpc.stream_response(context=context, **fields)

    async def get_response(self, response_id: str, *, connection: Connection | None = None) -> Response:
        """Returns a response, of this session or stored. Cancelling it is safe."""
        if connection is None:
            connection = self._owner(response_id) or self._connections[0]
        opened = connection.protocol.opened
        return await self.rpc.get_response(response_id, session_id=opened.session_id if opened else "")

    async def delete_response(self, response_id: str) -> None:
        """Deletes a stored response. Cancelling it is safe."""
        await self.rpc.delete_response(response_id)

    async def list_input_items(
        self, response_id: str, *, limit: int | None = None, ascending: bool = False, after: str = ""
    ) -> ListInputItemsResponse:
        """Returns a page of the input items of a response. Cancelling it is safe."""
        return await self.rpc.list_input_items(response_id, limit=limit, ascending=ascending, after=after)

    async def count_input_tokens(self, **fields: Unpack[CreateFields]) -> int:
        """Returns how many input tokens a create with these fields would have. Cancelling it is safe."""
        return await self.rpc.count_input_tokens(**fields)

    async def list_models(self) -> list[Model]:
        """Lists the models that can be named in `model`. Cancelling it is safe."""
        return await self.rpc.list_models()

    async def get_capabilities(self) -> GetCapabilitiesResponse:
        """Tells what the server can do, and its limits. Cancelling it is safe."""
        return await self.rpc.get_capabilities()

    @property
    def rpc(self) -> Rpc:
        """All one-shot methods.

        Raises:
            TurnwireError: The session's transport has none.
        """
        if self._rpc is None:
            msg = "this session's transport has no one-shot methods; connect to a server by its address"
            raise TurnwireError(msg)
        return self._rpc

    def _route(self, lane: str, previous_response_id: str) -> Connection:
        connections = self._connections
        if len(connections) == 1:
            return connections[0]
        owner = self._owner(previous_response_id) if previous_response_id else None
        if owner is not None:
            return owner
        if lane in self._pins:
            return self._pins[lane]
        return connections[zlib.crc32(lane.encode()) % len(connections) if lane else 0]

    def _owner(self, response_id: str) -> Connection | None:
        for connection in self._connections:
            if connection.protocol.lanes.owns(response_id):
                return connection
        return None


class Lane:
    """A lane of a session, whose creates continue each other."""

    def __init__(self, session: Session, name: str) -> None:
        """Made by `Session.lane`."""
        self._session: Final = session
        self.name: Final = name
        """Its name; empty is the default lane."""

    @property
    def last_response_id(self) -> str | None:
        """What the next create continues: the response at work here, else the last one that can be continued."""
        return self._session.last_response_id(self.name)

    async def create(
        self, *, request_id: str = "", context: RequestContext | None = None, **fields: Unpack[CreateFields]
    ) -> ResponseStream:
        """Creates a response that continues the last one of this lane; see `Session.create`. Cancelling it is safe.

        Give `previous_response_id` to continue another one, or None to start anew. Raises what `Session.create` does.
        """
        fields.setdefault("previous_response_id", self.last_response_id)
        return await self._session.create(lane=self.name, request_id=request_id, context=context, **fields)
