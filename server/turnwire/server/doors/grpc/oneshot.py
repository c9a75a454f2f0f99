"""One-shot RPCs: a session of one request, driven from inside."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from turnwire.server.doors.grpc.connect import BytesContext, send
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.session.limits import EVENT_RANGE
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, Verbosity
from turnwire.v1.responses_service_pb2 import StreamResponseResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen


async def write_response(
    runner: SessionRunner, create: ResponseCreate, about: RequestContext, context: BytesContext
) -> None:
    """Runs one create and writes its events in batches, `done` last.

    Raises:
        RequestError: The request was refused.
    """
    async with aclosing(_events(runner, create, about)) as batches:
        async for events in batches:
            if not await send(context, StreamResponseResponse(events=events).SerializeToString()):
                return


async def create_response(runner: SessionRunner, create: ResponseCreate, about: RequestContext) -> Response:
    """Runs one create and returns the full response. Cancelling it leaves the response to the end of its session.

    Raises:
        RequestError: The request was refused, or the response failed.
    """
    if create.stream:
        raise reject("unsupported_parameter", "'stream' is not supported here: use StreamResponse.", param="stream")
    whole = ResponseCreate()
    whole.CopyFrom(create)
    whole.echo = True
    whole.verbosity = Verbosity.VERBOSITY_DONE
    async with aclosing(_events(runner, whole, about)) as batches:
        async for events in batches:
            for event in events:
                if event.WhichOneof("event") != "done":
                    continue
                if event.done.reason == DoneReason.DONE_REASON_FAILED:
                    raise RequestError(event.done.error)
                return event.done.response
    raise reject("server_error", "The response ended without an outcome.")


async def _events(
    runner: SessionRunner, create: ResponseCreate, about: RequestContext
) -> AsyncGenerator[list[ServerEvent], None]:
    if create.hold:
        raise reject("unsupported_parameter", "'hold' needs a session: use Connect.", param="hold")
    # Whatever limit the caller's channel has is its own business here: there is no other event to wait for.
    opening = ConnectRequest(open=SessionOpen(max_event_bytes=EVENT_RANGE[1]))
    runner.receive(opening, opening.ByteSize())
    request = ConnectRequest(create=create, context=about)
    runner.receive(request, request.ByteSize())
    while (batch := await runner.next_batch()) is not None:
        runner.sent(batch.ByteSize(), len(batch.events))
        events: list[ServerEvent] = []
        for event in batch.events:
            if event.WhichOneof("event") == "rejected":
                raise RequestError(event.rejected.error)
            if event.response:
                events.append(event)
        if events:
            yield events
            if events[-1].WhichOneof("event") == "done":
                return
    if runner.close_error is not None:
        raise RequestError(runner.close_error)
