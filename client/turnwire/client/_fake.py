"""The server's half of a session in memory: plays answers by the protocol's comments, without a model.

Below: the generated messages. Above: `testing`, which stores the answers. It knows nothing of the real server, so that
a mistake there is not repeated here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from turnwire.client._fold import call_id_of, is_client_call
from turnwire.client.exceptions import TurnwireError
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import make_error
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseStatus, Verbosity
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import (
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ResponseAppended,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
)
from turnwire.v1.session_pb2 import Pong, RequestRejected, SessionOpened
from turnwire.v1.usage_pb2 import Usage


class MemoryTransport:
    """Carries a session inside the process."""

    def __init__(self, on_request: Callable[[ConnectRequest], None]) -> None:
        """Takes who hears the client's messages, each one a copy."""
        self._on_request = on_request
        self._batches: asyncio.Queue[ConnectResponse | TurnwireError | None] = asyncio.Queue()
        self.finished = False
        """Whether the client has said that nothing more will come."""
        self.closed = False
        """Whether the client has given the transport up."""

    def deliver(self, batch: ConnectResponse) -> None:
        """Sends a batch to the client."""
        self._batches.put_nowait(batch)

    def end(self, error: TurnwireError | None = None) -> None:
        """Ends the stream: in order, or with an error such as `RpcFailedError("UNAVAILABLE", "gone")`."""
        self._batches.put_nowait(error)

    async def send(self, request: ConnectRequest) -> None:
        """Hands a message to the server. Cancelling it is safe."""
        copy = ConnectRequest()
        copy.CopyFrom(request)
        self._on_request(copy)

    async def receive(self) -> ConnectResponse | None:
        """Returns the next batch. Cancelling it is safe."""
        batch = await self._batches.get()
        if isinstance(batch, TurnwireError):
            raise batch
        return batch

    async def finish(self) -> None:
        """Notes that nothing more will come. Cancelling it is safe."""
        self.finished = True

    async def close(self) -> None:
        """Notes that the client has given up. Cancelling it is safe."""
        self.closed = True


@dataclass(slots=True)
class Answer:
    """What the model does in one pass."""

    items: Sequence[Item] = ()
    usage: Usage | None = None
    error: Error | None = None
    """Fails the response after the items."""
    rejection: Error | None = None
    """Refuses the request instead."""
    hang: bool = False
    """Goes on for ever after the items."""


@dataclass(eq=False, slots=True)
class FakeResponse:
    """A response of a fake session."""

    id: str
    handle: int
    hold: bool
    verbosity: Verbosity.ValueType
    sequence: int = 0
    output: int = 0
    passes: int = 0
    awaiting: list[str] = field(default_factory=list[str])
    appends: list[bytes] = field(default_factory=list[bytes])
    paused: bool = False
    ended: bool = False


class Script(Protocol):
    """What a fake session plays from, and writes into."""

    @property
    def session_credit_bytes(self) -> int:
        """The session credit to announce."""
        ...

    @property
    def response_credit_bytes(self) -> int:
        """The response credit to announce."""
        ...

    def record(self, request: ConnectRequest) -> None:
        """Notes what a client sent."""
        ...

    def next_number(self) -> int:
        """Returns a number that was not used before."""
        ...

    def next_answer(self, asked: str) -> Answer:
        """Takes the next answer out."""
        ...


