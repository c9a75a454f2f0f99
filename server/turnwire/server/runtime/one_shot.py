"""One response outside of any session of its caller's: a session of one request, driven from inside.

Above it: the gRPC door's one-shot methods and `local`. Below it: the runner.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from turnwire.server.runtime.runner import SessionRunner
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.server_event_pb2 import ServerEvent


async def one_response(
    runner: SessionRunner, create: ResponseCreate, about: RequestContext
) -> AsyncGenerator[list[ServerEvent], None]:
    """Creates a response in a fresh session and yields its events in batches, `done` last.

    Cancelling it, or closing the generator, leaves the response to the end of its session.

    Raises:
        RequestError: The request was refused, or the session ended before the response did.
    """
    if create.hold:
        raise reject("unsupported_parameter", "'hold' needs a session: use Connect.", param="hold")
    # Whatever limit the caller's channel has is its own business here: there is no other event to wait for. An open
    # would ask for nothing else, and its answer costs a tenth of a short response: without one there are no credits,
    # which nobody would return here. Who reads slowly is slowed down by what carries the batches.
    runner.session.take_large_events()
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
    raise reject("server_error", "The response ended without an outcome.")
