"""Folds the events of one response into what is known about it.

Below: the generated messages. Above: `_protocol`, which routes events here and owns the requests, and the streams,
which take events out. Pure: no I/O, no asyncio, no clock.

Events wait in `ResponseState.events` until the application takes them; everything else here is up to date as of the
last event that *arrived*, so that a finished tool call is known before anything in front of it was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from turnwire.client.exceptions import ProtocolError
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, ResponseError, ResponseStatus
from turnwire.v1.server_event_pb2 import OutputItemTruncated, ResponseCreated, ResponseDone, ServerEvent

if TYPE_CHECKING:
    from turnwire.client._request import Request

CALL_KINDS: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "tool_search_call",
        "computer_call",
    }
)
"""Items that call a tool of the client's."""

DELTA_KINDS: Final = frozenset(
    {
        "output_text_delta",
        "function_call_arguments_delta",
        "reasoning_text_delta",
        "reasoning_summary_text_delta",
        "custom_tool_call_input_delta",
        "refusal_delta",
    }
)
"""The frequent events, which change nothing but the text."""

CREDIT_EXEMPT: Final = frozenset({"created", "appended", "done"})
"""Events that cost no response credit."""

_UNNUMBERED: Final = frozenset({"appended", "steer_accepted", "steer_pending", "steer_failed"})

_OUTPUT_KINDS: Final = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "tool_search_output",
        "computer_call_output",
    }
)

_STATUS: Final = {
    DoneReason.DONE_REASON_TOOL_CALLS: ResponseStatus.RESPONSE_STATUS_IN_PROGRESS,
    DoneReason.DONE_REASON_COMPLETED: ResponseStatus.RESPONSE_STATUS_COMPLETED,
    DoneReason.DONE_REASON_INCOMPLETE: ResponseStatus.RESPONSE_STATUS_INCOMPLETE,
    DoneReason.DONE_REASON_FAILED: ResponseStatus.RESPONSE_STATUS_FAILED,
    DoneReason.DONE_REASON_CANCELLED: ResponseStatus.RESPONSE_STATUS_CANCELLED,
}

# Echoing these would copy tens of kilobytes per response for nothing: the caller has them.
_NOT_ECHOED: Final = frozenset({"input", "instructions", "tools", "extra_json"})

# Deltas of the open item are kept as they came until then, then joined, so that a long item does not pin its batches.
_OPEN_LIMIT: Final = 1024

Listener: TypeAlias = Callable[[], None]
Arrived: TypeAlias = tuple[ServerEvent, str]
"""An event and which member of it is set."""


