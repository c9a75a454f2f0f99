"""The tables of the database, and how it is opened.

Above it: whoever reads or writes tables. Below it: sqlite3. One thread writes, any may read on connections of its own
(write-ahead logging). Each statement gives other threads their turn, so that nobody waits for a writer's whole batch.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

NAME: Final = "turnwire.db"
VERSION: Final = 1
"""In the `user_version` of the file."""
_BUSY: Final = 5.0
"""Seconds to wait for somebody else's lock, such as a backup's."""

_TABLES: Final = """
create table meta (key text primary key, value blob) without rowid;

create table blobs (digest blob primary key, data blob not null, refs integer not null, file integer not null);

create table segments (id integer primary key, parent integer not null, refs integer not null, body blob not null);
create index loose_segments on segments (id) where refs = 0;

create table responses (
  principal text not null,
  id text not null,
  created_at real not null,
  status integer not null,
  body blob not null,
  primary key (principal, id)
);
create index responses_by_age on responses (created_at);

create table items (
  principal text not null,
  item text not null,
  response text not null,
  segment integer not null,
  position integer not null,
  primary key (principal, item, response)
) without rowid;
create index items_by_response on items (principal, response);

create table ledger (
  response_id text not null,
  pass integer not null,
  created_at real not null,
  ended_at real not null,
  door text not null,
  principal text not null,
  model text not null,
  outcome text not null,
  error_code text not null,
  input_tokens integer not null,
  cached_tokens integer not null,
  output_tokens integer not null,
  reasoning_tokens integer not null,
  estimated integer not null,
  price real,
  currency text not null,
  end_user text not null,
  labels text not null,
  metadata text not null,
  queued real not null,
  pre_inference real not null,
  first_token real,
  inference real not null,
  hosted_tools real not null,
  client_wait real not null,
  post_inference real not null,
  stalled real not null,
  primary key (response_id, pass)
);
create index ledger_by_time on ledger (ended_at);
create index ledger_by_principal on ledger (principal, ended_at);
"""


class DatabaseError(Exception):
    """The database cannot be used; the text is for the operator."""


def open_writer(folder: Path, *, durable: bool) -> sqlite3.Connection:
    """Opens the database for writing, and makes it where there is none.

    Args:
        folder: The data directory.
        durable: Whether what was committed survives the machine and not only the process.

    Raises:
        DatabaseError: It is of a newer version, damaged, or cannot be opened.
    """
    path = folder / NAME
    try:
        # Made here, since the log beside it gets the same permissions.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
        _check_version(connection, path)
    except (OSError, sqlite3.Error) as error:
        msg = f"{path}: cannot be used: {error}"
        raise DatabaseError(msg) from error
    return connection


def open_reader(folder: Path) -> sqlite3.Connection:
    """Opens the database for reading, beside a server that writes or without one.

    Raises:
        DatabaseError: There is none, it is of a newer version, damaged, or cannot be opened.
    """
    path = folder / NAME
    try:
        if not path.is_file():
            msg = f"{path}: there is no database here"
            raise DatabaseError(msg)
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=_BUSY,
            isolation_level=None,
            check_same_thread=False,
        )
        found = connection.execute("pragma user_version").fetchone()[0]
    except (OSError, sqlite3.Error) as error:
        msg = f"{path}: cannot be used: {error}"
        raise DatabaseError(msg) from error
    if found != VERSION:
        connection.close()
        msg = f"{path}: is of version {found}, this is a server of version {VERSION}"
        raise DatabaseError(msg)
    return connection


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("pragma user_version").fetchone()[0]
    if found == 0:
        connection.executescript(f"begin; {_TABLES} pragma user_version = {VERSION}; commit;")
    elif found != VERSION:
        msg = f"{path}: is of version {found}, this is a server of version {VERSION}"
        raise DatabaseError(msg)
