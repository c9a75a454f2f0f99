"""The store over a database: memory in front, so that what was put is found at once, and the database behind it.

Above it: the runtime, through the port. Below it: the store in memory, and the database, which a journal fills.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from turnwire.server.session.marks import UNKNOWN
from turnwire.server.session.state import State
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.transcript import Transcript
from turnwire.server.store.memory import MemoryStore
from turnwire.server.store.reading import Found, Mark, join, state_of
from turnwire.server.store.records import SegmentRecord
from turnwire.server.store.responses import digests, find_blobs, find_body, find_item, find_segment
from turnwire.server.store.writing import Segments

SEARCH_LIMIT: Final = 64
"""Items that one request may have looked for in the database."""


class DurableStore:
    """Keeps responses in memory as far as there is room, and finds the others in the database."""

    def __init__(
        self,
        memory: MemoryStore,
        connection: sqlite3.Connection,
        segments: Segments,
        graph: threading.Lock,
        tool_sets: ToolSets,
        *,
        caught_up: Callable[[], Awaitable[None]],
        deleted: Callable[[str, str], None],
        oldest: Callable[[], float],
    ) -> None:
        """Takes what it is made of.

        Args:
            memory: What stands in front.
            connection: One that may read; closed with `close`.
            segments: Segments of transcripts in memory.
            graph: Held while segments are read.
            tool_sets: Where tool sets are kept once.
            caught_up: Waits until everything recorded so far is in the database.
            deleted: Records a deletion; raises RequestError where that cannot be done.
            oldest: Says how old a response may be, as the moment that it was created at.
        """
        self._memory = memory
        self._db = connection
        self._segments = segments
        self._graph = graph
        self._tool_sets = tool_sets
        self._caught_up = caught_up
        self._deleted = deleted
        self._oldest = oldest
        self._deletions = 0
        self.mark: Mark = lambda item: UNKNOWN
        """Marks what is read, so that it is known when a client sends it once more; by default nothing is known."""

    def put(self, state: State) -> None:
        """Keeps a response in memory; whoever puts it has recorded it."""
        self._memory.put(state)

    async def get(self, principal: str, response_id: str) -> State | None:
        """Finds a response. Safe to cancel."""
        state = await self._memory.get(principal, response_id)
        if state is None:
            state = await self._read(principal, response_id)
        return None if state is None or state.created_at < self._oldest() else state

    async def delete(self, principal: str, response_id: str) -> bool:
        """Forgets a response; returns whether there was one. Safe to cancel: it is then either there or not.

        Raises:
            RequestError: `server_error`: the deletion cannot be recorded.
        """
        if await self.get(principal, response_id) is None:
            return False
        self._deleted(principal, response_id)
        self._deletions += 1
        await self._memory.delete(principal, response_id)
        return True

    def find_items(self, principal: str, ids: Collection[str]) -> dict[str, bytes]:
        """Finds items by their ids, serialized; safe from any thread."""
        found = self._memory.find_items(principal, ids)
        missing = [name for name in ids if name not in found]
        if missing:
            with self._graph:
                for name in missing[:SEARCH_LIMIT]:
                    data = find_item(self._db, principal, name)
                    if data is not None:
                        found[name] = data
        return found

    def close(self) -> None:
        """Closes the connection."""
        with self._graph:
            self._db.close()

    async def _read(self, principal: str, response_id: str) -> State | None:
        await self._caught_up()
        while True:
            deletions = self._deletions
            found = await asyncio.to_thread(self._find, principal, response_id)
            if found is None:
                return None
            # What came into memory meanwhile is newer, and what was deleted meanwhile must not come back.
            newer = await self._memory.get(principal, response_id)
            if newer is not None:
                return newer
            if deletions == self._deletions:
                break
            await self._caught_up()
        state = state_of(found, self._tool_sets)
        self._memory.put(state)
        return state

    def _find(self, principal: str, response_id: str) -> Found | None:
        with self._graph:
            self._db.execute("begin")
            try:
                record = find_body(self._db, principal, response_id)
                if record is None:
                    return None
                # Held all along, so that segments in memory stay there.
                transcript = self._transcript(record.head)
                before = self._transcript(record.before)
                resent = self._transcript(record.resent)
                earlier = self._transcript(record.earlier)
                return Found(record, transcript, before, resent, earlier, find_blobs(self._db, digests(record)))
            finally:
                self._db.execute("rollback")

    def _transcript(self, name: int) -> Transcript:
        rows: list[SegmentRecord] = []
        while (base := self._segments.find(name)) is None:
            rows.append(find_segment(self._db, name))
            name = rows[-1].parent
        return join(base, reversed(rows), self._segments, self.mark)
