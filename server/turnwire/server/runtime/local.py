"""The port behind the official shapes, over the core in this process.

Above it: the JSON doors. Below it: the sessions of the server, its store and its engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from turnwire.server.runtime.background import no_longer_streamed, not_found
from turnwire.server.runtime.compacting import compact_response
from turnwire.server.runtime.input_items import list_page
from turnwire.server.runtime.models import told
from turnwire.server.runtime.one_shot import one_response
from turnwire.server.runtime.probing import count_input_tokens
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import FEATURES
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.runtime.threads import THREAD_BYTES
from turnwire.server.session.settings import stores
from turnwire.server.session.state import State
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import Response, ResponseCreate, ResponseStatus
from turnwire.v1.responses_service_pb2 import (
    CompactResponseResponse,
    ConnectResponse,
    GetCapabilitiesResponse,
    ListInputItemsRequest,
    ListInputItemsResponse,
    Model,
)
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
        self._services = room.services
        self._principal: Final = principal
        self._door = door

    async def respond(
        self, create: ResponseCreate, context: RequestContext
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Creates a response outside of any session; see `Caller`. One in the background comes at full verbosity."""
        if create.background:
            run = await self._room.background.start(self._principal, create, context)
            async with aclosing(run.follow(None)) as batches:
                async for events in batches:
                    yield events
            return
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

    async def get_response(self, response_id: str, session_id: str = "") -> Response:
        """Finds a response; see `Caller`. With the id of a session of the caller's, one that lives there only too."""
        run = self._room.background.find(self._principal, response_id)
        if run is not None and run.broken is not None:
            return run.broken
        return (await self._state(response_id, session_id)).response()

    async def follow_response(
        self, response_id: str, starting_after: int | None
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Yields the events of a background response; see `Caller`.

        After a sequence number, `created` comes again, and so does what announced the item that is open there, with
        their old numbers, since the rest cannot be understood without them; and so does a `done` that lies before.
        """
        if starting_after is not None and starting_after < 0:
            message = f"Invalid value for 'starting_after': {starting_after} is less than 0."
            raise reject("invalid_value", message, param="starting_after", value=str(starting_after))
        run = self._room.background.find(self._principal, response_id)
        if run is None:
            state = await self._state(response_id)
            if state.parsed_settings().background:
                raise no_longer_streamed(response_id)
            message = f"Response '{response_id}' cannot be streamed: it was not created with 'background'."
            raise reject("invalid_request_error", message, response_id=response_id)
        async with aclosing(run.follow(starting_after)) as batches:
            async for events in batches:
                yield events

    async def delete_response(self, response_id: str) -> None:
        """Deletes a stored response, and ends it if it is at work in the background; see `Caller`.

        One that is held open by a session goes on there, and is not stored again.
        """
        background = self._room.background
        run = background.find(self._principal, response_id)
        if run is not None:
            run.deleted = True
            await run.stop()
            background.forget(run)
        state = await self._services.store.get(self._principal, response_id)
        if not await self._services.store.delete(self._principal, response_id) and run is None:
            raise not_found(response_id)
        if state is not None and state.status == ResponseStatus.RESPONSE_STATUS_IN_PROGRESS:
            for session in self._services.sessions.values():
                if session.principal == self._principal:
                    session.deleted(response_id)
        if self._services.conversations is not None:
            self._services.conversations.forget(response_id)

    async def cancel_response(self, response_id: str) -> Response:
        """Cancels a background response; see `Caller`."""
        run = self._room.background.find(self._principal, response_id)
        if run is not None:
            await run.stop()
            return await self.get_response(response_id)
        state = await self._state(response_id)
        if not state.parsed_settings().background:
            message = (
                f"Response '{response_id}' cannot be cancelled: it was not created with 'background'. Who waits for it"
                " ends it by going away."
            )
            raise reject("invalid_request_error", message, response_id=response_id)
        return state.response()

    async def list_input_items(self, request: ListInputItemsRequest) -> ListInputItemsResponse:
        """Lists a page of what a response's own request brought; see `Caller`."""
        state = await self._state(request.response_id)
        if state.resent.bytes + sum(len(entry.data) for entry in state.input) > THREAD_BYTES:
            return await asyncio.to_thread(lambda: list_page(state.id, state.input_items(), request))
        return list_page(state.id, state.input_items(), request)

    async def list_models(self) -> Sequence[Model]:
        """Lists the models; see `Caller`."""
        services = self._services
        return [told(info, engine.name, services.started) for info, engine in services.engines.models()]

    async def get_capabilities(self) -> GetCapabilitiesResponse:
        """Tells what the server can do; see `Caller`."""
        services = self._services
        return GetCapabilitiesResponse(server=services.server, features=FEATURES, limits=services.limits.to_proto())

    async def _state(self, response_id: str, session_id: str = "") -> State:
        """Finds a response that is stored, at work in the background, or of a session.

        Raises:
            RequestError: `response_not_found`.
        """
        if not response_id:
            message = "Missing required parameter: 'response_id'."
            raise reject("missing_required_parameter", message, param="response_id")
        run = self._room.background.find(self._principal, response_id)
        state = None if run is None else run.state()
        if state is None and session_id:
            session = self._services.sessions.get(session_id)
            if session is not None and session.principal == self._principal:
                state = session.snapshot(response_id) or _kept_here(session.find(response_id))
        if state is None:
            state = await self._services.store.get(self._principal, response_id)
        if state is None:
            raise not_found(response_id)
        return state


def _kept_here(state: State | None) -> State | None:
    """Returns a finished response of a session's, unless it is the store's: what was deleted there is not found."""
    return None if state is None or stores(state.parsed_settings()) else state


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
