"""Opens a data directory: takes hold of it, replays what an earlier process left, and begins to record.

Above it: the wiring. Below it: the journal, its consumer, the recorder, and the durable store.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from turnwire.server.ledger.budgets import Budgets, periods
from turnwire.server.ledger.config import DataConfig
from turnwire.server.ledger.consumer import Consumer
from turnwire.server.ledger.recorder import PriceOf, Recorder, Watch
from turnwire.server.ledger.table import used_since
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.visits import Visits
from turnwire.server.store.durable import DurableStore
from turnwire.server.store.journal import Journal, JournalError
from turnwire.server.store.memory import MemoryStore
from turnwire.server.store.schema import DatabaseError, open_reader, open_writer
from turnwire.server.store.writing import Segments, StateWriter

_log: Final = logging.getLogger(__name__)

LOCK: Final = "lock"
_PATIENCE: Final = 10.0
"""Seconds for which a look-up waits for the journal to be consumed."""


class DataError(Exception):
    """A data directory cannot be used; the text is for the operator."""


class Behind(Exception):
    """The database is too far behind the journal for a look-up to wait for it."""


class DataRoom:
    """An open data directory."""

    def __init__(
        self,
        config: DataConfig,
        budgets: Budgets,
        price: PriceOf,
        wall: Callable[[], float],
        tool_sets: ToolSets,
        watch: Watch | None = None,
        visits: Visits | None = None,
    ) -> None:
        """Opens it; blocks while what an earlier process left is replayed.

        Args:
            config: The settings.
            budgets: Gets what was used so far.
            price: Says the price of a resolved model.
            wall: The clock, in seconds since 1970-01-01 UTC.
            tool_sets: Where tool sets are kept once.
            watch: Hears of the journal.
            visits: Where items that are recorded are counted.

        Raises:
            DataError: It cannot be used, or another server does.
        """
        self._config = config
        with ExitStack() as stack:
            try:
                _make(config.folder)
                stack.callback(os.close, _lock(config.folder))
                self.journal = Journal(config.folder, fsync=config.fsync)
                stack.callback(self.journal.close)
                connection = open_writer(config.folder, durable=config.fsync)
                segments = Segments(first=1)
                self.consumer = consumer = Consumer(config, self.journal, connection, segments, wall)
                stack.callback(consumer.close)
                interrupted = consumer.replay()
                segments.next = connection.execute("select coalesce(max(id), 0) + 1 from segments").fetchone()[0]
                day, month = periods(wall())
                budgets.load(used_since(connection, day), used_since(connection, month))
                reader = open_reader(config.folder)
            except (JournalError, DatabaseError) as error:
                raise DataError(str(error)) from error
            except (OSError, sqlite3.Error) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                msg = f"{config.folder}: cannot be used as data directory: {reason}"
                raise DataError(msg) from error
            if interrupted:
                _log.warning(
                    "%d responses were at work when the server ended; they are told to have failed", interrupted
                )
            self.ledger = Recorder(config, self.journal, StateWriter(segments, visits), consumer, budgets, price, watch)
            self.store = DurableStore(
                MemoryStore(),
                reader,
                segments,
                consumer.graph,
                tool_sets,
                caught_up=self.caught_up,
                deleted=self.ledger.deleted,
                oldest=lambda: wall() - config.retention,
            )
            stack.callback(self.store.close)
            if config.overlapped:
                consumer.start()
            self._stack = stack.pop_all()

    async def caught_up(self) -> None:
        """Waits until everything recorded so far is in the database. Safe to cancel.

        Raises:
            Behind: It took too long.
            sqlite3.Error: The database cannot be written.
        """
        end = self.journal.end
        if self.consumer.position >= end:
            return
        if not self._config.overlapped:
            # It was tried before `done`, and failed.
            await asyncio.to_thread(self.consumer.consume)
        elif not await asyncio.to_thread(self.consumer.wait, end, _PATIENCE):
            msg = "the database is behind the journal"
            raise Behind(msg)

    async def aclose(self) -> None:
        """Consumes what is left and lets go of the directory. Idempotent; not to be cancelled."""
        await asyncio.to_thread(self._stack.close)


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        _log.warning("the data directory %s can be read by others (mode %03o); run chmod 700", folder, mode)


def _lock(folder: Path) -> int:
    """Takes hold of a directory for as long as the descriptor is open, whatever becomes of the process."""
    try:
        import fcntl
    except ImportError as error:
        msg = "a data directory needs POSIX file locks, which this system does not have"
        raise DataError(msg) from error
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(fd, 32).decode(errors="replace").strip()
        os.close(fd)
        msg = f"{folder}: another server (process {owner or 'unknown'}) is using this data directory"
        raise DataError(msg) from error
    os.ftruncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd
