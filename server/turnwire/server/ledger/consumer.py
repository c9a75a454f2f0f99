"""Consumes the journal: everything that may happen after `done`, in a thread of its own, while the next turn runs.

Above it: the recorder, which tells when something was appended, and the wiring. Below it: the journal, and the tables.
How far it came is committed with what it wrote, so that a record that is read twice after a crash is written once. What
it cannot write stays in the journal, and is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from turnwire.server.ledger.config import DataConfig
from turnwire.server.ledger.table import add_line, forget_before
from turnwire.server.store.journal import BEGINNING, Journal, JournalError, JournalReader, Position, framed
from turnwire.server.store.records import Deleted, Kept, Probed, decode
from turnwire.server.store.responses import AT_ONCE, ResponseWriter
from turnwire.server.store.writing import Segments

_log: Final = logging.getLogger(__name__)

BATCH: Final = 256
"""Records that one transaction takes."""
LINGER: Final = 0.02
"""Seconds to wait for company once something was appended: a transaction costs much the same for one and for many."""
SWEEP: Final = 60.0
"""Seconds between two looks for what is too old."""
_PATIENCE: Final = (0.1, 1.0, 5.0, 30.0)
"""Seconds before the next attempt, after so many failures."""
_POISON: Final = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
REJECTS: Final = "rejected.journal"
"""Where records go that no attempt could write."""


class Consumer:
    """Writes what the journal holds into the tables."""

    def __init__(
        self,
        config: DataConfig,
        journal: Journal,
        connection: sqlite3.Connection,
        segments: Segments,
        wall: Callable[[], float],
    ) -> None:
        """Takes the settings, the journal, a connection that may write, segments in memory, and the clock."""
        self._config = config
        self._journal = journal
        self._db = connection
        self._segments = segments
        self._wall = wall
        self._responses = ResponseWriter(connection)
        self._reader = JournalReader(config.folder, _position(connection))
        self._work = threading.Lock()
        """Held while records are consumed."""
        self.graph = threading.Lock()
        """Held while segments are read or removed, so that none goes that somebody is about to go on from."""
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._lingering = False
        """Whether the thread is woken anyway, before long."""
        self._moved = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._loose = True
        """Whether segments may have become unneeded."""
        self.position = self._reader.position
        """Everything before it is in the tables."""
        self._consumed = 0
        """Bytes of what this process appended that are in the tables."""
        self.failures = 0
        """Attempts that failed."""
        self.rejected = 0
        """Records that could not be written, and were put aside."""

    @property
    def lag_bytes(self) -> int:
        """Bytes that were appended and not consumed. From any thread."""
        return max(0, self._journal.bytes - self._consumed)

    def replay(self) -> int:
        """Consumes what an earlier process left, and ends what it had at work; returns how many responses that were.

        Raises:
            JournalError: The journal cannot be read.
            sqlite3.Error: The database cannot be written.
        """
        self.consume()
        self._consumed = 0
        self._db.execute("begin immediate")
        interrupted = self._responses.interrupt()
        self._db.execute("commit")
        return interrupted

    def start(self) -> None:
        """Begins to consume in a thread."""
        self._thread = threading.Thread(target=self._run, name="turnwire-ledger", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Hears, on the event loop's thread, that something was appended; the thread wakes after `LINGER`.

        A thread that woke now, only to wait for company, would wrestle for Python's lock while `done` is on its way.
        """
        if not self._lingering:
            self._lingering = True
            asyncio.get_running_loop().call_later(LINGER, self._lingered)

    def _lingered(self) -> None:
        self._lingering = False
        self._wake.set()

    def wait(self, position: Position, seconds: float) -> bool:
        """Waits until everything before a place is in the tables; blocks. Returns whether it came to that in time."""
        self._hurry.set()
        self._wake.set()
        with self._moved:
            return self._moved.wait_for(lambda: self.position >= position, seconds)

    def close(self) -> None:
        """Consumes what is left, ends the thread and closes the database. Idempotent."""
        self._stopping = True
        self._hurry.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        try:
            self.consume()
            self._db.execute("pragma wal_checkpoint(truncate)")
        except (sqlite3.Error, JournalError):
            _log.exception("the journal could not be consumed to its end; the next start will go on with it")
        self._db.close()

    def consume(self) -> None:
        """Consumes everything that was appended before the call.

        Raises:
            JournalError: The journal cannot be read.
            sqlite3.Error: The database cannot be written; nothing is lost, and the next call goes on from there.
        """
        with self._work:
            end = self._journal.end
            while self.position < end:
                self._batch(end, BATCH)
            if self._loose:
                self._collect()

    def sweep(self) -> None:
        """Lets go of what is too old or too much; raises as `consume`."""
        config = self._config
        with self._work:
            while old := self._responses.oldest(self._wall() - config.retention, config.max_responses):
                self._db.execute("begin immediate")
                for principal, response_id in old:
                    self._responses.delete(principal, response_id)
                self._db.execute("commit")
                self._loose = True
            before = self._wall() - config.usage_retention
            while forget_before(self._db, before, AT_ONCE) == AT_ONCE:
                pass
            self._collect()

    def _run(self) -> None:
        failed = 0
        swept = float("-inf")
        while not self._stopping:
            self._wake.wait(SWEEP)
            self._wake.clear()
            if failed:
                self._hurry.wait(_PATIENCE[min(failed, len(_PATIENCE)) - 1])
            self._hurry.clear()
            try:
                self.consume()
                if time.monotonic() - swept >= SWEEP:
                    self.sweep()
                    swept = time.monotonic()
                failed = 0
            except (sqlite3.Error, JournalError) as error:
                failed += 1
                self.failures += 1
                _log.error("the journal cannot be consumed, and grows: %s", error)
                self._wake.set()

    def _batch(self, end: Position, most: int) -> None:
        """Writes up to `most` records in one transaction; where one of them is to blame, each in its own."""
        db = self._db
        before = self._reader.position
        size = 0
        try:
            db.execute("begin immediate")
            for payload in islice(self._reader.read(end), most):
                self._apply(payload)
                size += framed(payload)
            db.execute(
                "insert or replace into meta (key, value) values ('position', ?)",
                (f"{self._reader.position.file}:{self._reader.position.offset}",),
            )
            db.execute("commit")
        except Exception as error:
            if db.in_transaction:
                db.execute("rollback")
            reached = self._reader.position
            self._reader = JournalReader(self._config.folder, before)
            if isinstance(error, JournalError) or (isinstance(error, sqlite3.Error) and not isinstance(error, _POISON)):
                raise
            if most > 1:
                for _ in range(most):
                    if self.position < end:
                        self._batch(end, 1)
                return
            size = self._reject(before, reached, error)
        self._consumed += size
        self._reached(before)

    def _apply(self, payload: bytes) -> None:
        record = decode(payload)
        match record:
            case Kept(spent=spent, state=state):
                if spent is not None:
                    add_line(self._db, spent)
                if state is not None:
                    self._responses.put(state, self._reader.position.file)
            case Deleted(principal=principal, response_id=response_id):
                self._responses.delete(principal, response_id)
                self._loose = True
            case Probed():
                pass

    def _reject(self, before: Position, reached: Position, error: Exception) -> int:
        """Puts a record aside that can never be written, so that it does not stand in the way of all others.

        Returns:
            Its size in the journal.
        """
        self.rejected += 1
        path = self._config.folder / REJECTS
        reader = JournalReader(self._config.folder, before)
        payload = next(reader.read(reached))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(fd, "wb") as file:
            file.write(len(payload).to_bytes(4, "little") + payload)
        _log.error("a record at %s cannot be written and was put into %s", before, path.name, exc_info=error)
        self._reader = reader
        return framed(payload)

    def _reached(self, before: Position) -> None:
        position = self._reader.position
        if position.file != before.file:
            self._journal.remove_before(position.file)
        with self._moved:
            self.position = position
            self._moved.notify_all()

    def _collect(self) -> None:
        self._loose = False
        with self.graph:
            self._db.execute("begin immediate")
            self._responses.collect(
                lambda name: self._segments.find(name) is not None,
                lambda: self._journal.end == self.position,
                self.position.file,
            )
            self._db.execute("commit")


def _position(connection: sqlite3.Connection) -> Position:
    row = connection.execute("select value from meta where key = 'position'").fetchone()
    if row is None:
        return BEGINNING
    file, _, offset = str(row[0]).partition(":")
    return Position(int(file), int(offset))
