"""What a bridge is told: which fallback follows, and what it refuses to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from turnwire.bridge.cli import bridge
from turnwire.bridge.config import find_fallback
from turnwire.server.address import Address

HERE = (Address("127.0.0.1", 8080),)
ELSEWHERE = (Address("127.0.0.1", 9000),)


@pytest.mark.parametrize(
    ("server", "listen", "fallback"),
    [
        ("grpcs://models.example:443", HERE, "wss://models.example"),
        ("grpcs://models.example:50051", HERE, "wss://models.example"),
        ("grpc://models.internal:50051", HERE, "ws://models.internal:8080"),
        ("models.internal", HERE, "ws://models.internal:8080"),
        ("grpc://[fd00::1]:50051", HERE, "ws://[fd00::1]:8080"),
        ("unix:/run/turnwire.sock", HERE, None),
        ("ws://models.internal", HERE, None),
        # The port that the bridge itself has taken.
        ("grpc://localhost:50051", HERE, None),
        ("grpc://[::1]:50051", (Address("0.0.0.0", 8080),), None),
        ("grpc://localhost:50051", ELSEWHERE, "ws://localhost:8080"),
        ("grpc://localhost:50051", (Address(path="/run/bridge.sock"),), "ws://localhost:8080"),
    ],
)
def test_the_fallback_follows_from_the_server(server: str, listen: tuple[Address, ...], fallback: str | None) -> None:
    assert find_fallback(server, None, listen) == fallback
    assert find_fallback(server, "off", listen) is None


@pytest.mark.parametrize(
    ("server", "given", "why"),
    [
        ("grpc://a:1", "https://a", "a fallback is ws://HOST:PORT or wss://HOST:PORT"),
        ("grpc://a:1", "ws://", "ws://HOST:PORT or wss://HOST:PORT"),
        ("grpcs://a:1", "ws://a", "would send in the clear what grpcs://a:1 does not"),
        ("ws://a", "ws://b", "has no fallback"),
        ("grpc://127.0.0.1:1", "ws://localhost:8080/v1/responses", "is where the bridge itself listens"),
    ],
)
def test_a_fallback_that_cannot_be_is_refused(server: str, given: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        find_fallback(server, given, HERE)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--listen", "0.0.0.0:0"], "others can reach 0.0.0.0:0, and a bridge asks nobody for a key"),
        (["--listen", "off"], "has to listen somewhere"),
        (["--listen", "8080"], "the host is missing"),
        (["--to", "http://a"], "cannot connect to a http: address"),
        (["--fallback", "nothing"], "for --fallback: a fallback is"),
        (["--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is empty or not set"),
        (["--api-key-env", "BAD_KEY"], "this is no API key"),
        (["--ca-file", "/nowhere"], "does without TLS"),
        (["--to", "grpcs://a", "--ca-file", "/nowhere"], "cannot be read"),
        (["--to", "grpcs://a", "--ca-file", __file__], "not PEM"),
        (["--connect-timeout", "0"], "not in the range"),
    ],
)
def test_wrong_usage_says_what_is_wrong(arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD_KEY", "se cret")
    result = CliRunner().invoke(bridge, arguments)
    assert result.exit_code == 2
    assert why in " ".join(result.output.split())
    assert "se cret" not in result.output


def test_help_says_what_clients_are_given() -> None:
    result = CliRunner().invoke(bridge, ["--help"])
    assert result.exit_code == 0
    assert "http://127.0.0.1:8080/v1" in result.output
    for flag in ("--listen", "--to", "--fallback", "--api-key-env", "--ca-file", "--drain-grace", "--allow-public"):
        assert flag in result.output


def test_the_page_names_every_flag_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs/bridge.md").read_text()
    for parameter in bridge.params:
        assert f"`{parameter.opts[0]}`" in page, parameter.opts