class FakeSession:
    """The server's half of one stream."""

    def __init__(self, script: Script) -> None:
        """Takes whose answers to play; `deliver` and `end` are to be set to what carries them."""
        self._script = script
        self.deliver: Callable[[ConnectResponse], None]
        self.end: Callable[[TurnwireError | None], None]
        self.last_event_id = 0
        self.responses: dict[str, FakeResponse] = {}
        """Response id to response."""
        self.by_request: dict[str, FakeResponse] = {}
        """Request id to the response it created."""
        self._pending: list[ServerEvent] = []
        self._verbosity = Verbosity.VERBOSITY_DELTAS

    def send(self, *events: ServerEvent) -> None:
        """Sends events in one batch, as they are."""
        batch = ConnectResponse(first_event_id=self.last_event_id + 1, events=events)
        self.last_event_id += len(events)
        self.deliver(batch)

    def receive(self, request: ConnectRequest) -> None:
        """Takes a message of the client's and answers it."""
        self._script.record(request)
        kind = request.WhichOneof("event")
        if kind == "open":
            opened = SessionOpened(
                session_id=f"sess_{self._script.next_number()}",
                features=request.open.features,
                verbosity=request.open.verbosity or Verbosity.VERBOSITY_DELTAS,
                session_credit_bytes=self._script.session_credit_bytes,
                response_credit_bytes=self._script.response_credit_bytes,
                server="fake",
            )
            self._verbosity = opened.verbosity
            self._pending.append(ServerEvent(opened=opened))
        elif kind == "create":
            self._create(request)
        elif kind == "append":
            self._append(request)
        elif kind == "cancel":
            self._cancel(request)
        elif kind == "ping":
            self._pending.append(ServerEvent(pong=Pong(nonce=request.ping.nonce)))
        elif kind == "steer":
            self._reject(request, make_error("steering_not_supported", "the fake cannot be steered"))
        self._flush()
        if kind == "close":
            self.end(None)

    def _flush(self) -> None:
        events, self._pending = self._pending, []
        if events:
            self.send(*events)

    def _create(self, request: ConnectRequest) -> None:
        create = request.create
        answer = self._script.next_answer(f"create {create.input}")
        if answer.rejection is not None:
            self._reject(request, answer.rejection)
            return
        number = self._script.next_number()
        verbosity = create.verbosity or self._verbosity
        response = FakeResponse(f"resp_{number}", len(self.responses) + 1, create.hold, verbosity)
        self.responses[response.id] = response
        self.by_request[request.request_id] = response
        body = Response(id=response.id, model=create.model or "fake", status=ResponseStatus.RESPONSE_STATUS_IN_PROGRESS)
        created = ResponseCreated(response=body, request_id=request.request_id, lane=request.lane)
        self._event(response, ServerEvent(created=created))
        self._play(response, answer)

    def _append(self, request: ConnectRequest) -> None:
        append = request.append
        response = self.responses.get(append.response_id)
        error = None
        if response is None:
            error = make_error("response_not_found", f"no response {append.response_id}")
        elif response.ended:
            error = make_error("response_already_completed", f"{append.response_id} has ended")
        elif append.append_index > len(response.appends):
            error = make_error("append_index_gap", f"append {len(response.appends)} is missing")
        if response is None or error is not None:
            self._reject(request, error or Error())
            return
        body = b"".join(item.SerializeToString(deterministic=True) for item in append.input)
        appended = ResponseAppended(append_index=append.append_index, request_id=request.request_id)
        if append.append_index < len(response.appends):
            if response.appends[append.append_index] != body:
                self._reject(request, make_error("append_index_conflict", "another append had this index"))
                return
            appended.duplicate = True
            appended.awaiting_call_ids.extend(response.awaiting)
            self._pending.append(ServerEvent(response=response.handle, appended=appended))
            return
        answered = {call_id_of(item) for item in append.input} - {""}
        unknown = answered.difference(response.awaiting)
        if unknown:
            text = f"No tool call found for function call output with call_id {sorted(unknown)[0]}."
            self._reject(request, make_error("invalid_request_error", text, param="input"))
            return
        remaining = [call_id for call_id in response.awaiting if call_id not in answered]
        answer = self._script.next_answer(f"append to {response.id}") if response.paused and not remaining else None
        if answer is not None and answer.rejection is not None:
            self._reject(request, answer.rejection)
            return
        response.awaiting = remaining
        response.appends.append(body)
        response.output += len(append.input)
        appended.awaiting_call_ids.extend(remaining)
        self._pending.append(ServerEvent(response=response.handle, appended=appended))
        if answer is not None:
            response.paused = False
            self._play(response, answer)

    def _cancel(self, request: ConnectRequest) -> None:
        cancel = request.cancel
        response = self.responses.get(cancel.response_id) or self.by_request.get(cancel.target_request_id)
        if response is None:
            self._reject(request, make_error("response_not_found", "no such response"))
        elif not response.ended:
            void, response.awaiting = response.awaiting, []
            self._done(response, DoneReason.DONE_REASON_CANCELLED, void_call_ids=void, continuable=response.paused)

    def _play(self, response: FakeResponse, answer: Answer) -> None:
        response.passes += 1
        quiet = response.verbosity == Verbosity.VERBOSITY_DONE
        deltas = response.verbosity in (Verbosity.VERBOSITY_DELTAS, Verbosity.VERBOSITY_FULL)
        for item in answer.items:
            index, response.output = response.output, response.output + 1
            if is_client_call(item):
                response.awaiting.append(call_id_of(item))
            if quiet:
                continue
            self._event(response, ServerEvent(output_item_added=OutputItemAdded(output_index=index, item=_empty(item))))
            if deltas:
                for piece in re.findall(r"\s*\S+|\s+$", _text(item)):
                    delta = OutputTextDelta(output_index=index, delta=piece)
                    self._event(response, ServerEvent(output_text_delta=delta))
            self._event(response, ServerEvent(output_item_done=OutputItemDone(output_index=index, item=item)))
        output = answer.items if quiet else ()
        if answer.hang:
            return
        if answer.error is not None:
            self._done(response, DoneReason.DONE_REASON_FAILED, output, error=answer.error)
        elif response.awaiting and response.hold:
            response.paused = True
            self._done(response, DoneReason.DONE_REASON_TOOL_CALLS, output, usage=answer.usage, continuable=True)
        else:
            self._done(response, DoneReason.DONE_REASON_COMPLETED, output, usage=answer.usage, continuable=True)

    def _done(
        self,
        response: FakeResponse,
        reason: DoneReason.ValueType,
        output: Sequence[Item] = (),
        *,
        usage: Usage | None = None,
        error: Error | None = None,
        void_call_ids: Sequence[str] = (),
        continuable: bool = False,
    ) -> None:
        response.ended = reason != DoneReason.DONE_REASON_TOOL_CALLS
        done = ResponseDone(
            reason=reason,
            output=output,
            awaiting_call_ids=response.awaiting,
            void_call_ids=void_call_ids,
            usage=usage,
            error=error,
            passes=response.passes,
            continuable=continuable,
        )
        self._event(response, ServerEvent(done=done))

    def _event(self, response: FakeResponse, event: ServerEvent) -> None:
        event.response = response.handle
        event.sequence_number = response.sequence
        response.sequence += 1
        self._pending.append(event)

    def _reject(self, request: ConnectRequest, error: Error) -> None:
        rejected = RequestRejected(request_id=request.request_id, lane=request.lane, error=error)
        self._pending.append(ServerEvent(rejected=rejected))


def _text(item: Item) -> str:
    return "".join(part.output_text.text for part in item.message.content.parts.parts)


def _empty(item: Item) -> Item:
    copy = Item()
    copy.CopyFrom(item)
    if copy.WhichOneof("kind") == "message":
        copy.message.ClearField("content")
    elif copy.WhichOneof("kind") == "function_call":
        copy.function_call.ClearField("arguments")
    return copy
