"""What waits to be sent: one queue per response, one for answers, filled by events and emptied by batches.

Text is kept as small mutable rows, not messages: a message is built only when a batch takes it (measured: 2.9 µs a
token with an object per event, under 1 µs this way). Batches are filled by deficit round-robin over responses, so that
a quiet lane never waits behind a flooding one for more than a quantum.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from turnwire.v1.item_pb2 import Logprob
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import (
    CustomToolCallInputDelta,
    FunctionCallArgumentsDelta,
    OutputTextDelta,
    ReasoningSummaryTextDelta,
    ReasoningTextDelta,
    RefusalDelta,
    ServerEvent,
)

QUANTUM: Final = 4 * 1024
"""Bytes that one response may put into a batch before the next one's turn."""
ROW_OVERHEAD: Final = 24
"""Wire bytes of a delta beside its text, as an estimate for filling batches."""
MERGE_LIMIT: Final = 4 * 1024
"""Largest text that waiting deltas are joined to."""


class Delta(enum.IntEnum):
    """The kinds of text rows."""

    TEXT = 0
    REASONING = 1
    SUMMARY = 2
    REFUSAL = 3
    ARGUMENTS = 4
    CUSTOM_INPUT = 5


class Row:
    """A piece of text that waits."""

    __slots__ = ("content_index", "ids", "kind", "logprobs", "output_index", "sequence", "text")

    def __init__(
        self,
        sequence: int,
        kind: Delta,
        output_index: int,
        content_index: int,
        text: str,
        ids: tuple[int, ...] = (),
        logprobs: tuple[Logprob, ...] = (),
    ) -> None:
        """Takes the place of the text in the response, and its tokens where they are wanted."""
        self.ids = ids
        self.logprobs = logprobs
        self.sequence = sequence
        self.kind = kind
        self.output_index = output_index
        self.content_index = content_index
        self.text = text


class Queue:
    """What waits for one response, in order."""

    __slots__ = ("active", "bytes", "credit", "deficit", "handle", "items", "sequence", "unconsumed")

    def __init__(self, handle: int, credit: int) -> None:
        """Takes the response's handle and its credit in bytes, 0 for none."""
        self.handle = handle
        self.credit = credit
        self.items: deque[Row | ServerEvent] = deque()
        self.bytes = 0
        """Estimated bytes waiting."""
        self.unconsumed = 0
        """Bytes sent that the application has not consumed."""
        self.deficit = 0
        self.sequence = 0
        """The next sequence number."""
        self.active = False
        """Whether the queue is in the ring."""

    @property
    def blocked(self) -> bool:
        """Whether the response is as far ahead of its reader as it may be."""
        return self.credit > 0 and self.unconsumed >= self.credit

    @property
    def ready(self) -> bool:
        """Whether the first item may be sent; `done` and other exempt events may at any time."""
        if not self.items:
            return False
        return self.credit == 0 or self.unconsumed < self.credit or exempt(self.items[0])


_EXEMPT: Final = frozenset({"created", "done", "appended"})


def exempt(item: Row | ServerEvent) -> bool:
    """Whether an item is sent without credit: it ends waiting or is small and bounded."""
    return isinstance(item, ServerEvent) and item.WhichOneof("event") in _EXEMPT


