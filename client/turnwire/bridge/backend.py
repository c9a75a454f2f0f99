"""The port behind the doors, over whichever way to the server is taken.

Above it: the server's JSON doors. Below it: `routes`. Everything is passed on; what is decided here is the key that is
shown, and how WebSocket clients are asked to leave when the bridge is about to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

from turnwire.bridge.routes import Routes
from turnwire.client.remote.link import RemoteLink
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import make_error
from turnwire.v1.response_pb2 import Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import (
    CompactResponseResponse,
    ConnectResponse,
    GetCapabilitiesResponse,
    ListInputItemsRequest,
    ListInputItemsResponse,
    Model,
)
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionClose, SessionOpen


class BridgeLink:
    """A session of a WebSocket client's at the server, which can be asked to end."""

    def __init__(self, link: RemoteLink, on_closed: Callable[[BridgeLink], None]) -> None:
        """Takes the session, and who hears when it was closed."""
        self._link: Final = link
        self._on_closed: Final = on_closed
        self._leaving = False

    @property
    def on_cut(self) -> Callable[[], object] | None:
        """Hears that the session was lost while a batch waits that nobody takes."""
        return self._link.on_cut

    @on_cut.setter
    def on_cut(self, hear: Callable[[], object] | None) -> None:
        self._link.on_cut = hear

    @property
    def close_error(self) -> Error | None:
        """Why the session has ended; None where it ended in order."""
        error = self._link.close_error
        if error is None and self._leaving:
            # Of all ways to end in order, the one after which clients connect again.
            return make_error("server_shutting_down", "The bridge is shutting down. Connect again.", retry_after=1.0)
        return error

    async def leave(self) -> None:
        """Asks the server to end the session when what runs on it has ended. When cancelled, it may not be asked."""
        self._leaving = True
        request = ConnectRequest(close=SessionClose(drain=True))
        await self._link.send(request, request.ByteSize())

    async def send(self, request: ConnectRequest, size: int) -> None:
        """Takes a client event; waits while the connection has no room. Cancelling it may lose the event."""
        await self._link.send(request, size)

    async def next_batch(self) -> ConnectResponse | None:
        """Waits for events; None when the session has ended. Cancelling it is safe: nothing is lost."""
        return await self._link.next_batch()

    def sent(self, size: int, events: int) -> None:
        """Hears the size of the last batch as it went on."""
        self._link.sent(size, events)

    def close(self) -> None:
        """Ends the session at once. Idempotent."""
        self._link.close()
        self._on_closed(self)


class BridgeCaller:
    """The port's `Caller`: what the holder of one key may do, as the server behind says."""

    def __init__(self, routes: Routes, authorization: str | None, links: set[BridgeLink]) -> None:
        """Made by `BridgeBackend.caller`."""
        self._routes: Final = routes
        self._authorization: Final = authorization
        self._links: Final = links

    async def respond(
        self, create: ResponseCreate, context: RequestContext
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Creates a response and yields its events in batches; see `Caller`. Cancelling it cancels the response."""
        caller = await self._routes.open(self._authorization)
        async with aclosing(caller.respond(create, context)) as batches:
            async for events in batches:
                yield events

    def connect(self, opening: SessionOpen | None, door: str) -> BridgeLink:
        """Opens a session, on the way that is taken at the moment: `Routes.open` finds it out beforehand."""
        caller = self._routes.current.caller(self._authorization)
        link = BridgeLink(caller.connect(opening, door), self._links.discard)
        self._links.add(link)
        return link

    async def get_response(self, response_id: str, session_id: str = "") -> Response:
        """Finds a response; see `Caller`. Cancelling it is safe."""
        return await (await self._routes.open(self._authorization)).get_response(response_id, session_id)

    async def follow_response(
        self, response_id: str, starting_after: int | None
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Yields the events of a background response; see `Caller`. Cancelling it ends the following only."""
        caller = await self._routes.open(self._authorization)
        async with aclosing(caller.follow_response(response_id, starting_after)) as batches:
            async for events in batches:
                yield events

    async def delete_response(self, response_id: str) -> None:
        """Deletes a stored response; see `Caller`. Cancelling it may come too late."""
        await (await self._routes.open(self._authorization)).delete_response(response_id)

    async def cancel_response(self, response_id: str) -> Response:
        """Cancels a background response; see `Caller`. Cancelling this call may come too late."""
        return await (await self._routes.open(self._authorization)).cancel_response(response_id)

    async def list_input_items(self, request: ListInputItemsRequest) -> ListInputItemsResponse:
        """Lists a page of input items; see `Caller`. Cancelling it is safe."""
        return await (await self._routes.open(self._authorization)).list_input_items(request)

    async def count_input_tokens(self, create: ResponseCreate) -> int:
        """Counts input tokens; see `Caller`. Cancelling it is safe."""
        return await (await self._routes.open(self._authorization)).count_input_tokens(create)

    async def compact_response(self, create: ResponseCreate) -> CompactResponseResponse:
        """Compacts a conversation; see `Caller`. Cancelling it is safe."""
        return await (await self._routes.open(self._authorization)).compact_response(create)

    async def list_models(self) -> Sequence[Model]:
        """Lists the models. Cancelling it is safe."""
        return await (await self._routes.open(self._authorization)).list_models()

    async def get_capabilities(self) -> GetCapabilitiesResponse:
        """Tells what the server behind can do. Cancelling it is safe."""
        return await (await self._routes.open(self._authorization)).get_capabilities()


class BridgeBackend:
    """The server behind the bridge."""

    def __init__(self, routes: Routes, authorization: str | None = None) -> None:
        """Takes the ways there, and the `Authorization` that is shown for everybody; None shows each client's own."""
        self._routes: Final = routes
        self._authorization: Final = authorization
        self._links: Final[set[BridgeLink]] = set()

    def caller(self, authorization: str | None) -> BridgeCaller:
        """Returns what the holder of an `Authorization` header may do. Whether the key is good, the server says."""
        return BridgeCaller(self._routes, self.shown_for(authorization), self._links)

    def shown_for(self, authorization: str | None) -> str | None:
        """Returns the `Authorization` that the server sees of a client that shows this one."""
        return self._authorization if self._authorization is not None else authorization

    async def leave(self) -> None:
        """Asks for the end of all WebSocket clients' sessions. Cancelling it leaves some of them unasked."""
        await asyncio.gather(*(link.leave() for link in self._links))
