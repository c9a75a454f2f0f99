"""The service: authenticates, and hands every RPC to the runtime."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from turnwire.server.doors.grpc.connect import BytesContext, serve_stream, write_until_over
from turnwire.server.doors.grpc.models import told
from turnwire.server.doors.grpc.oneshot import create_response, write_response
from turnwire.server.doors.grpc.status import abort
from turnwire.server.runtime.compacting import compact_response
from turnwire.server.runtime.probing import count_input_tokens
from turnwire.server.runtime.services import FEATURES
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.errors import RequestError, make_error, reject

SERVICE: Final = "turnwire.v1.ResponsesService"
UNIMPLEMENTED: Final = ("CancelResponse", "FollowResponse", "ListInputItems")
"""Methods without a body in this version."""

_log: Final = logging.getLogger(__name__)
_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer")


class Keys(Protocol):
    """Who may come in."""

    def authenticate(self, authorization: str | None) -> str:
        """Returns the principal of an `authorization` header; raises RequestError."""
        ...


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
            "CreateResponse": self._unary(pb.CreateResponseRequest, self.create_response),
            "GetResponse": self._unary(pb.GetResponseRequest, self.get_response),
            "DeleteResponse": self._unary(pb.DeleteResponseRequest, self.delete_response),
            "CountInputTokens": self._unary(pb.CountInputTokensRequest, self.count_input_tokens),
            "CompactResponse": self._unary(pb.CompactResponseRequest, self.compact_response),
            "ListModels": self._unary(pb.ListModelsRequest, self.list_models),
            "GetCapabilities": self._unary(pb.GetCapabilitiesRequest, self.get_capabilities),
        }
        for name in UNIMPLEMENTED:
            methods[name] = self._unary(getattr(pb, f"{name}Request"), self.unimplemented)
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _unary(self, kind: type[_Request], body: Callable[[str, _Request], Awaitable[Message]]) -> Any:
        async def serve(data: bytes, context: BytesContext) -> bytes:
            async def answer(principal: str) -> bytes:
                return (await body(principal, _decoded(kind, data))).SerializeToString()

            return await self._answer(context, answer) or b""

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(serve)

    async def _answer(self, context: BytesContext, answer: Callable[[str], Awaitable[_Answer]]) -> _Answer | None:
        """Lets a caller with a good key have its answer, and turns every refusal into a status."""
        try:
            return await answer(self._principal(context))
        except RequestError as refusal:
            await abort(context, refusal.error)
        except grpc.aio.AbortError:
            raise
        except Exception:
            _log.exception("an RPC failed")
            await abort(context, make_error("server_error", "The server failed. Try again."))
        return None

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

        async def answer(principal: str) -> None:
            with self._room.session(principal, "grpc") as runner:
                await serve_stream(runner, context)

        await self._answer(context, answer)

    async def stream_response(self, data: bytes, context: BytesContext) -> None:
        """Serves one response as a stream."""

        async def answer(principal: str) -> None:
            request = _decoded(pb.StreamResponseRequest, data)
            with self._room.session(principal, "grpc-oneshot") as runner:
                writing = write_response(runner, request.create, request.context, context)
                await write_until_over(runner, context, writing)

        await self._answer(context, answer)

    async def create_response(self, principal: str, request: pb.CreateResponseRequest) -> pb.CreateResponseResponse:
        """Serves one response whole."""
        with self._room.session(principal, "grpc-oneshot") as runner:
            response = await create_response(runner, request.create, request.context)
        return pb.CreateResponseResponse(response=response)

    async def get_response(self, principal: str, request: pb.GetResponseRequest) -> pb.GetResponseResponse:
        """Finds a stored response, or one of a live session of the same principal."""
        state = await self._services.store.get(principal, request.response_id)
        if state is None and request.session_id:
            session = self._services.sessions.get(request.session_id)
            if session is not None and session.principal == principal:
                state = session.find(request.response_id)
        if state is None:
            raise _not_found(request.response_id)
        return pb.GetResponseResponse(response=state.response())

    async def delete_response(self, principal: str, request: pb.DeleteResponseRequest) -> pb.DeleteResponseResponse:
        """Forgets a stored response."""
        if not await self._services.store.delete(principal, request.response_id):
            raise _not_found(request.response_id)
        return pb.DeleteResponseResponse()

    async def count_input_tokens(
        self, principal: str, request: pb.CountInputTokensRequest
    ) -> pb.CountInputTokensResponse:
        """Counts the tokens of a create's prompt."""
        tokens = await count_input_tokens(self._services, principal, request.create)
        return pb.CountInputTokensResponse(input_tokens=tokens)

    async def compact_response(self, principal: str, request: pb.CompactResponseRequest) -> pb.CompactResponseResponse:
        """Compacts a conversation."""
        return await compact_response(self._services, principal, request.create)

    async def list_models(self, principal: str, request: pb.ListModelsRequest) -> pb.ListModelsResponse:
        """Lists the models."""
        models = self._services.engines.models()
        return pb.ListModelsResponse(models=[told(info, engine.name) for info, engine in models])

    async def get_capabilities(self, principal: str, request: pb.GetCapabilitiesRequest) -> pb.GetCapabilitiesResponse:
        """Tells what the server can do."""
        return pb.GetCapabilitiesResponse(
            server=self._services.server,
            features=FEATURES,
            unimplemented=UNIMPLEMENTED,
            limits=self._services.limits.to_proto(),
        )

    async def unimplemented(self, principal: str, request: Message) -> Message:
        """Answers for the methods without a body."""
        raise reject("not_implemented", "This version does not have the method yet. GetCapabilities lists those.")


def _decoded(kind: type[_Request], data: bytes) -> _Request:
    try:
        return kind.FromString(data)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        message = f"The message is not a {name}. Check the client's protos, and that strings are UTF-8."
        raise reject("invalid_request_error", message) from None


def _not_found(response_id: str) -> RequestError:
    if not response_id:
        return reject("missing_required_parameter", "Missing required parameter: 'response_id'.", param="response_id")
    message = f"Response with id '{response_id}' not found."
    return reject("response_not_found", message, param="response_id", response_id=response_id)