class Outbox:
    """All that waits to be sent in a session."""

    __slots__ = (
        "_next_event_id",
        "_ring",
        "_session_credit",
        "_unacked",
        "_waiting",
        "control",
        "merge",
        "outstanding",
        "urgent",
    )

    def __init__(self, merge: bool) -> None:
        """Takes whether adjacent text that waits is joined (where a batch window asked for it)."""
        self.merge = merge
        # Lists, since an empty deque takes ten times the memory of an empty list, and few things wait at the same time.
        self.control: list[ServerEvent] = []
        self._ring: list[Queue] = []
        self._waiting: dict[int, Queue] = {}
        """Queues that hold something, by handle, whether or not it may be sent; their responses may have ended."""
        self._next_event_id = 1
        self._session_credit = 0
        self._unacked: list[tuple[int, int]] = []
        self.outstanding = 0
        """Bytes of batches sent and not acknowledged."""
        self.urgent = False
        """Whether something waits that the batch window must not delay."""

    def set_session_credit(self, credit: int) -> None:
        """Sets how many bytes may be on their way; 0 for no bound."""
        self._session_credit = credit

    @property
    def last_event_id(self) -> int:
        """The last event id that was given out."""
        return self._next_event_id - 1

    def lift_credit(self) -> None:
        """Drops all credits, since the client can return none any more; what is on its way is only its reading's
        business."""
        self._session_credit = self.outstanding = 0
        self._unacked.clear()
        for queue in self._waiting.values():
            self.uncap(queue)

    def uncap(self, queue: Queue) -> None:
        """Drops the credit of one response, whose queue is bounded because nothing more comes."""
        queue.credit = 0
        if not queue.active:
            self._activate(queue)

    @property
    def waiting(self) -> bool:
        """Whether something waits that only the client's reading or acknowledging can move; what waits for a response's
        own credit is not meant."""
        return bool(self.control or self._ring)

    @property
    def unread(self) -> int:
        """Responses of which something waits, ended ones included."""
        return len(self._waiting)

    @property
    def empty(self) -> bool:
        """Whether nothing waits, for whatever reason."""
        return not (self.control or self._waiting)

    def find(self, handle: int) -> Queue | None:
        """Returns the queue of a response, if it holds something."""
        return self._waiting.get(handle)

    @property
    def sendable(self) -> bool:
        """Whether a batch can be taken right now."""
        return bool(self.control) or (self.has_credit and bool(self._ring))

    @property
    def has_credit(self) -> bool:
        """Whether the session may send more than answers."""
        return self._session_credit == 0 or self.outstanding < self._session_credit

    def answer(self, event: ServerEvent) -> None:
        """Queues an answer that concerns no response's order; exempt from credit."""
        self.control.append(event)
        self.urgent = True

    def event(self, queue: Queue, event: ServerEvent, size: int, *, urgent: bool = True) -> None:
        """Queues an event of a response; gives it its sequence number."""
        event.response = queue.handle
        event.sequence_number = queue.sequence
        queue.sequence += 1
        queue.items.append(event)
        queue.bytes += size
        if urgent:
            self.urgent = True
        if not queue.active:
            self._activate(queue)

    def skip(self, queue: Queue, events: int = 1) -> None:
        """Counts events of the full stream that this verbosity does not send."""
        queue.sequence += events

    def text(
        self,
        queue: Queue,
        kind: Delta,
        output_index: int,
        content_index: int,
        text: str,
        ids: tuple[int, ...] = (),
        logprobs: tuple[Logprob, ...] = (),
    ) -> None:
        """Queues a piece of text; the hot path of the server."""
        items = queue.items
        if self.merge and items:
            last = items[-1]
            # Joined text takes no number of its own, so the numbers stay without a gap.
            if (
                isinstance(last, Row)
                and last.kind == kind
                and last.output_index == output_index
                and last.content_index == content_index
                and len(last.text) < MERGE_LIMIT
            ):
                last.text += text
                if ids or logprobs:
                    last.ids += ids
                    last.logprobs += logprobs
                queue.bytes += len(text)
                return
        items.append(Row(queue.sequence, kind, output_index, content_index, text, ids, logprobs))
        queue.sequence += 1
        queue.bytes += len(text) + ROW_OVERHEAD
        if not queue.active:
            self._activate(queue)

    def _activate(self, queue: Queue) -> None:
        if not queue.items:
            return
        self._waiting[queue.handle] = queue
        if queue.ready:
            queue.active = True
            queue.deficit = 0
            self._ring.append(queue)

    def consumed(self, queue: Queue, size: int) -> None:
        """Takes credit that the application returned."""
        queue.unconsumed = max(0, queue.unconsumed - size)
        if not queue.active:
            self._activate(queue)

    def acknowledged(self, last_event_id: int) -> bool:
        """Takes an acknowledgement; returns False for ids that were not sent."""
        if last_event_id >= self._next_event_id:
            return False
        count = 0
        for event_id, size in self._unacked:
            if event_id > last_event_id:
                break
            self.outstanding -= size
            count += 1
        del self._unacked[:count]
        return True

    def sent(self, size: int) -> None:
        """Hears the wire size of the batch that `pull` gave last."""
        if self._session_credit:
            self._unacked.append((self._next_event_id - 1, size))
            self.outstanding += size

    def pull(self, batch: ConnectResponse, max_bytes: int) -> list[Queue]:
        """Moves what is ready into a batch, at least one event if any is.

        Args:
            batch: An empty message to fill; stays empty when nothing may be sent.
            max_bytes: Estimated size at which the batch is full.

        Returns:
            The queues that gave something, so that their engines can go on.
        """
        batch.first_event_id = self._next_event_id
        events = batch.events
        size = 0
        control = self.control
        taken = 0
        for event in control:
            if size >= max_bytes:
                break
            size += event.ByteSize()
            events.append(event)
            taken += 1
        del control[:taken]
        drained: list[Queue] = []
        if self.has_credit:
            ring = self._ring
            while ring and size < max_bytes:
                queue = ring[0]
                if queue.deficit <= 0:
                    # An event larger than a quantum is paid for by passing turns.
                    queue.deficit += QUANTUM
                size += self._take(queue, events, max_bytes - size)
                drained.append(queue)
                if not queue.items:
                    queue.active = False
                    del ring[0]
                    del self._waiting[queue.handle]
                elif not queue.ready:
                    queue.active = False
                    del ring[0]
                elif queue.deficit <= 0:
                    ring.append(ring.pop(0))
        self._next_event_id += len(events)
        if not control and not self._ring:
            self.urgent = False
        return drained

    def _take(self, queue: Queue, events: RepeatedCompositeFieldContainer[ServerEvent], room: int) -> int:
        items = queue.items
        handle = queue.handle
        counted = queue.credit > 0
        taken = 0
        room = min(room, queue.deficit)
        while items and taken < room:
            item = items[0]
            if counted and queue.unconsumed >= queue.credit and not exempt(item):
                break
            items.popleft()
            if isinstance(item, Row):
                event = events.add()
                event.response = handle
                event.sequence_number = item.sequence
                _FILL[item.kind](event, item)
                size = len(item.text) + ROW_OVERHEAD
                if counted:
                    queue.unconsumed += event.ByteSize()
            else:
                events.append(item)
                size = item.ByteSize()
                if counted and not exempt(item):
                    queue.unconsumed += size
            taken += size
        queue.deficit = queue.deficit - taken if items else 0
        queue.bytes = max(0, queue.bytes - taken) if items else 0
        return taken