class ResponseState:
    """What is known about one response."""

    def __init__(self, created: ResponseCreated, handle: int, create: ResponseCreate | None = None) -> None:
        """Starts from `created`, and from the request where this client sent it."""
        self.id: Final = created.response.id
        self.handle: Final = handle
        self.lane: Final = created.lane
        self.request_id: Final = created.request_id
        self.duplicate: Final = created.duplicate
        self.listener: Listener | None = None
        """Called after each batch that concerned this response."""
        self.touched = False
        """Whether the batch being read concerned this response."""
        self.quiet = True
        """Whether no batch concerned it since credit was flushed last."""
        self.events: deque[Arrived] = deque()
        self.abandoned = False
        """Whether nobody will take the events: they are dropped, and their credit returned at once."""
        self.consumed = 0
        """Bytes taken by the application whose credit has not been returned."""
        self.calls: list[Item] = []
        """Finished client tool calls, in order."""
        self.truncated: dict[int, OutputItemTruncated] = {}
        """Position to item that was too large to be sent."""
        self.truncated_calls: list[OutputItemTruncated] = []
        """Those among them that are calls and were not fetched yet."""
        self.awaiting: tuple[str, ...] = ()
        """Calls the server said it waits for."""
        self.done: ResponseDone | None = None
        """The latest pause or the end."""
        self.done_sequence = -1
        self.paused = False
        self.ended = False
        self.next_append_index = 0
        self.pending_appends: dict[int, Request] = {}
        self.append_refused = False
        """Whether an append was refused, which leaves a gap before those that were on their way behind it."""
        self._answered: set[str] = set()
        self._void: set[str] = set()
        self._created: Final = _owned(created.response)
        if create is not None:
            _echo(create, self._created)
        self._items: dict[int, Item | None] = {}
        self._next_index = 0
        self._unplaced: deque[Item] = deque()
        self._open_deltas: list[ServerEvent] = []
        self._open_text: list[str] = []
        self._sequence = -1

    # Arrival.

    def fold_delta(self, proto: ServerEvent, kind: str) -> None:
        """Takes in an event of `DELTA_KINDS`; the hot path. `end_batch` must follow.

        Raises:
            ProtocolError: The sequence number does not follow.
        """
        sequence = proto.sequence_number
        if sequence <= self._sequence:
            self._out_of_order(sequence, kind)
        self._sequence = sequence
        if kind == "output_text_delta":
            self._open_deltas.append(proto)
        self.events.append((proto, kind))

    def fold(self, proto: ServerEvent, kind: str) -> None:
        """Takes an event in.

        Raises:
            ProtocolError: The sequence number does not follow.
        """
        # Answers overtake what waits in the response's own stream, so they have no place in its count.
        if kind not in _UNNUMBERED and proto.response:
            sequence = proto.sequence_number
            if sequence <= self._sequence:
                self._out_of_order(sequence, kind)
            self._sequence = sequence
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, proto)
        self.events.append((proto, kind))

    def end_batch(self) -> None:
        """Does what need not be done for each event."""
        self.quiet = False
        if len(self._open_deltas) >= _OPEN_LIMIT:
            self._join_deltas()
        if self.abandoned:
            self.drop()

    def _out_of_order(self, sequence: int, kind: str) -> NoReturn:
        msg = f"{self.id}: event {sequence} ({kind}) came after event {self._sequence}"
        raise ProtocolError(msg)

    def _on_item_added(self, proto: ServerEvent) -> None:
        self.paused = False
        self._reserve(proto.output_item_added.output_index)

    def _on_item_done(self, proto: ServerEvent) -> None:
        self.paused = False
        index = proto.output_item_done.output_index
        self._reserve(index)
        self._finish(index, _owned_item(proto.output_item_done.item))

    def _on_item_truncated(self, proto: ServerEvent) -> None:
        event = OutputItemTruncated()
        event.CopyFrom(proto.output_item_truncated)
        self._reserve(event.output_index)
        self.truncated[event.output_index] = event
        if event.type in CALL_KINDS:
            self.truncated_calls.append(event)
        self._close_item()

    def _on_appended(self, proto: ServerEvent) -> None:
        self.awaiting = tuple(proto.appended.awaiting_call_ids)
        if not self.awaiting:
            self.paused = False

    def _on_done(self, proto: ServerEvent) -> None:
        done = ResponseDone()
        done.CopyFrom(proto.done)
        self.done = done
        self.done_sequence = proto.sequence_number
        self._void.update(done.void_call_ids)
        # A confirmation may have overtaken the pause it belongs to.
        self.awaiting = tuple(call_id for call_id in done.awaiting_call_ids if call_id not in self._answered)
        self.ended = done.reason != DoneReason.DONE_REASON_TOOL_CALLS
        self.paused = not self.ended and bool(self.awaiting)
        if done.output:
            while self._unplaced:
                self._items[self._next_index] = self._unplaced.popleft()
                self._next_index += 1
            for item in done.output:
                if not (item.WhichOneof("kind") in _OUTPUT_KINDS and call_id_of(item) in self._answered):
                    self._finish(self._next_index, _owned_item(item))

    def _finish(self, index: int, item: Item) -> None:
        self._items[index] = item
        self._next_index = max(self._next_index, index + 1)
        self._close_item()
        if is_client_call(item):
            self.calls.append(item)

    def _reserve(self, index: int) -> None:
        """Makes room for an item; positions that were skipped belong to the outputs that were appended before it."""
        while self._next_index < index and self._unplaced:
            self._items[self._next_index] = self._unplaced.popleft()
            self._next_index += 1
        if index >= self._next_index:
            self._items[index] = None
            self._next_index = index + 1

    def _close_item(self) -> None:
        self._open_deltas.clear()
        self._open_text.clear()

    def _join_deltas(self) -> None:
        self._open_text.append("".join([proto.output_text_delta.delta for proto in self._open_deltas]))
        self._open_deltas.clear()

    def append_confirmed(self, items: Sequence[Item]) -> None:
        """Records that the server took an append."""
        self._unplaced.extend(items)
        self._answered.update(call_id for call_id in map(call_id_of, items) if call_id)

    def fetched(self, truncated: OutputItemTruncated, item: Item | None) -> None:
        """Takes in a call that was fetched because it was too large to be sent; None when it is gone."""
        self.truncated_calls.remove(truncated)
        if item is not None:
            self._items[truncated.output_index] = _owned_item(item)
            self.calls.append(item)

    # What the application asks.

    def take(self) -> Arrived | None:
        """Takes the next event out and counts its credit."""
        if not self.events:
            return None
        arrived = self.events.popleft()
        if arrived[1] not in CREDIT_EXEMPT:
            self.consumed += arrived[0].ByteSize()
        return arrived

    def take_all(self) -> list[ServerEvent]:
        """Takes everything out that waits, and counts its credit."""
        arrived = self.events
        self.consumed += sum(proto.ByteSize() for proto, kind in arrived if kind not in CREDIT_EXEMPT)
        events = [proto for proto, _ in arrived]
        arrived.clear()
        return events

    def drop(self) -> None:
        """Takes all events out; nobody wants them."""
        self.take_all()

    def open_calls(self) -> list[Item]:
        """Returns finished calls whose outputs were neither sent nor made void."""
        sent = {call_id_of(item) for request in self.pending_appends.values() for item in request.items}
        closed = self._answered | self._void | sent
        return [call for call in self.calls if call_id_of(call) not in closed]

    def unconfirmed_calls(self) -> list[Item]:
        """Returns finished calls whose outputs the server has not confirmed."""
        closed = self._answered | self._void
        return [call for call in self.calls if call_id_of(call) not in closed]

    @property
    def standing(self) -> bool:
        """Whether nothing will happen until the application appends something."""
        if not self.paused:
            return False
        sent = {call_id_of(item) for request in self.pending_appends.values() for item in request.items}
        return any(call_id not in sent for call_id in self.awaiting)

    @property
    def continuable(self) -> bool:
        """Whether a create may name this response as the previous one."""
        return self.done is not None and self.done.continuable

    @property
    def output_text(self) -> str:
        """The visible text so far."""
        return "".join(self._texts())

    def _texts(self) -> Iterator[str]:
        for index in sorted(self._items):
            item = self._items[index]
            if item is not None and item.WhichOneof("kind") == "message":
                content = item.message.content
                if content.WhichOneof("form") == "text":
                    yield content.text
                for part in content.parts.parts:
                    yield part.output_text.text
        yield from self._open_text
        for proto in self._open_deltas:
            yield proto.output_text_delta.delta

    def output(self) -> list[Item]:
        """Returns the finished items and the appended outputs, in order."""
        items = [item for index in sorted(self._items) if (item := self._items[index]) is not None]
        return [*items, *self._unplaced]

    def snapshot(self) -> Response:
        """Returns the response as it is now, as a message of the caller's own."""
        response = Response()
        done = self.done
        if done is not None and done.HasField("response"):
            response.CopyFrom(done.response)
            return response
        response.CopyFrom(self._created)
        response.ClearField("output")
        response.output.extend(self.output())
        if done is None:
            return response
        response.status = _STATUS.get(done.reason, response.status)
        if done.HasField("completed_at"):
            response.completed_at = done.completed_at
        if done.usage.total_tokens:
            response.usage.CopyFrom(done.usage)
        else:
            # Nothing was counted, which is not the same as nothing used.
            response.ClearField("usage")
        if done.HasField("error"):
            response.error.CopyFrom(ResponseError(code=done.error.code, message=done.error.message))
        if done.HasField("incomplete_details"):
            response.incomplete_details.CopyFrom(done.incomplete_details)
        return response


