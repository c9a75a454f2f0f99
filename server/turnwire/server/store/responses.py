"""Responses in the database: kept, deleted, found, and let go of by age and number.

Above it: the consumer of the journal, which writes, and the durable store, which reads. Below it: the schema and
records. Segments of transcripts are counted by who refers to them (responses, and segments that go on from them), so
that a response can go while others keep its items.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from turnwire.server.session.transcript import item_id
from turnwire.server.store.records import (
    EMPTY_SEGMENT,
    SegmentRecord,
    StateRecord,
    decode_segment,
    decode_state,
    encode,
)
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import ResponseError, ResponseStatus

AT_ONCE: Final = 500
"""Rows that one step of a sweep goes through."""
INTERRUPTED: Final = ResponseError(
    code="server_error", message="The server was restarted while the response was at work."
)
"""How responses end that were at work when their process ended."""

Alive = Callable[[int], bool]
"""Whether a segment is in memory, so that a response may come that goes on from it."""


class ResponseWriter:
    """Writes responses; within a transaction of its caller's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Takes a connection that may write."""
        self._db = connection

    def put(self, record: StateRecord, file: int) -> None:
        """Keeps a response, or replaces what was known of it. Doing it twice is doing it once.

        Args:
            record: The response.
            file: The journal's file that it comes from: what it names by a digest is not let go before that is done.
        """
        self._blobs(record.blobs, file)
        self._segments(record)
        row = msgspec.structs.replace(record, segments=[], blobs=[])
        earlier = self._body(record.principal, record.id)
        self._refer(row, 1)
        if earlier is not None:
            self._refer(earlier, -1)
        self._db.execute(
            "insert or replace into responses (principal, id, created_at, status, body) values (?, ?, ?, ?, ?)",
            (row.principal, row.id, row.created_at, row.status, encode(row)),
        )

    def delete(self, principal: str, response_id: str) -> bool:
        """Forgets a response, but for what others need of it; returns whether there was one."""
        earlier = self._body(principal, response_id)
        if earlier is None:
            return False
        self._refer(earlier, -1)
        self._db.execute("delete from responses where principal = ? and id = ?", (principal, response_id))
        self._db.execute("delete from items where principal = ? and response = ?", (principal, response_id))
        return True

    def interrupt(self) -> int:
        """Ends every response that is told to be at work; returns how many there were."""
        rows = self._db.execute(
            "select body from responses where status in (?, ?)",
            (ResponseStatus.RESPONSE_STATUS_IN_PROGRESS, ResponseStatus.RESPONSE_STATUS_QUEUED),
        ).fetchall()
        for (body,) in rows:
            record = decode_state(body)
            record.status = ResponseStatus.RESPONSE_STATUS_FAILED
            record.error = INTERRUPTED.SerializeToString()
            self._db.execute(
                "update responses set status = ?, body = ? where principal = ? and id = ?",
                (record.status, encode(record), record.principal, record.id),
            )
        return len(rows)

    def oldest(self, before: float, keep: int) -> list[tuple[str, str]]:
        """Returns some responses, principal and id, that are older than a moment or more than may be kept."""
        old = self._db.execute(
            "select principal, id from responses where created_at < ? order by created_at limit ?", (before, AT_ONCE)
        ).fetchall()
        if old:
            return old
        count = self._db.execute("select count(*) from responses").fetchone()[0]
        if count <= keep:
            return []
        return self._db.execute(
            "select principal, id from responses order by created_at limit ?", (min(AT_ONCE, count - keep),)
        ).fetchall()

    def collect(self, alive: Alive, settled: Callable[[], bool], file: int) -> int:
        """Removes segments and blobs that nothing refers to; returns how many segments.

        Args:
            alive: Which segments must stay because they are in memory.
            settled: Whether all that was recorded is in the database. Asked after `alive`: then nothing can refer to
                what is not in memory.
            file: The journal's file that is being read: what an earlier one named may go.
        """
        removed = 0
        last = -1
        while rows := self._db.execute(
            "select id, parent from segments where refs = 0 and id > ? order by id limit ?", (last, AT_ONCE)
        ).fetchall():
            last = rows[-1][0]
            gone = [(name, parent) for name, parent in rows if not alive(name)]
            if not settled():
                return removed
            for name, parent in gone:
                self._db.execute("delete from segments where id = ?", (name,))
                self._db.execute("update segments set refs = refs - 1 where id = ?", (parent,))
                # A parent has a lower name, which this round has passed.
                last = min(last, parent - 1) if parent else last
            removed += len(gone)
        self._db.execute("delete from blobs where refs <= 0 and file < ?", (file,))
        return removed

    def _blobs(self, blobs: Iterable[tuple[bytes, bytes]], file: int) -> None:
        self._db.executemany(
            "insert into blobs (digest, data, refs, file) values (?, ?, 0, ?)"
            " on conflict (digest) do update set file = max(file, excluded.file)",
            [(digest, data, file) for digest, data in blobs],
        )

    def _segments(self, record: StateRecord) -> None:
        for segment in record.segments:
            added = self._db.execute(
                "insert or ignore into segments (id, parent, refs, body) values (?, ?, 0, ?)",
                (segment.id, segment.parent, encode(segment)),
            ).rowcount
            if added <= 0:
                continue
            self._db.execute("update segments set refs = refs + 1 where id = ?", (segment.parent,))
            self._db.executemany(
                "insert or ignore into items (principal, item, response, segment, position) values (?, ?, ?, ?, ?)",
                [(record.principal, name, record.id, segment.id, position) for name, position in _named(segment)],
            )

    def _body(self, principal: str, response_id: str) -> StateRecord | None:
        return find_body(self._db, principal, response_id)

    def _refer(self, row: StateRecord, change: int) -> None:
        names = [(change, name) for name in (row.head, row.before, row.resent, row.earlier) if name != EMPTY_SEGMENT]
        self._db.executemany("update segments set refs = refs + ? where id = ?", names)
        self._db.executemany("update blobs set refs = refs + ? where digest = ?", [(change, d) for d in digests(row)])


