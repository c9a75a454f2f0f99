from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.server.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:50051", Address("127.0.0.1", 50051)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:50051", Address("::1", 50051)),
        ("unix:/run/turnwire.sock", Address(path="/run/turnwire.sock")),
        ("unix:///run/turnwire.sock", Address(path="/run/turnwire.sock")),
        ("unix:here.sock", Address(path="here.sock")),
        (" OFF ", None),
    ],
)
def test_an_address_is_read_in_every_form(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["127.0.0.1:50051", "[::1]:50051", "unix:/run/turnwire.sock", "unix:here.sock"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("50051", "the host is missing"),
        ("localhost", "the port is missing"),
        (":50051", "say 127.0.0.1:50051 for this machine only"),
        ("localhost:http", "the port is a number"),
        ("localhost:65536", "the port is a number"),
        ("localhost:-1", "the port is a number"),
        ("localhost:" + "9" * 5000, "the port is a number"),
        ("::1:50051", "in brackets"),
        ("[::zz]:1", "not an IPv6 address"),
        ("[localhost]:1", "not a host"),
        ("local host:1", "not a host"),
        ("http://localhost:1", "the URL"),
        ("unix:", "without a path"),
        ("unix:/" + "x" * 107, "longer than 107 bytes"),
        ("", "the port is missing"),
    ],
)
def test_a_wrong_address_is_refused_with_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("127.0.0.1:1", False),
        ("127.8.9.1:1", False),
        ("localhost:1", False),
        ("[::1]:1", False),
        ("unix:x", False),
        ("0.0.0.0:1", True),
        ("[::]:1", True),
        ("10.0.0.1:1", True),
        ("build.example.org:1", True),
    ],
)
def test_only_loopback_and_sockets_are_private(text: str, public: bool) -> None:
    address = parse_address(text)

    assert address is not None
    assert address.public is public


def test_a_picked_port_takes_the_place_of_zero() -> None:
    assert str(Address("127.0.0.1").bound_to(40123)) == "127.0.0.1:40123"


def test_only_relative_socket_paths_move_to_a_folder() -> None:
    assert Address(path="x.sock").relative_to(Path("/etc")) == Address(path="/etc/x.sock")
    assert Address(path="/run/x.sock").relative_to(Path("/etc")) == Address(path="/run/x.sock")
    assert Address("localhost", 1).relative_to(Path("/etc")) == Address("localhost", 1)
