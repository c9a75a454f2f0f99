"""One-shot RPCs: a session of one request, driven from inside."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent


async def stream_response(
    services: Services, principal: str, create: ResponseCreate, context: RequestContext
) -> AsyncGenerator[list[ServerEvent], None]:
    """Runs one create and yields its events in batches, `done` last.

    Cancelling it, or closing the iterator, cancels the response.

    Raises:
        RequestError: The request was refused.
    """
    if create.hold:
        raise reject("unsupported_parameter", "'hold' needs a session: use Connect.", param="hold")
    runner = SessionRunner(services, principal, "grpc-oneshot")
    try:
        request = ConnectRequest(create=create, context=context)
        runner.receive(request, request.ByteSize())
        while (batch := await runner.next_batch()) is not None:
            runner.sent(batch.ByteSize(), len(batch.events))
            events: list[ServerEvent] = []
            for event in batch.events:
                kind = event.WhichOneof("event")
                if kind == "rejected":
                    raise RequestError(event.rejected.error)
                if event.response:
                    events.append(event)
            if events:
                yield events
            if events and events[-1].WhichOneof("event") == "done":
                return
        if runner.close_error is not None:
            raise RequestError(runner.close_error)
    finally:
        runner.abandon()


async def create_response(
    services: Services, principal: str, create: ResponseCreate, context: RequestContext
) -> Response:
    """Runs one create and returns the full response.

    Cancelling it cancels the response.

    Raises:
        RequestError: The request was refused, or the response failed.
    """
    whole = ResponseCreate()
    whole.CopyFrom(create)
    whole.echo = True
    whole.verbosity = Verbosity.VERBOSITY_DONE
    async with aclosing(stream_response(services, principal, whole, context)) as batches:
        async for events in batches:
            for event in events:
                if event.WhichOneof("event") != "done":
                    continue
                if event.done.reason == DoneReason.DONE_REASON_FAILED:
                    raise RequestError(event.done.error)
                return event.done.response
    raise reject("server_error", "The response ended without an outcome.")
