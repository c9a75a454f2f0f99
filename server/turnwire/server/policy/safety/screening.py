"""The local classifier as part of the checks of a request: beside them, in whatever thread they run.

Above it: the runtime, which calls it as it calls the checks themselves. Below it: the checks, and the screener. Items
are looked at by themselves here, however long they are; the core joins what was found to what it remembers of the
chain. Instructions and tools come again with every turn, so what was found in them is kept by their hash, and by the
version of the rules that found it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

from google.protobuf.message import Message

from turnwire.server.media.found import NOTHING, Found
from turnwire.server.policy.port import RequestPolicy
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.effects import Prepare, Prepared
from turnwire.server.session.screens import SILENCE, Hit, Screener
from turnwire.server.session.transcript import Entry
from turnwire.server.session.visits import Visits
from turnwire.v1.item_pb2 import Item

_REMEMBERED: Final = 512
"""Instructions and tool sets whose hits are kept."""


class Versioned(Screener, Protocol):
    """A classifier whose rules may change."""

    @property
    def version(self) -> str:
        """Tells its rules from others."""
        ...


class ScreeningPolicy:
    """Checks requests, and looks at what passes. Safe to use from several threads at once."""

    def __init__(
        self,
        checks: RequestPolicy,
        screener: Versioned,
        *,
        incremental: bool = True,
        observe: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Takes what checks, and what looks.

        Args:
            checks: The checks.
            screener: The classifier.
            incremental: Whether what was looked at once is not looked at again.
            observe: Hears how many seconds each request took to be looked at; from any thread.
        """
        self._checks = checks
        self._screener = screener
        self._incremental = incremental
        self._observe = observe
        self._known: OrderedDict[bytes, tuple[Hit, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, request: Prepare, found: Found = NOTHING) -> Prepared:
        """Checks a create and looks at what it brings; raises what the checks raise."""
        ready = self._checks.prepare(request, found)
        started = time.perf_counter()
        self._look_at(ready.entries, request.visits)
        hits = self._kept(request.settings.instructions.encode(), lambda: (request.settings.instructions,))
        tools = request.tools
        hits += self._kept(tools.data, lambda: _strings(tools.parsed()))
        self._observe(time.perf_counter() - started)
        return replace(ready, hits=hits) if hits else ready

    def prepare_append(
        self,
        items: Sequence[Item],
        visits: Visits,
        conversations: Conversations | None,
        model: str = "",
        found: Found = NOTHING,
    ) -> tuple[Entry, ...]:
        """Checks appended items and looks at them; raises what the checks raise."""
        entries = self._checks.prepare_append(items, visits, conversations, model, found)
        started = time.perf_counter()
        self._look_at(entries, visits)
        self._observe(time.perf_counter() - started)
        return entries

    def _look_at(self, entries: Sequence[Entry], visits: Visits) -> None:
        for entry in entries:
            entry.screened = self._screener.screen(entry.item())
        if entries:
            visits.note("classify", len(entries), sum(len(entry.data) for entry in entries))

    def _kept(self, data: bytes, texts: Callable[[], Iterable[str]]) -> tuple[Hit, ...]:
        if not data:
            return ()
        key = hashlib.blake2b(data, digest_size=16, key=self._screener.version.encode()).digest()
        if self._incremental:
            with self._lock:
                known = self._known.get(key)
                if known is not None:
                    self._known.move_to_end(key)
                    return known
        screened = [one for text in texts() for one in self._screener.screen_text(text)]
        hits = self._screener.follow(SILENCE, screened)[1]
        with self._lock:
            self._known[key] = hits
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return hits


def _strings(message: Message) -> Iterator[str]:
    """Yields all texts of a message, wherever they stand."""
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            yield from (text for pair in value.items() for text in pair if isinstance(text, str))
            continue
        for one in value if field.is_repeated else (value,):
            if isinstance(one, str):
                yield one
            elif isinstance(one, Message):
                yield from _strings(one)
