"""The events of one response, kept so that readers can follow it from any point: bounded in bytes, for any number of
readers.

Above it: `background`. Below it: nothing but the messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.v1.responses_service_pb2 import FollowResponseResponse
from turnwire.v1.server_event_pb2 import ServerEvent

_PART_BEGINS: Final = frozenset({"content_part_added", "reasoning_summary_part_added"})
_PART_ENDS: Final = frozenset({"content_part_done", "reasoning_summary_part_done"})
_ITEM_ENDS: Final = frozenset({"output_item_done", "output_item_truncated"})


class EventsGone(Exception):
    """Raised to a reader who asks for events that are not kept any more."""


@dataclass(slots=True)
class _Open:
    """What a reader must have seen at some point: what announced the open item, without which its deltas mean nothing,
    and the end, without which the stream has none."""

    item: ServerEvent | None = None
    part: ServerEvent | None = None
    end: ServerEvent | None = None

    def see(self, event: ServerEvent) -> None:
        """Goes past an event."""
        kind = event.WhichOneof("event")
        if kind == "output_item_added":
            self.item = event
        elif kind in _PART_BEGINS:
            self.part = event
        elif kind in _PART_ENDS:
            self.part = None
        elif kind in _ITEM_ENDS:
            self.item = self.part = None
        elif kind == "done":
            self.end = event

    def events(self) -> list[ServerEvent]:
        """Returns these events, in order."""
        return [event for event in (self.item, self.part, self.end) if event is not None]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some events as they came. Serialized, since messages take several times the memory."""

    last: int
    """Sequence number of the last event."""
    data: bytes

    def events(self) -> list[ServerEvent]:
        return list(FollowResponseResponse.FromString(self.data).events)


class EventLog:
    """The events of one response at full verbosity, `created` first; the oldest are let go when there are too many."""

    def __init__(self, max_bytes: int) -> None:
        """Takes how many bytes of events are kept at most; the newest chunk is kept whatever its size."""
        self._max_bytes = max_bytes
        self._chunks: deque[_Chunk] = deque()
        self._dropped = 0
        """How many chunks were let go."""
        self._dropped_to = -1
        """Sequence number of the last event that was let go."""
        self._open_before = _Open()
        """What is open where the kept chunks begin."""
        self.created = ServerEvent()
        """The first event, which is never let go."""
        self._news = asyncio.Event()
        self.bytes = 0
        """Bytes of events kept."""
        self.closed = False
        """Whether nothing more comes."""
        self._gone = False

    def add(self, events: Sequence[ServerEvent]) -> None:
        """Takes the next events; the first one ever is `created`."""
        if not self._chunks and not self._dropped:
            self.created.CopyFrom(events[0])
        chunk = _Chunk(events[-1].sequence_number, FollowResponseResponse(events=events).SerializeToString())
        self._chunks.append(chunk)
        self.bytes += len(chunk.data)
        while self.bytes > self._max_bytes and self.shorten():
            pass
        self._tell()

    def close(self) -> None:
        """Hears that nothing more comes."""
        self.closed = True
        self._tell()

    def shorten(self) -> bool:
        """Lets go of the oldest chunk; returns False where only the newest is left."""
        if len(self._chunks) <= 1:
            return False
        chunk = self._chunks.popleft()
        for event in chunk.events():
            self._open_before.see(event)
        self._dropped += 1
        self._dropped_to = chunk.last
        self.bytes -= len(chunk.data)
        return True

    def clear(self) -> None:
        """Lets go of everything; who reads is told so."""
        self._chunks.clear()
        self.bytes = 0
        self.closed = self._gone = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self, starting_after: int | None) -> AsyncGenerator[list[ServerEvent], None]:
        """Yields the events after a sequence number, None for all, and those to come, to the last one.

        A reader who joins in the middle first gets again what the rest cannot be understood without: `created`, and
        the announcements of the item and the part that are open there; and `done` at the end of all, if it lies before.
        Their sequence numbers tell them apart.

        Raises:
            EventsGone: Events that it has to yield are not kept any more.
        """
        after = -1 if starting_after is None else starting_after
        if self._gone or after < self._dropped_to:
            raise EventsGone
        position = self._dropped
        if after >= 0:
            position, beginning = self._join(after)
            yield beginning
        while True:
            news = self._news
            # Chunks may be let go while a reader is away.
            if self._gone or position < self._dropped:
                raise EventsGone
            if position < self._dropped + len(self._chunks):
                chunk = self._chunks[position - self._dropped]
                position += 1
                yield chunk.events()
            elif self.closed:
                return
            else:
                await news.wait()

    def _join(self, after: int) -> tuple[int, list[ServerEvent]]:
        """Returns the chunk to go on with after a sequence number, and what comes before it."""
        still_open = _Open(self._open_before.item, self._open_before.part)
        for index, chunk in enumerate(self._chunks, start=1):
            rest: list[ServerEvent] = []
            for event in chunk.events():
                if event.sequence_number <= after:
                    still_open.see(event)
                else:
                    rest.append(event)
            if rest:
                return self._dropped + index, [self.created, *still_open.events(), *rest]
        return self._dropped + len(self._chunks), [self.created, *still_open.events()]
