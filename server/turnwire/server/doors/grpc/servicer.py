"""The service: authenticates, counts sessions, and hands every RPC to the runtime."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from turnwire.server.doors.grpc.connect import BytesContext, serve_stream, write_until_over
from turnwire.server.doors.grpc.models import told
from turnwire.server.doors.grpc.oneshot import create_response, write_response
from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.server.doors.grpc.status import abort
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import FEATURES, Services
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.errors import RequestError, make_error, reject

SERVICE: Final = "turnwire.v1.ResponsesService"
UNIMPLEMENTED: Final = ("CancelResponse", "CompactResponse", "CountInputTokens", "ListInputItems")
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

    def __init__(
        self, services: Services, keys: Keys | None, options: GrpcOptions, on_refused: Callable[[str], None]
    ) -> None:
        """Takes what sessions share, who may come in (None for everybody), the limits, and who hears of bad keys."""
        self._on_refused = on_refused
        self._services = services
        self._keys = keys
        self._options = options
        self._runners: set[SessionRunner] = set()
        self._per_principal: Counter[str] = Counter()
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def handler(self) -> Any:
        """Returns the handlers of all methods. Bytes in and out: see BytesContext."""
        methods: dict[str, Any] = {
            "Connect": grpc.stream_stream_rpc_method_handler(self.connect),
            "StreamResponse": grpc.unary_stream_rpc_method_handler(self.stream_response),
            "CreateResponse": self._unary(pb.CreateResponseRequest, self.create_response),
            "GetResponse": self._unary(pb.GetResponseRequest, self.get_response),
            "DeleteResponse": self._unary(pb.DeleteResponseRequest, self.delete_response),
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

    @property
    def sessions(self) -> int:
        """Sessions at this moment, one-shot ones included."""
        return len(self._runners)

    async def idle(self) -> None:
        """Waits until there is no session. Safe to cancel."""
        await self._idle.wait()

    def go_away(self, reason: str, grace: float, retry_after: float) -> None:
        """Takes no new sessions and asks the clients of the others to leave."""
        self._draining = True
        for runner in tuple(self._runners):
            runner.go_away(reason, grace, retry_after)

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

    @contextmanager
    def _session(self, principal: str, door: str) -> Generator[SessionRunner, None, None]:
        """Gives a session while there is room for it, and lets go of it.

        Raises:
            RequestError: There is no room, or the server is shutting down.
        """
        if self._draining:
            message = "The server is shutting down. Connect again, to another instance."
            raise RequestError(make_error("server_shutting_down", message, retry_after=1.0))
        if (
            len(self._runners) >= self._options.max_sessions
            or self._per_principal[principal] >= self._options.max_sessions_per_principal
        ):
            message = "Too many sessions. Use lanes of the sessions you have, or close some."
            raise RequestError(make_error("too_many_connections", message, retry_after=1.0))
        runner = SessionRunner(self._services, principal, door)
        self._runners.add(runner)
        self._per_principal[principal] += 1
        self._idle.clear()
        try:
            yield runner
        finally:
            runner.abandon()
            self._runners.discard(runner)
            self._per_principal[principal] -= 1
            if not self._per_principal[principal]:
                del self._per_principal[principal]
            if not self._runners:
                self._idle.set()

    async def connect(self, requests: object, context: BytesContext) -> None:
        """Serves a session."""

        async def answer(principal: str) -> None:
            with self._session(principal, "grpc") as runner:
                await serve_stream(runner, context)

        await self._answer(context, answer)

    async def stream_response(self, data: bytes, context: BytesContext) -> None:
        """Serves one response as a stream."""

        async def answer(principal: str) -> None:
            request = _decoded(pb.StreamResponseRequest, data)
            with self._session(principal, "grpc-oneshot") as runner:
                writing = write_response(runner, request.create, request.context, context)
                await write_until_over(runner, context, writing)

        await self._answer(context, answer)

    async def create_response(self, principal: str, request: pb.CreateResponseRequest) -> pb.CreateResponseResponse:
        """Serves one response whole."""
        with self._session(principal, "grpc-oneshot") as runner:
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
