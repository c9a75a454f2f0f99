"""The service: authenticates, and hands every RPC to the runtime."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from turnwire.server.doors.grpc.connect import BytesContext, serve_stream, write_until_over
from turnwire.server.doors.grpc.oneshot import create_response, write_events, write_response
from turnwire.server.doors.grpc.status import abort
from turnwire.server.runtime.local import Keys, LocalCaller
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.errors import RequestError, make_error, reject

SERVICE: Final = "turnwire.v1.ResponsesService"
_ONE_SHOT: Final = "grpc-oneshot"
"""What metrics call the methods beside Connect."""
_BATCH_WINDOW: Final = 0.002
"""Seconds between batches of tokens where nobody says: a message costs either side of gRPC what 50 events in it do."""

_log: Final = logging.getLogger(__name__)
_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer")


class ResponsesServicer:
    """Serves `turnwire.v1.ResponsesService`."""

    def __init__(self, room: SessionRoom, keys: Keys | None, on_refused: Callable[[str], None]) -> None:
        """Takes where sessions come from, who may come in (None for everybody), and who hears of bad keys."""
        self._on_refused = on_refused
        self._room = room
        self._services = room.services
        self._keys = keys

    def handler(self) -> Any:
        """Returns the handlers of all methods. Bytes in and out: see BytesContext."""
        methods: dict[str, Any] = {
            "Connect": grpc.stream_stream_rpc_method_handler(self.connect),
            "StreamResponse": grpc.unary_stream_rpc_method_handler(self.stream_response),
            "FollowResponse": grpc.unary_stream_rpc_method_handler(self.follow_response),
            "CreateResponse": self._unary(pb.CreateResponseRequest, self.create_response),
            "GetResponse": self._unary(pb.GetResponseRequest, self.get_response),
            "DeleteResponse": self._unary(pb.DeleteResponseRequest, self.delete_response),
            "CountInputTokens": self._unary(pb.CountInputTokensRequest, self.count_input_tokens),
            "CompactResponse": self._unary(pb.CompactResponseRequest, self.compact_response),
            "CancelResponse": self._unary(pb.CancelResponseRequest, self.cancel_response),
            "ListInputItems": self._unary(pb.ListInputItemsRequest, self.list_input_items),
            "ListModels": self._unary(pb.ListModelsRequest, self.list_models),
            "GetCapabilities": self._unary(pb.GetCapabilitiesRequest, self.get_capabilities),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _unary(self, kind: type[_Request], body: Callable[[LocalCaller, _Request], Awaitable[Message]]) -> Any:
        async def serve(data: bytes, context: BytesContext) -> bytes:
            async def answer(principal: str) -> bytes:
                return (await body(self._caller(principal), _decoded(kind, data))).SerializeToString()

            return await self._answer(context, answer) or b""

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(serve)

    async def _answer(self, context: BytesContext, answer: Callable[[str], Awaitable[_Answer]]) -> _Answer | None:
        """Lets a caller with a good key have its answer, and turns every refusal into a status."""
        try:
            return await answer(self._principal(context))
        except Exception as failure:
            await _end(context, failure)
        return None

    def _caller(self, principal: str) -> LocalCaller:
        return LocalCaller(self._room, principal, _ONE_SHOT)

    def _principal(self, context: BytesContext) -> str:
        if self._keys is None:
            return ""
        header: str | None = None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str):
                header = value
        try:
            return self._keys.authenticate(header)
        except RequestError:
            self._on_refused("grpc")
            raise

    async def connect(self, requests: object, context: BytesContext) -> None:
        """Serves a session."""
        # Neither by the context manager nor by `_answer`: either would be half a kilobyte of each idle session.
        try:
            runner = self._room.enter(self._principal(context), "grpc", batch_window=_BATCH_WINDOW)
            try:
                await serve_stream(runner, context)
            finally:
                self._room.leave(runner)
        except Exception as failure:
            await _end(context, failure)

    async def stream_response(self, data: bytes, context: BytesContext) -> None:
        """Serves one response as a stream."""

        async def answer(principal: str) -> None:
            request = _decoded(pb.StreamResponseRequest, data)
            if request.create.background:
                batches = self._caller(principal).respond(request.create, request.context)
                await write_events(batches, context, self._services)
                return
            with self._room.session(principal, _ONE_SHOT, batch_window=_BATCH_WINDOW) as runner:
                writing = write_response(runner, request.create, request.context, context)
                await write_until_over(runner, context, writing)

        await self._answer(context, answer)

    async def follow_response(self, data: bytes, context: BytesContext) -> None:
        """Serves the events of a background response."""

        async def answer(principal: str) -> None:
            request = _decoded(pb.FollowResponseRequest, data)
            after = request.starting_after if request.HasField("starting_after") else None
            batches = self._caller(principal).follow_response(request.response_id, after)
            await write_events(batches, context, self._services)

        await self._answer(context, answer)

    async def create_response(
        self, caller: LocalCaller, request: pb.CreateResponseRequest
    ) -> pb.CreateResponseResponse:
        """Serves one response whole, or the beginning of one in the background."""
        return pb.CreateResponseResponse(response=await create_response(caller, request.create, request.context))

    async def get_response(self, caller: LocalCaller, request: pb.GetResponseRequest) -> pb.GetResponseResponse:
        """Finds a response, of a live session of the caller's too."""
        return pb.GetResponseResponse(response=await caller.get_response(request.response_id, request.session_id))

    async def delete_response(
        self, caller: LocalCaller, request: pb.DeleteResponseRequest
    ) -> pb.DeleteResponseResponse:
        """Forgets a stored response."""
        await caller.delete_response(request.response_id)
        return pb.DeleteResponseResponse()

    async def cancel_response(
        self, caller: LocalCaller, request: pb.CancelResponseRequest
    ) -> pb.CancelResponseResponse:
        """Cancels a background response."""
        return pb.CancelResponseResponse(response=await caller.cancel_response(request.response_id))

    async def list_input_items(
        self, caller: LocalCaller, request: pb.ListInputItemsRequest
    ) -> pb.ListInputItemsResponse:
        """Lists a page of input items."""
        return await caller.list_input_items(request)

    async def count_input_tokens(
        self, caller: LocalCaller, request: pb.CountInputTokensRequest
    ) -> pb.CountInputTokensResponse:
        """Counts the tokens of a create."""
        return pb.CountInputTokensResponse(input_tokens=await caller.count_input_tokens(request.create))

    async def compact_response(
        self, caller: LocalCaller, request: pb.CompactResponseRequest
    ) -> pb.CompactResponseResponse:
        """Compacts a conversation."""
        return await caller.compact_response(request.create)

    async def list_models(self, caller: LocalCaller, request: pb.ListModelsRequest) -> pb.ListModelsResponse:
        """Lists the models."""
        return pb.ListModelsResponse(models=await caller.list_models())

    async def get_capabilities(
        self, caller: LocalCaller, request: pb.GetCapabilitiesRequest
    ) -> pb.GetCapabilitiesResponse:
        """Tells what the server can do."""
        return await caller.get_capabilities()


async def _end(context: BytesContext, failure: Exception) -> None:
    """Ends an RPC with the status that its failure stands for."""
    if isinstance(failure, grpc.aio.AbortError):
        raise failure
    if isinstance(failure, RequestError):
        await abort(context, failure.error)
        return
    _log.error("an RPC failed", exc_info=failure)
    await abort(context, make_error("server_error", "The server failed. Try again."))


def _decoded(kind: type[_Request], data: bytes) -> _Request:
    try:
        return kind.FromString(data)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        message = f"The message is not a {name}. Check the client's protos, and that strings are UTF-8."
        raise reject("invalid_request_error", message) from None
