"""The service: authenticates, counts sessions, and hands every RPC to the runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

import grpc

from turnwire.server.doors.grpc.connect import BytesContext, serve_stream
from turnwire.server.doors.grpc.oneshot import create_response, stream_response
from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.server.doors.grpc.status import abort
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import FEATURES, Services
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.errors import RequestError, make_error, reject

SERVICE: Final = "turnwire.v1.ResponsesService"
UNIMPLEMENTED: Final = ("CancelResponse", "CompactResponse", "CountInputTokens", "ListInputItems")
"""Methods without a body in this version."""

AnyContext = grpc.aio.ServicerContext[Any, Any]


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

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Returns the handlers of all methods."""
        unary = grpc.unary_unary_rpc_method_handler
        methods: dict[str, Any] = {
            # Bytes in and out: see BytesContext.
            "Connect": grpc.stream_stream_rpc_method_handler(self.connect),
            "StreamResponse": grpc.unary_stream_rpc_method_handler(
                self.stream_response,
                request_deserializer=pb.StreamResponseRequest.FromString,
                response_serializer=pb.StreamResponseResponse.SerializeToString,
            ),
        }
        bodies: dict[str, Callable[..., Any]] = {
            "CreateResponse": self.create_response,
            "GetResponse": self.get_response,
            "DeleteResponse": self.delete_response,
            "ListModels": self.list_models,
            "GetCapabilities": self.get_capabilities,
            **dict.fromkeys(UNIMPLEMENTED, self.unimplemented),
        }
        for name, body in bodies.items():
            request: Any = getattr(pb, f"{name}Request")
            response: Any = getattr(pb, f"{name}Response")
            methods[name] = unary(
                body, request_deserializer=request.FromString, response_serializer=response.SerializeToString
            )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    @property
    def sessions(self) -> int:
        """Sessions at this moment."""
        return len(self._runners)

    def go_away(self, reason: str, grace: float, retry_after: float) -> None:
        """Takes no new sessions and asks the clients of the others to leave."""
        self._draining = True
        for runner in tuple(self._runners):
            runner.go_away(reason, grace, retry_after)

    async def _principal(self, context: AnyContext) -> str:
        if self._keys is None:
            return ""
        header: str | None = None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str):
                header = value
        try:
            return self._keys.authenticate(header)
        except RequestError as refusal:
            self._on_refused("grpc")
            await abort(context, refusal.error)

    async def connect(self, requests: object, context: BytesContext) -> None:
        """Serves a session."""
        principal = await self._principal(context)
        if self._draining:
            message = "The server is shutting down. Connect again, to another instance."
            await abort(context, make_error("server_shutting_down", message, retry_after=1.0))
        if (
            len(self._runners) >= self._options.max_sessions
            or self._per_principal[principal] >= self._options.max_sessions_per_principal
        ):
            message = "Too many sessions. Use lanes of the sessions you have, or close some."
            await abort(context, make_error("too_many_connections", message, retry_after=1.0))
        runner = SessionRunner(self._services, principal, "grpc")
        self._runners.add(runner)
        self._per_principal[principal] += 1
        try:
            await serve_stream(runner, context)
        finally:
            self._runners.discard(runner)
            self._per_principal[principal] -= 1
            if not self._per_principal[principal]:
                del self._per_principal[principal]

    async def create_response(
        self, request: pb.CreateResponseRequest, context: AnyContext
    ) -> pb.CreateResponseResponse:
        """Serves one response whole."""
        principal = await self._principal(context)
        try:
            response = await create_response(self._services, principal, request.create, request.context)
        except RequestError as refusal:
            await abort(context, refusal.error)
        return pb.CreateResponseResponse(response=response)

    async def stream_response(
        self, request: pb.StreamResponseRequest, context: AnyContext
    ) -> AsyncIterator[pb.StreamResponseResponse]:
        """Serves one response as a stream."""
        principal = await self._principal(context)
        try:
            async with aclosing(stream_response(self._services, principal, request.create, request.context)) as batches:
                async for events in batches:
                    yield pb.StreamResponseResponse(events=events)
        except RequestError as refusal:
            await abort(context, refusal.error)

    async def get_response(self, request: pb.GetResponseRequest, context: AnyContext) -> pb.GetResponseResponse:
        """Finds a stored response, or one of a live session of the same principal."""
        principal = await self._principal(context)
        state = await self._services.store.get(principal, request.response_id)
        if state is None and request.session_id:
            session = self._services.sessions.get(request.session_id)
            if session is not None and session.principal == principal:
                state = session.find(request.response_id)
        if state is None:
            await abort(context, _not_found(request.response_id).error)
        return pb.GetResponseResponse(response=state.response())

    async def delete_response(
        self, request: pb.DeleteResponseRequest, context: AnyContext
    ) -> pb.DeleteResponseResponse:
        """Forgets a stored response."""
        principal = await self._principal(context)
        if not await self._services.store.delete(principal, request.response_id):
            await abort(context, _not_found(request.response_id).error)
        return pb.DeleteResponseResponse()

    async def list_models(self, request: pb.ListModelsRequest, context: AnyContext) -> pb.ListModelsResponse:
        """Lists the models."""
        await self._principal(context)
        models = [
            pb.Model(id=info.id, owned_by=info.owned_by, context_length=info.context_length, engine=engine.name)
            for info, engine in self._services.engines.models()
        ]
        return pb.ListModelsResponse(models=models)

    async def get_capabilities(
        self, request: pb.GetCapabilitiesRequest, context: AnyContext
    ) -> pb.GetCapabilitiesResponse:
        """Tells what the server can do."""
        await self._principal(context)
        return pb.GetCapabilitiesResponse(
            server=self._services.server,
            features=FEATURES,
            unimplemented=UNIMPLEMENTED,
            limits=self._services.limits.to_proto(),
        )

    async def unimplemented(self, request: object, context: AnyContext) -> None:
        """Answers for the methods without a body."""
        await self._principal(context)
        await abort(context, make_error("not_implemented", "This version does not have the method yet."))


def _not_found(response_id: str) -> RequestError:
    message = f"Response with id '{response_id}' not found."
    return reject("response_not_found", message, param="response_id", response_id=response_id)