_HANDLERS: Final[Mapping[str, Callable[[ResponseState, ServerEvent], None]]] = {
    "output_item_added": ResponseState._on_item_added,  # pyright: ignore[reportPrivateUsage]
    "output_item_done": ResponseState._on_item_done,  # pyright: ignore[reportPrivateUsage]
    "output_item_truncated": ResponseState._on_item_truncated,  # pyright: ignore[reportPrivateUsage]
    "appended": ResponseState._on_appended,  # pyright: ignore[reportPrivateUsage]
    "done": ResponseState._on_done,  # pyright: ignore[reportPrivateUsage]
}


def is_client_call(item: Item) -> bool:
    """Tells whether an item calls a tool of the client's."""
    kind = item.WhichOneof("kind")
    if kind == "tool_search_call":
        return item.tool_search_call.execution == "client"
    return kind in CALL_KINDS


def call_id_of(item: Item) -> str:
    """Returns what pairs a call with its output; empty for items that are neither."""
    kind = item.WhichOneof("kind")
    if kind is None or (kind not in CALL_KINDS and kind not in _OUTPUT_KINDS):
        return ""
    if kind == "local_shell_call_output":
        return item.local_shell_call_output.call_id or item.local_shell_call_output.id
    return str(getattr(item, kind).call_id)


def _owned_item(item: Item) -> Item:
    # A sub-message keeps the whole batch it arrived in alive; a copy keeps only itself.
    copy = Item()
    copy.CopyFrom(item)
    return copy


def _owned(response: Response) -> Response:
    copy = Response()
    copy.CopyFrom(response)
    return copy


def _echo(create: ResponseCreate, response: Response) -> None:
    """Fills settings the server did not resolve otherwise, which a session leaves out."""
    known = response.DESCRIPTOR.fields_by_name
    resolved = {field.name for field, _ in response.ListFields()}
    for field, value in create.ListFields():
        name = field.name
        if name not in known or name in resolved or name in _NOT_ECHOED:
            continue
        if name == "metadata":
            response.metadata.update(create.metadata)
        elif field.message_type is not None:
            getattr(response, name).CopyFrom(value)
        else:
            setattr(response, name, value)
