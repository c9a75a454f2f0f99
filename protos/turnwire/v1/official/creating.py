"""Responses over HTTP: whole as JSON, as an event stream, and followed.

Above it: `http`. Below it: the port, and the translation into official events. Coroutines here await only the port.

A response that fails is an error with its HTTP status where the answer is JSON, and `response.failed` in a stream. An
error without a response, such as a lost server, is an `error` event there. Every stream ends with `data: [DONE]`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error, reject
from turnwire.v1.official.answer import Answer
from turnwire.v1.official.backend import Caller
from turnwire.v1.official.errors import error_frame, internal_error
from turnwire.v1.official.stream import Frame, OfficialStream
from turnwire.v1.response_pb2 import DoneReason, ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent

DONE: Final = b"data: [DONE]\n\n"
"""What ends an event stream."""

_log: Final = logging.getLogger(__name__)

Batches = AsyncGenerator[Sequence[ServerEvent], None]


async def create_whole(caller: Caller, create: ResponseCreate, context: RequestContext) -> Answer:
    """Creates a response and waits for its end; for one in the background, until it exists.

    Cancelling it cancels the response, unless it runs in the background.

    Raises:
        RequestError: It was refused, or failed.
    """
    create.verbosity = Verbosity.VERBOSITY_DONE
    create.echo = create.background
    answer = Answer(create)
    async with aclosing(caller.respond(create, context)) as batches:
        async for events in batches:
            for event in events:
                if _take(answer, event) or (create.background and answer.id):
                    return answer
    raise _ended_early()


def _take(answer: Answer, event: ServerEvent) -> bool:
    """Takes one event of a response that is wanted whole; tells whether it was the last."""
    match event.WhichOneof("event"):
        case "created":
            answer.announce(event.created.response)
        case "output_item_done":
            answer.add(event.output_item_done.output_index, event.output_item_done.item)
        case "output_item_truncated":
            size = event.output_item_truncated.bytes
            raise reject("server_error", f"An output item of {size} bytes is too large to be sent.")
        case "done":
            if event.done.reason == DoneReason.DONE_REASON_FAILED:
                raise RequestError(event.done.error)
            answer.finish(event.done)
            return True
        case _:
            pass
    return False


async def create_stream(caller: Caller, create: ResponseCreate, context: RequestContext) -> AsyncGenerator[bytes, None]:
    """Creates a response and returns its event stream, once it exists.

    Cancelling it, and closing the stream, cancel the response, unless it runs in the background.

    Raises:
        RequestError: It was refused.
    """
    create.verbosity = Verbosity.VERBOSITY_FULL
    create.echo = create.background
    return await begun(_event_stream(caller.respond(create, context), OfficialStream(create), -1))


async def follow_stream(
    caller: Caller, response_id: str, starting_after: int | None, *, padded: bool
) -> AsyncGenerator[bytes, None]:
    """Returns the event stream of a background response.

    Args:
        caller: Who asks.
        response_id: The response.
        starting_after: The sequence number after which to begin. None begins with the first event.
        padded: Whether deltas are padded.

    Raises:
        RequestError: There is none, or it cannot be streamed.
    """
    request = ResponseCreate()
    request.stream_options.include_obfuscation = padded
    after = -1 if starting_after is None else starting_after
    batches = caller.follow_response(response_id, starting_after)
    return await begun(_event_stream(batches, OfficialStream(request), after))


async def begun(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Runs a stream up to its first batch: refusals come out here, and from here on closing it has an effect, which it
    would not have on a generator that has not begun."""
    await anext(stream)
    return stream


async def _event_stream(batches: Batches, stream: OfficialStream, after: int) -> AsyncGenerator[bytes, None]:
    """Yields nothing when the first batch is there, and then every batch as the text of its events.

    Args:
        batches: Compact events.
        stream: Their translation.
        after: The sequence number after which events are written.

    Raises:
        RequestError: Before anything was yielded.
    """
    async with aclosing(batches):
        events: Sequence[ServerEvent] | Error | None = await first_batch(batches)
        yield b""
        while events is not None:
            if isinstance(events, Error):
                yield _failure(events, stream)
                return
            text = b"".join(_texts(stream, events, after))
            if stream.ended:
                yield text + DONE
                return
            if text:
                yield text
            events = await next_batch(batches)
        yield _failure(_ended_early().error, stream)


def _texts(stream: OfficialStream, events: Iterable[ServerEvent], after: int) -> list[bytes]:
    texts: list[bytes] = []
    for event in events:
        frames = stream.feed(event)
        if event.sequence_number > after:
            texts += [sse(frame) for frame in frames]
    return texts


def sse(frame: Frame) -> bytes:
    """Returns an event as an event stream has it."""
    return b"event: %b\ndata: %b\n\n" % (frame.type.encode(), frame.data)


def _failure(error: Error, stream: OfficialStream) -> bytes:
    """Returns what ends a stream whose response has no end."""
    data = error_frame(error, sequence_number=stream.next_sequence)
    return sse(Frame("error", data)) + DONE


async def first_batch(batches: Batches) -> Sequence[ServerEvent]:
    """Waits for the first events of a response.

    Raises:
        RequestError: It was refused, or has none.
    """
    events = await anext(batches, None)
    if events is None:
        raise _ended_early()
    return events


async def next_batch(batches: Batches) -> Sequence[ServerEvent] | Error | None:
    """Waits for further events, for a stream that has begun and can only tell of an error, by which it ends; None where
    no more come."""
    try:
        return await anext(batches, None)
    except RequestError as lost:
        return lost.error
    except Exception:
        _log.exception("a stream of events failed")
        return internal_error()


def _ended_early() -> RequestError:
    """Builds the error for a response whose events stopped before its end."""
    return RequestError(make_error("server_error", "The response ended without an outcome."))
