"""One-shot RPCs: one response as a stream, or whole, or followed while it runs in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from turnwire.server.doors.grpc.connect import BytesContext, send
from turnwire.server.runtime.local import LocalCaller
from turnwire.server.runtime.one_shot import one_response
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, Verbosity
from turnwire.v1.responses_service_pb2 import StreamResponseResponse
from turnwire.v1.server_event_pb2 import ServerEvent


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


async def write_events(
    batches: AsyncGenerator[Sequence[ServerEvent], None], context: BytesContext, services: Services
) -> None:
    """Writes the events of a response that runs apart from its readers, to the last one. A reader who takes nothing for
    as long as a session may stall is cut off; the response goes on.

    Raises:
        RequestError: The request was refused, or `slow_consumer`.
    """
    async with aclosing(batches):
        async for events in batches:
            if not await _send_in_time(context, StreamResponseResponse(events=events).SerializeToString(), services):
                return


async def _send_in_time(context: BytesContext, data: bytes, services: Services) -> bool:
    writing = asyncio.create_task(send(context, data))

    def give_up() -> None:
        writing.cancel()

    timer = services.clock.call_at(services.clock.now() + services.limits.stall_timeout, give_up)
    try:
        await asyncio.wait((writing,))
    finally:
        timer.cancel()
        writing.cancel()
    if writing.cancelled():
        raise reject("slow_consumer", "The client took no events for too long. Follow the response again.")
    return writing.result()


async def create_response(caller: LocalCaller, create: ResponseCreate, about: RequestContext) -> Response:
    """Runs one create and returns the full response: when it has ended, or with `background` as soon as it exists.
    Cancelling it cancels the response, unless that runs in the background.

    Raises:
        RequestError: The request was refused, or the response failed.
    """
    if create.stream:
        raise reject("unsupported_parameter", "'stream' is not supported here: use StreamResponse.", param="stream")
    whole = ResponseCreate()
    whole.CopyFrom(create)
    whole.echo = True
    whole.verbosity = Verbosity.VERBOSITY_DONE
    async with aclosing(caller.respond(whole, about)) as batches:
        async for events in batches:
            for event in events:
                kind = event.WhichOneof("event")
                if kind == "created" and create.background:
                    return event.created.response
                if kind != "done":
                    continue
                if event.done.reason == DoneReason.DONE_REASON_FAILED:
                    raise RequestError(event.done.error)
                return event.done.response
    raise reject("server_error", "The response ended without an outcome.")