_SaidDelta = (
    OutputTextDelta
    | ReasoningTextDelta
    | ReasoningSummaryTextDelta
    | RefusalDelta
    | FunctionCallArgumentsDelta
    | CustomToolCallInputDelta
)


def _say(delta: _SaidDelta, row: Row) -> None:
    # Setting a field costs what the rest of an event does; most messages are the first item, and 0 is not sent anyway.
    if row.output_index:
        delta.output_index = row.output_index
    delta.delta = row.text
    if row.ids:
        delta.token_ids.extend(row.ids)


def _fill_text(event: ServerEvent, row: Row) -> None:
    delta = event.output_text_delta
    if row.content_index:
        delta.content_index = row.content_index
    if row.logprobs:
        delta.logprobs.extend(row.logprobs)
    _say(delta, row)


def _fill_reasoning(event: ServerEvent, row: Row) -> None:
    delta = event.reasoning_text_delta
    if row.content_index:
        delta.content_index = row.content_index
    _say(delta, row)


def _fill_summary(event: ServerEvent, row: Row) -> None:
    delta = event.reasoning_summary_text_delta
    delta.summary_index = row.content_index
    _say(delta, row)


def _fill_refusal(event: ServerEvent, row: Row) -> None:
    delta = event.refusal_delta
    delta.content_index = row.content_index
    _say(delta, row)


def _fill_arguments(event: ServerEvent, row: Row) -> None:
    _say(event.function_call_arguments_delta, row)


def _fill_custom(event: ServerEvent, row: Row) -> None:
    _say(event.custom_tool_call_input_delta, row)


_FILL: Final = (_fill_text, _fill_reasoning, _fill_summary, _fill_refusal, _fill_arguments, _fill_custom)
