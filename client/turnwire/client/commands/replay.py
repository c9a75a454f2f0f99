"""Sends what a transcript's client said once more, to a server that may answer otherwise.

The ids a server made up then (responses, items, calls) are not those it makes up now, and later requests name them. So
both runs are read side by side: what was made at the same place is the same thing. A request goes out when everything
that had been answered before it then has been answered now, or nothing more will come, or it takes too long.

Above it: `turnwire events`. Below it: transcripts. No I/O but a clock and a wait that are given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

from google.protobuf import json_format

from turnwire.client._fold import call_id_of
from turnwire.client.commands.outcomes import RequestKeys
from turnwire.client.commands.transcript import Transcript, to_dict
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent

_SKIPPED: Final = frozenset({"ack", "credit"})
"""Said by whoever reads, at that one's own pace."""


class Landmarks:
    """What one run has answered so far: places, the same in every run, and the ids made up there."""

    def __init__(self) -> None:
        """Starts with nothing."""
        self.ids: dict[str, str] = {}
        """Place to id."""
        self.passed: set[str] = set()
        """Places that were reached."""
        self._keys: Final = RequestKeys()
        self._responses: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def read(self, batch: ConnectResponse) -> None:
        """Takes a batch in."""
        for event in batch.events:
            for place, made_up in self._places(event):
                self.passed.add(place)
                if made_up:
                    self.ids[place] = made_up

    def _places(self, event: ServerEvent) -> Iterator[tuple[str, str]]:
        kind = event.WhichOneof("event")
        if kind == "created":
            key = self._keys.of("create", event.created.request_id)
            if event.response:
                self._responses[event.response] = key
            yield key, event.created.response.id
        elif kind == "output_item_done":
            where = f"{self._responses.get(event.response)} item {event.output_item_done.output_index}"
            yield from _item_places(where, event.output_item_done.item)
        elif kind == "output_item_truncated":
            where = f"{self._responses.get(event.response)} item {event.output_item_truncated.output_index}"
            yield f"{where} id", event.output_item_truncated.item_id
            yield f"{where} call", event.output_item_truncated.call_id
        elif kind == "done":
            where = self._count(f"{self._responses.get(event.response)} done")
            yield where, ""
            for number, item in enumerate(event.done.output):
                yield from _item_places(f"{where} item {number}", item)
        elif kind in ("opened", "appended", "rejected", "pong"):
            yield self._count(f"{event.response and self._responses.get(event.response)} {kind}"), ""

    def _count(self, what: str) -> str:
        self._counts[what] = self._counts.get(what, 0) + 1
        return f"{what} {self._counts[what]}"


class Replay:
    """The requests of a transcript, ready to be sent again."""

    def __init__(self, transcript: Transcript, *, full_speed: bool, patience: float) -> None:
        """Takes what to send.

        Args:
            transcript: The earlier run.
            full_speed: Whether to send as soon as the answers allow, rather than at the recorded times.
            patience: Seconds to wait for answers that came then, before going on without them.
        """
        self._transcript: Final = transcript
        self._full_speed: Final = full_speed
        self._patience: Final = patience
        self.now: Final = Landmarks()
        """What this run has answered; feed it every batch."""

    async def requests(
        self, until_changed: Callable[[], Awaitable[None]], idle: Callable[[], bool], clock: Callable[[], float]
    ) -> AsyncIterator[ConnectRequest]:
        """Yields the requests, ids mapped, each when its time has come. Cancelling it is safe.

        Args:
            until_changed: Waits until another batch was fed.
            idle: Whether nothing more will come unless something is sent.
            clock: The present moment, in seconds.
        """
        then = Landmarks()
        started = clock()
        read = 0
        for place, entry, request in self._transcript.requests():
            for earlier in self._transcript.entries[read:place]:
                if isinstance(earlier.message, ConnectResponse):
                    then.read(earlier.message)
            read = place
            if request.WhichOneof("event") in _SKIPPED:
                continue
            try:
                async with asyncio.timeout(self._patience):
                    while not then.passed <= self.now.passed and not idle():
                        await until_changed()
            except TimeoutError:
                # What came then does not come now; that is a difference to be shown, not a reason to stop.
                pass
            if not self._full_speed:
                await asyncio.sleep(max(entry.seconds - (clock() - started), 0.0))
            yield self._mapped(request, then)

    def _mapped(self, request: ConnectRequest, then: Landmarks) -> ConnectRequest:
        ids = {made_up: self.now.ids[place] for place, made_up in then.ids.items() if place in self.now.ids}
        if not ids:
            return request
        return json_format.ParseDict(_replaced(to_dict(request), ids), ConnectRequest())


def _item_places(where: str, item: Item) -> Iterator[tuple[str, str]]:
    kind = item.WhichOneof("kind")
    made_up: str = getattr(getattr(item, kind), "id", "") if kind else ""
    yield f"{where} id", made_up
    yield f"{where} call", call_id_of(item)


def _replaced(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, list):
        return [_replaced(each, ids) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {name: _replaced(each, ids) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value