def digests(row: StateRecord) -> list[bytes]:
    """Returns what a row names by a digest."""
    return [row.settings, *([row.tools] if row.tools else []), *(listing.digest for listing in row.listings)]


def _named(segment: SegmentRecord) -> Iterable[tuple[str, int]]:
    for position, entry in enumerate(segment.entries):
        name = item_id(Item.FromString(entry.data))
        if name:
            yield name, position


def find_body(connection: sqlite3.Connection, principal: str, response_id: str) -> StateRecord | None:
    """Finds what the table keeps of a response."""
    row = connection.execute(
        "select body from responses where principal = ? and id = ?", (principal, response_id)
    ).fetchone()
    return None if row is None else decode_state(row[0])


def find_segment(connection: sqlite3.Connection, name: int) -> SegmentRecord:
    """Finds a segment; raises LookupError where there is none, which means that the database is damaged."""
    row = connection.execute("select body from segments where id = ?", (name,)).fetchone()
    if row is None:
        msg = f"segment {name} is missing"
        raise LookupError(msg)
    return decode_segment(row[0])


def find_blobs(connection: sqlite3.Connection, wanted: Collection[bytes]) -> dict[bytes, bytes]:
    """Finds what digests stand for; raises LookupError where one is missing."""
    found: dict[bytes, bytes] = {}
    for digest in wanted:
        row = connection.execute("select data from blobs where digest = ?", (digest,)).fetchone()
        if row is None:
            msg = f"blob {digest.hex()} is missing"
            raise LookupError(msg)
        found[digest] = row[0]
    return found


def find_item(connection: sqlite3.Connection, principal: str, item: str) -> bytes | None:
    """Finds an item by its id among the responses of a principal, serialized."""
    row = connection.execute(
        "select segment, position from items where principal = ? and item = ? limit 1", (principal, item)
    ).fetchone()
    if row is None:
        return None
    position: int = row[1]
    return find_segment(connection, row[0]).entries[position].data
