"""Why an address cannot be bound, in words, and what is left of a server that is gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwire.server.address import Address
from turnwire.server.doors.binding import CannotBind, prepare


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "live.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        yield path


def test_a_socket_that_somebody_listens_at_is_not_taken_over(listening: str) -> None:
    with pytest.raises(CannotBind, match="another server is using it"):
        prepare(Address(path=listening))
    assert Path(listening).is_socket()


def test_a_socket_left_behind_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(path))
    prepare(Address(path=str(path)))
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("keep", encoding="utf-8")
    with pytest.raises(CannotBind, match="not a socket"):
        prepare(Address(path=str(path)))
    assert path.read_text(encoding="utf-8") == "keep"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotBind, match="folder does not exist"):
        prepare(Address(path=str(tmp_path / "nowhere" / "a.sock")))


def test_a_port_in_use_an_address_elsewhere_and_an_unknown_name_are_told_apart() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with pytest.raises(CannotBind, match="another server is using it"):
            prepare(Address("127.0.0.1", server.getsockname()[1]))
    with pytest.raises(CannotBind, match="does not have it"):
        prepare(Address("203.0.113.9", 0))
    with pytest.raises(CannotBind, match="name is not known"):
        prepare(Address("nowhere.invalid", 0))


def test_a_free_address_is_fine(tmp_path: Path) -> None:
    prepare(Address("127.0.0.1", 0))
    prepare(Address(path=str(tmp_path / "new.sock")))
