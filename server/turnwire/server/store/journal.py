"""The journal: what must not be lost, appended to a file by one write before anybody hears of it.

Above it: the recorder, which appends, and the consumer, which reads what was appended. Below it: files. A record is in
the hands of the operating system when `append` returns, so that it survives the process (kill -9); with `fsync` it
survives the machine too.

A file is named `journal-` and its number in eight digits, and is

    magic "TWJ" and version, 4 bytes | records, each: length, 4 bytes | CRC-32 of length and payload, 4 bytes | payload

with numbers in little-endian order. A record that was torn by the end of a process or of the machine is recognised by
its length or its checksum, and is cut off at the next start. No file is appended to by a second process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_log: Final = logging.getLogger(__name__)

MAGIC: Final = b"TWJ\x01"
MAX_RECORD: Final = 1024 * 1024 * 1024
"""Bytes of the largest payload."""
_FRAME: Final = struct.Struct("<II")
_NAME: Final = re.compile(r"journal-(\d{8})")
_CHUNK: Final = 1024 * 1024


def framed(payload: bytes) -> int:
    """Returns the bytes that a record takes in the journal."""
    return _FRAME.size + len(payload)


class Position(NamedTuple):
    """A place between two records; places are in order."""

    file: int
    offset: int


BEGINNING: Final = Position(0, 0)
"""Before every record."""


class JournalError(Exception):
    """A record could not be written, or a file cannot be read; the text is for the operator."""


class Journal:
    """Appends records. Not safe to use from several threads at once; what was appended may be read from any."""

    def __init__(self, folder: Path, *, fsync: bool = False, file_bytes: int = 64 * 1024 * 1024) -> None:
        """Opens the journal of a folder, after cutting off what was torn.

        Args:
            folder: Where the files are; nobody else may write there.
            fsync: Whether each record is flushed to the disk before `append` returns: milliseconds instead of
                microseconds.
            file_bytes: Size after which the next file is begun.

        Raises:
            JournalError: A file cannot be read, or is of another version.
        """
        self._folder = folder
        self._fsync = fsync
        self._file_bytes = file_bytes
        self._fd = -1
        self._torn = False
        """Whether the file may hold part of a record that could not be written."""
        self.bytes = 0
        """Bytes appended by this process."""
        self.records = 0
        """Records appended by this process."""
        try:
            files = journal_files(folder)
            for path in files.values():
                _cut(path)
            files = journal_files(folder)
            last = max(files, default=0)
            size = files[last].stat().st_size if files else 0
        except OSError as error:
            msg = f"{error.filename or folder}: cannot be read: {error.strerror}"
            raise JournalError(msg) from error
        self.end = Position(last, size)
        """Behind the last record."""

    def roll(self) -> int:
        """Begins the next file if the current one is full; returns the number of the file that `append` writes to.

        Raises:
            JournalError: The next file cannot be made.
        """
        if self._fd < 0 or self.end.offset >= self._file_bytes:
            self._next()
        return self.end.file

    def append(self, payload: bytes) -> Position:
        """Appends a record by one write, and returns the place behind it.

        Raises:
            JournalError: It could not be written; the journal is as it was.
        """
        if self._fd < 0:
            self._next()
        if len(payload) > MAX_RECORD:
            msg = f"a record of {len(payload)} bytes is larger than {MAX_RECORD}"
            raise JournalError(msg)
        start = self.end.offset
        data = _frame(payload) + payload
        try:
            if self._torn:
                os.ftruncate(self._fd, start)
                self._torn = False
            written = os.write(self._fd, data)
            if written != len(data):
                self._torn = True
                # A second write says why, where the first one only stopped.
                os.write(self._fd, data[written:])
                raise OSError(0, f"only {written} of {len(data)} bytes were written")
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError as error:
            self._torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
                self._torn = False
            msg = f"{self._path(self.end.file)}: cannot be written: {error.strerror or error}"
            raise JournalError(msg) from error
        self.bytes += len(data)
        self.records += 1
        self.end = Position(self.end.file, start + len(data))
        return self.end

    def remove_before(self, file: int) -> None:
        """Removes the files before one, which are not needed any more."""
        for number, path in journal_files(self._folder).items():
            if number < file:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        """Returns the descriptor of the file that is written to; -1 before the first record."""
        return self._fd

    def _path(self, number: int) -> Path:
        return self._folder / f"journal-{number:08d}"

    def _next(self) -> None:
        path = self._path(self.end.file + 1)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, MAGIC) != len(MAGIC):
                    raise OSError(0, "no space for a header")
                if self._fsync:
                    os.fsync(fd)
                    _sync_folder(self._folder)
            except OSError:
                os.close(fd)
                path.unlink()
                raise
        except OSError as error:
            msg = f"{path}: cannot be made: {error.strerror or error}"
            raise JournalError(msg) from error
        self.close()
        self._fd = fd
        self._torn = False
        self.end = Position(self.end.file + 1, len(MAGIC))


class JournalReader:
    """Reads what was appended, in order; keeps one file open. Not safe to use from several threads at once."""

    def __init__(self, folder: Path, position: Position) -> None:
        """Begins at a place."""
        self._folder = folder
        self.position = position
        """Behind the last record that was read."""

    def read(self, end: Position) -> Iterator[bytes]:
        """Yields the payloads up to a place that `append` has returned; `position` follows.

        Raises:
            JournalError: A record is damaged, or a file cannot be read.
        """
        for number, path in sorted(journal_files(self._folder).items()):
            if number < self.position.file or number > end.file:
                continue
            start = self.position.offset if number == self.position.file else 0
            limit = end.offset if number == end.file else None
            try:
                for payload, offset in read_file(path, start, limit):
                    self.position = Position(number, offset)
                    yield payload
            except OSError as error:
                msg = f"{path}: cannot be read: {error.strerror}"
                raise JournalError(msg) from error
        # Behind a file without records too, so that the ones before it can go.
        self.position = max(self.position, end)


def journal_files(folder: Path) -> dict[int, Path]:
    """Finds the files of a folder, by number, in order."""
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if (match := _NAME.fullmatch(path.name)) is not None:
            found[int(match[1])] = path
    return found


def read_file(path: Path, start: int = 0, limit: int | None = None) -> Iterator[tuple[bytes, int]]:
    """Yields the payloads of a file and the offsets behind them.

    Args:
        path: The file.
        start: Where to begin; 0 is the beginning.
        limit: Where to end; None is the end of the file.

    Raises:
        JournalError: A record is damaged or torn.
        OSError: It cannot be read.
    """
    with path.open("rb", buffering=_CHUNK) as file:
        if start < len(MAGIC):
            start = len(MAGIC)
            if file.read(start) != MAGIC:
                msg = f"{path}: is no journal that this version can read"
                raise JournalError(msg)
        file.seek(start)
        offset = start
        while limit is None or offset < limit:
            head = file.read(_FRAME.size)
            if not head:
                return
            length, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (MAX_RECORD + 1, 0)
            payload = file.read(length) if length <= MAX_RECORD else b""
            if len(payload) != length or zlib.crc32(payload, zlib.crc32(head[:4])) != checksum:
                msg = f"{path}: is damaged at byte {offset}"
                raise JournalError(msg)
            offset += _FRAME.size + length
            yield payload, offset


def _frame(payload: bytes) -> bytes:
    length = len(payload).to_bytes(4, "little")
    return _FRAME.pack(len(payload), zlib.crc32(payload, zlib.crc32(length)))


def _cut(path: Path) -> None:
    """Cuts off a record that was torn, with whatever follows it; what is cut is kept beside the file."""
    size = path.stat().st_size
    good = len(MAGIC)
    if size < good:
        _log.warning("%s: was begun and not written to; removed", path)
        path.unlink()
        return
    try:
        for _, offset in read_file(path):
            good = offset
    except JournalError:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise
            file.seek(good)
            rest = file.read()
        kept = path.with_suffix(".cut")
        fd = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "wb") as copy:
            copy.write(rest)
        os.truncate(path, good)
        _log.warning("%s: the last %d bytes are no whole record; cut off, and kept in %s", path, len(rest), kept.name)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
