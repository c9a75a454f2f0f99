"""The journal: one write a record, torn ends recognised, files that turn over, and failures that change nothing."""

from __future__ import annotations

import os
import random
import resource
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from turnwire.server.store.journal import (
    BEGINNING,
    Journal,
    JournalError,
    JournalReader,
    Position,
    journal_files,
    read_file,
)


def records(folder: Path, end: Position, start: Position = BEGINNING) -> list[bytes]:
    return list(JournalReader(folder, start).read(end))


@contextmanager
def instead(journal: Journal, path: str, flags: int) -> Generator[None]:
    """Lets the journal's descriptor stand for another file."""
    kept = os.dup(journal.fileno())
    other = os.open(path, flags)
    os.dup2(other, journal.fileno())
    try:
        yield
    finally:
        os.dup2(kept, journal.fileno())
        os.close(kept)
        os.close(other)


def test_what_was_appended_is_read_in_order_and_by_nobody_else(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    payloads = [b"", b"one", bytes(range(256)) * 5_000, b"\0" * 100]

    ends = [journal.append(payload) for payload in payloads]
    journal.close()

    assert records(tmp_path, ends[-1]) == payloads
    assert records(tmp_path, ends[-1], ends[1]) == payloads[2:]
    assert records(tmp_path, ends[0]) == payloads[:1]
    assert sorted(ends) == ends
    assert [stat.S_IMODE(path.stat().st_mode) for path in journal_files(tmp_path).values()] == [0o600]


def test_every_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append(b"begin")
    writes: list[int] = []
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return write(fd, data)

    monkeypatch.setattr(os, "write", counted)
    journal.append(b"x" * 100_000)

    assert writes == [100_008]
    journal.close()


@pytest.mark.parametrize("wanted", [False, True])
def test_records_are_flushed_when_that_is_wanted_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, wanted: bool
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    journal = Journal(tmp_path, fsync=wanted)

    journal.append(b"x")
    journal.append(b"y")

    assert flushed == [journal.fileno()] * (2 if wanted else 0)
    journal.close()


def test_a_record_torn_at_any_byte_is_cut_off_and_the_rest_is_read(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    journal = Journal(whole)
    ends = [journal.append(payload).offset for payload in (b"first", b"second", b"third")]
    journal.close()
    data = (whole / "journal-00000001").read_bytes()

    for size in range(len(data) + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "journal-00000001").write_bytes(data[:size])
        again = Journal(folder)
        after = again.append(b"after")
        again.close()

        expected = [p for p, end in zip((b"first", b"second", b"third"), ends, strict=True) if end <= size]
        assert records(folder, after) == [*expected, b"after"], size


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(b"some words that matter")
    journal.close()
    path = tmp_path / "journal-00000001"
    data = path.read_bytes()
    chance = random.Random(1)

    for offset in range(4, len(data)):
        flipped = bytearray(data)
        flipped[offset] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(JournalError, match="damaged at byte 4"):
            list(read_file(path))


def test_what_is_cut_off_is_told_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(tmp_path)
    journal.append(b"good")
    journal.close()
    with (tmp_path / "journal-00000001").open("ab") as file:
        file.write(b"\x99\0\0\0torn")

    Journal(tmp_path)

    assert "the last 8 bytes are no whole record; cut off, and kept in journal-00000001.cut" in caplog.text
    assert (tmp_path / "journal-00000001.cut").read_bytes() == b"\x99\0\0\0torn"


def test_a_file_of_another_version_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "journal-00000001").write_bytes(b"TWJ\x02and more")

    with pytest.raises(JournalError, match="is no journal that this version can read"):
        Journal(tmp_path)


def test_full_files_are_followed_by_others_and_go_when_they_are_not_needed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, file_bytes=100)
    payloads = [bytes([n]) * 60 for n in range(6)]
    ends: list[Position] = []
    for payload in payloads:
        journal.roll()
        ends.append(journal.append(payload))

    assert [end.file for end in ends] == [1, 1, 2, 2, 3, 3]
    assert records(tmp_path, journal.end) == payloads
    journal.remove_before(3)
    assert list(journal_files(tmp_path)) == [3]
    assert records(tmp_path, journal.end, ends[3]) == payloads[4:]
    journal.close()


def test_a_new_process_never_appends_to_an_old_file(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.append(b"one")
    first.close()
    second = Journal(tmp_path)
    assert second.end == first.end

    end = second.append(b"two")

    assert (end.file, records(tmp_path, end)) == (2, [b"one", b"two"])
    second.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    before = journal.append(b"before")

    with instead(journal, "/dev/full", os.O_WRONLY), pytest.raises(JournalError, match="No space left on device"):
        journal.append(b"lost")
    after = journal.append(b"after")

    assert records(tmp_path, after) == [b"before", b"after"]
    assert (after.offset - before.offset, journal.records) == (13, 2)
    journal.close()


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(b"before")

    with (
        instead(journal, str(tmp_path / "journal-00000001"), os.O_RDONLY),
        pytest.raises(JournalError, match="Bad file"),
    ):
        journal.append(b"lost")

    assert records(tmp_path, journal.append(b"after")) == [b"before", b"after"]
    journal.close()


def test_a_write_that_stops_half_way_is_taken_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    # As a disk with room for some of the record; Python ignores the signal that comes with it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        with pytest.raises(JournalError, match="File too large"):
            journal.append(b"x" * 5_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (tmp_path / "journal-00000001").stat().st_size == journal.end.offset
    assert records(tmp_path, journal.append(b"after")) == [b"before", b"after"]
    journal.close()


def test_a_folder_that_nobody_can_write_to_is_an_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    tmp_path.rmdir()

    with pytest.raises(JournalError, match="cannot be made: No such file"):
        journal.append(b"x")
    tmp_path.mkdir()

    assert records(tmp_path, journal.append(b"y")) == [b"y"]
    journal.close()


def test_chance_cuts_and_reads_as_a_list_would(tmp_path: Path) -> None:
    chance = random.Random(7)
    expected: list[bytes] = []
    consumed = BEGINNING
    for _ in range(40):
        journal = Journal(tmp_path, file_bytes=chance.choice([64, 500, 5_000]))
        for _ in range(chance.randrange(8)):
            journal.roll()
            payload = chance.randbytes(chance.randrange(300))
            journal.append(payload)
            expected.append(payload)
        reader = JournalReader(tmp_path, consumed)
        got: list[bytes] = []
        for payload in reader.read(journal.end):
            got.append(payload)
            if chance.random() < 0.1:
                break
        assert expected[: len(got)] == got
        del expected[: len(got)]
        consumed = reader.position
        journal.remove_before(consumed.file)
        last = max(journal_files(tmp_path), default=0)
        journal.close()
        if last and chance.random() < 0.5:
            # The process dies while it writes a record.
            with journal_files(tmp_path)[last].open("ab") as file:
                file.write(b"\x20\0\0\0" + chance.randbytes(chance.randrange(20)))
