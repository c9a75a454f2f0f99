"""What the holder of one key may do at a server elsewhere.

Above it: `RemoteBackend`. Below it: the shared session for responses, the one-shot methods for the rest, and links,
which are sessions of their own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias, TypeVar

from grpc import aio

from turnwire.client.exceptions import TurnwireError
from turnwire.client.remote.failures import request_error
from turnwire.client.remote.link import RemoteLink
from turnwire.client.remote.shared import SharedSession
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import reject
from turnwire.v1.response_pb2 import Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import (
    CancelResponseRequest,
    CompactResponseRequest,
    CompactResponseResponse,
    CountInputTokensRequest,
    DeleteResponseRequest,
    FollowResponseRequest,
    GetCapabilitiesRequest,
    GetCapabilitiesResponse,
    GetResponseRequest,
    ListInputItemsRequest,
    ListInputItemsResponse,
    ListModelsRequest,
    Model,
    StreamResponseRequest,
)
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen

T = TypeVar("T")
_Batches: TypeAlias = AsyncGenerator[Sequence[ServerEvent], None]


class RemoteCaller:
    """The port's `Caller` over a server elsewhere."""

    def __init__(
        self,
        shared: SharedSession,
        metadata: Sequence[tuple[str, str]],
        link: Callable[[SessionOpen | None, Sequence[tuple[str, str]]], RemoteLink],
    ) -> None:
        """Made by `RemoteBackend.caller`."""
        self._shared: Final = shared
        self._metadata: Final = metadata
        self._link: Final = link

    async def open(self) -> None:
        """Opens the shared session if it is not open, for whoever wants to know beforehand whether that is possible.

        Cancelling it is safe.

        Raises:
            UnreachableError: Nobody answers there, or nobody who speaks this protocol.
            RequestError: The server refused the key, or a session.
        """
        with self._shared.in_use():
            await self._shared.open()

    async def respond(
        self, create: ResponseCreate, context: RequestContext
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Creates a response on the shared session and yields its events in batches; see `Caller.respond`.

        What it continues is found there whether or not it was stored. One with `background` goes on a stream of its
        own. Cancelling it, or closing the generator, cancels the response unless it has `background`.
        """
        if create.hold:
            raise reject("unsupported_parameter", "'hold' needs a session: use Connect.", param="hold")
        with self._shared.in_use():
            batches: _Batches
            if create.background:
                request = StreamResponseRequest(create=create, context=context)
                batches = self._stream(lambda stub: stub.StreamResponse(request, metadata=self._metadata))
            else:
                batches = self._shared.respond(create, context)
            async with aclosing(batches):
                async for events in batches:
                    yield events

    def connect(self, opening: SessionOpen | None, door: str) -> RemoteLink:
        """Opens a session on a connection of its own. Whether that succeeded is heard from the link.

        Raises:
            RequestError: `too_many_connections`: this backend has as many as it may have.
        """
        return self._link(opening, self._metadata)

    async def get_response(self, response_id: str, session_id: str = "") -> Response:
        """Finds a response; see `Caller`. Cancelling it is safe."""
        request = GetResponseRequest(response_id=response_id, session_id=session_id)
        answer = await self._call(lambda stub: stub.GetResponse(request, metadata=self._metadata))
        return answer.response

    async def follow_response(
        self, response_id: str, starting_after: int | None
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Yields the events of a background response; see `Caller`. Cancelling it ends the following only."""
        request = FollowResponseRequest(response_id=response_id, starting_after=starting_after)
        with self._shared.in_use():
            batches = self._stream(lambda stub: stub.FollowResponse(request, metadata=self._metadata))
            async with aclosing(batches):
                async for events in batches:
                    yield events

    async def delete_response(self, response_id: str) -> None:
        """Deletes a stored response; see `Caller`. Cancelling it may come too late."""
        request = DeleteResponseRequest(response_id=response_id)
        await self._call(lambda stub: stub.DeleteResponse(request, metadata=self._metadata))

    async def cancel_response(self, response_id: str) -> Response:
        """Cancels a background response; see `Caller`. Cancelling this call may come too late."""
        request = CancelResponseRequest(response_id=response_id)
        answer = await self._call(lambda stub: stub.CancelResponse(request, metadata=self._metadata))
        return answer.response

    async def list_input_items(self, request: ListInputItemsRequest) -> ListInputItemsResponse:
        """Lists a page of input items; see `Caller`. Cancelling it is safe."""
        return await self._call(lambda stub: stub.ListInputItems(request, metadata=self._metadata))

    async def count_input_tokens(self, create: ResponseCreate) -> int:
        """Counts input tokens; see `Caller`. Cancelling it is safe."""
        request = CountInputTokensRequest(create=create)
        answer = await self._call(lambda stub: stub.CountInputTokens(request, metadata=self._metadata))
        return answer.input_tokens

    async def compact_response(self, create: ResponseCreate) -> CompactResponseResponse:
        """Compacts a conversation; see `Caller`. Cancelling it is safe."""
        request = CompactResponseRequest(create=create)
        return await self._call(lambda stub: stub.CompactResponse(request, metadata=self._metadata))

    async def list_models(self) -> Sequence[Model]:
        """Lists the models. Cancelling it is safe."""
        answer = await self._call(lambda stub: stub.ListModels(ListModelsRequest(), metadata=self._metadata))
        return answer.models

    async def get_capabilities(self) -> GetCapabilitiesResponse:
        """Tells what the server can do. Cancelling it is safe."""
        return await self._call(lambda stub: stub.GetCapabilities(GetCapabilitiesRequest(), metadata=self._metadata))

    async def _call(self, method: Callable[[ResponsesServiceStub], Awaitable[T]]) -> T:
        with self._shared.in_use():
            session = await self._shared.open()
            with session.calling() as stub:
                try:
                    return await method(stub)
                except (aio.AioRpcError, TurnwireError) as failure:
                    raise request_error(failure) from failure

    async def _stream(
        self, method: Callable[[ResponsesServiceStub], Any]
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        session = await self._shared.open()
        with session.calling() as stub:
            call: Any = None
            try:
                call = method(stub)
                async for batch in call:
                    yield list(batch.events)
            except (aio.AioRpcError, TurnwireError) as failure:
                raise request_error(failure) from failure
            finally:
                if call is not None:
                    call.cancel()
