"""The one-shot methods, over a channel.

Below: grpc and the stubs. Above: `Session` and `Client`, which hand these out under the same names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Final, TypeAlias, TypeVar, Unpack

from grpc import aio

from turnwire.client._body import CreateFields, build_create
from turnwire.client._fold import DELTA_KINDS, ResponseState
from turnwire.client._status import from_status
from turnwire.client.events import Event
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import (
    CancelResponseRequest,
    CompactResponseRequest,
    CountInputTokensRequest,
    CreateResponseRequest,
    DeleteResponseRequest,
    FollowResponseRequest,
    FollowResponseResponse,
    GetCapabilitiesRequest,
    GetCapabilitiesResponse,
    GetResponseRequest,
    ListInputItemsRequest,
    ListInputItemsResponse,
    ListModelsRequest,
    Model,
    StreamResponseRequest,
    StreamResponseResponse,
)
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub

T = TypeVar("T")
_Batches: TypeAlias = (
    aio.UnaryStreamCall[StreamResponseRequest, StreamResponseResponse]
    | aio.UnaryStreamCall[FollowResponseRequest, FollowResponseResponse]
)
"""A call that brings the events of one response."""


class Rpc:
    """The one-shot methods of the service.

    All raise `RequestRejectedError` with the error of the table, `AuthenticationError`, or `RpcFailedError` where the
    status carries neither; and those with a body TypeError and ValueError for what a field does not take. Cancelling
    one cancels the call on the server too.
    """

    def __init__(self, channel: aio.Channel, metadata: Sequence[tuple[str, str]]) -> None:
        """Takes the channel and the metadata of every call."""
        self._stub: Final = ResponsesServiceStub(channel)
        self._metadata: Final = metadata

    async def create_response(
        self, *, context: RequestContext | None = None, **fields: Unpack[CreateFields]
    ) -> Response:
        """Creates one response and returns it when it has ended. Cancelling it is safe, and cancels the response.

        With `background` it is returned as soon as it exists, and runs apart from this call; see `get_response`,
        `follow_response` and `cancel_response`.
        """
        request = CreateResponseRequest(create=build_create(fields), context=context)
        return (await _call(self._stub.CreateResponse(request, metadata=self._metadata))).response

    def stream_response(
        self, *, context: RequestContext | None = None, **fields: Unpack[CreateFields]
    ) -> OneShotStream:
        """Creates one response and iterates over its events.

        With `background`, who leaves the stream leaves the response running; its events come at full verbosity.
        """
        request = StreamResponseRequest(create=build_create(fields), context=context)
        return OneShotStream(self._stub.StreamResponse(request, metadata=self._metadata), request.create)

    def follow_response(self, response_id: str, *, starting_after: int | None = None) -> OneShotStream:
        """Iterates over the events of a background response, to its end; leaving it leaves the response running.

        Args:
            response_id: The response.
            starting_after: The sequence number of the last event that is known. None begins with the first. What the
                others cannot be understood without comes again: `created`, and what announced the item that is open.
        """
        request = FollowResponseRequest(response_id=response_id, starting_after=starting_after)
        return OneShotStream(self._stub.FollowResponse(request, metadata=self._metadata))

    async def get_response(self, response_id: str, *, session_id: str = "") -> Response:
        """Returns a response, as far as it has come; one that is not stored needs the id of its session. Cancelling it
        is safe."""
        request = GetResponseRequest(response_id=response_id, session_id=session_id)
        return (await _call(self._stub.GetResponse(request, metadata=self._metadata))).response

    async def delete_response(self, response_id: str) -> None:
        """Deletes a stored response. Cancelling it is safe, but it may be deleted all the same."""
        await _call(self._stub.DeleteResponse(DeleteResponseRequest(response_id=response_id), metadata=self._metadata))

    async def cancel_response(self, response_id: str) -> Response:
        """Cancels a background response. Cancelling it is safe, but the response may be cancelled all the same."""
        request = CancelResponseRequest(response_id=response_id)
        return (await _call(self._stub.CancelResponse(request, metadata=self._metadata))).response

    async def list_input_items(
        self, response_id: str, *, limit: int | None = None, ascending: bool = False, after: str = ""
    ) -> ListInputItemsResponse:
        """Returns a page of the input items of a response, newest first unless `ascending`. Cancelling it is safe."""
        request = ListInputItemsRequest(response_id=response_id, limit=limit, ascending=ascending, after=after)
        return await _call(self._stub.ListInputItems(request, metadata=self._metadata))

    async def count_input_tokens(self, **fields: Unpack[CreateFields]) -> int:
        """Returns how many input tokens a create with these fields would have. Cancelling it is safe."""
        request = CountInputTokensRequest(create=build_create(fields))
        return (await _call(self._stub.CountInputTokens(request, metadata=self._metadata))).input_tokens

    async def compact_response(self, **fields: Unpack[CreateFields]) -> list[Item]:
        """Compacts a conversation into a shorter window. Cancelling it is safe."""
        request = CompactResponseRequest(create=build_create(fields))
        return list((await _call(self._stub.CompactResponse(request, metadata=self._metadata))).output)

    async def list_models(self) -> list[Model]:
        """Lists the models that can be named in `model`. Cancelling it is safe."""
        return list((await _call(self._stub.ListModels(ListModelsRequest(), metadata=self._metadata))).models)

    async def get_capabilities(self) -> GetCapabilitiesResponse:
        """Tells what the server can do, and its limits. Cancelling it is safe."""
        return await _call(self._stub.GetCapabilities(GetCapabilitiesRequest(), metadata=self._metadata))


class OneShotStream:
    """The events of one response on a stream of its own; see `Rpc.stream_response` and `Rpc.follow_response`."""

    def __init__(self, call: _Batches, create: ResponseCreate | None = None) -> None:
        """Made by `Rpc`, from the call that brings the events, and the request where this client sent it."""
        self._call = call
        self._create = create
        self._state: ResponseState | None = None
        self._events: Final = self._read()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def get_final_response(self) -> Response:
        """Reads to the end and returns the whole response, failed ones too. Cancelling it cancels the response, unless
        that runs in the background."""
        async for _ in self._events:
            pass
        return self._state.snapshot() if self._state is not None else Response()

    def cancel(self) -> None:
        """Ends the stream, which cancels the response unless it runs in the background."""
        self._call.cancel()

    async def _read(self) -> AsyncIterator[Event]:
        try:
            async for batch in self._call:
                for proto in batch.events:
                    kind = proto.WhichOneof("event")
                    if kind is None:
                        continue
                    if self._state is None:
                        self._state = ResponseState(proto.created, proto.response, self._create)
                    if kind in DELTA_KINDS:
                        self._state.fold_delta(proto, kind)
                    else:
                        self._state.fold(proto, kind)
                    arrived = self._state.take()
                    if arrived is not None:
                        yield Event(*arrived)
                if self._state is not None:
                    self._state.end_batch()
        except aio.AioRpcError as error:
            raise from_status(error) from error


async def _call(call: Awaitable[T]) -> T:
    try:
        return await call
    except aio.AioRpcError as error:
        raise from_status(error) from error
