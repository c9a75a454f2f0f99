"""What a client received, sorted into streams, with the rules that hold for every session checked on the way.

Above: the player and the drivers. Below: nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from google.protobuf.json_format import MessageToDict

from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent

Event = dict[str, Any]

_ANSWERS = frozenset({"appended", "steer_accepted"})
"""Events that name a response and stand outside its stream, since they overtake text that waits."""


class Doorbell:
    """Tells whoever waits that something has changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wakes everyone who waits."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Waits for the next ring. Safe to cancel."""
        await self._event.wait()


class Inbox:
    """The events of one session that no expectation has taken yet."""

    def __init__(self, bell: Doorbell) -> None:
        self.answers: deque[Event] = deque()
        """Events that belong to no response's stream."""
        self.streams: dict[int, deque[Event]] = {}
        """The streams of responses by handle."""
        self.unnamed: deque[int] = deque()
        """Handles whose `created` no expectation has taken."""
        self.last_event_id = 0
        self.received = 0
        self.status = ""
        """How the stream ended; empty while it goes on."""
        self._bell = bell
        self._sequence: dict[int, int] = {}
        self._over: set[int] = set()

    def take(self, batch: ConnectResponse) -> None:
        """Takes a batch."""
        assert batch.first_event_id == self.last_event_id + 1, "event ids have a gap"
        assert batch.events, "a batch without events"
        self.last_event_id += len(batch.events)
        self.received += len(batch.events)
        for event in batch.events:
            self._sort(event)
        self._bell.ring()

    def _sort(self, event: ServerEvent) -> None:
        kind = event.WhichOneof("event") or ""
        shown = MessageToDict(event, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        handle = event.response
        if not handle or kind in _ANSWERS:
            self.answers.append(shown)
            return
        if handle not in self.streams:
            assert kind == "created", f"{kind} of response {handle} before created"
            self.streams[handle] = deque()
            self.unnamed.append(handle)
        else:
            assert kind != "created", f"response {handle} was created twice"
        assert handle not in self._over, f"{kind} of response {handle} after its end"
        assert event.sequence_number > self._sequence.get(handle, -1), f"{kind}: sequence numbers go back"
        self._sequence[handle] = event.sequence_number
        if kind == "done" and event.done.reason != DoneReason.DONE_REASON_TOOL_CALLS:
            self._over.add(handle)
        self.streams[handle].append(shown)

    def end(self, status: str) -> None:
        """Hears that the stream is over."""
        self.status = self.status or status
        self._bell.ring()

    def rest(self) -> list[Event]:
        """Lists what no expectation has taken."""
        return [*self.answers, *(event for stream in self.streams.values() for event in stream)]
