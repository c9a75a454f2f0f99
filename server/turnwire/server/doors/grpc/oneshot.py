"""One-shot RPCs: one response as a stream, or whole."""

from __future__ import annotations

from contextlib import aclosing

from turnwire.server.doors.grpc.connect import BytesContext, send
from turnwire.server.runtime.one_shot import one_response
from turnwire.server.runtime.runner import SessionRunner
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, Verbosity
from turnwire.v1.responses_service_pb2 import StreamResponseResponse


async def write_response(
    runner: SessionRunner, create: ResponseCreate, about: RequestContext, context: BytesContext
) -> None:
    """Runs one create and writes its events in batches, `done` last.

    Raises:
        RequestError: The request was refused.
    """
    async with aclosing(one_response(runner, create, about)) as batches:
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
    async with aclosing(one_response(runner, whole, about)) as batches:
        async for events in batches:
            for event in events:
                if event.WhichOneof("event") != "done":
                    continue
                if event.done.reason == DoneReason.DONE_REASON_FAILED:
                    raise RequestError(event.done.error)
                return event.done.response
    raise reject("server_error", "The response ended without an outcome.")
