from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from turnwire.server.telemetry.logs import configure_logging, redact

SECRET = "k3y-of-alice.0123456789+/="
LOGGER = "turnwire.test"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What logs are written to; the root logger is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    "text",
    [
        f"Bearer {SECRET}",
        f"authorization: bearer {SECRET}",
        f"{{'authorization': 'Bearer {SECRET}'}}",
        f'{{"Authorization": "Bearer {SECRET}"}}',
        f'{{\\"authorization\\": \\"Bearer {SECRET}\\"}}',
        f"(('authorization', 'Bearer {SECRET}'), ('user-agent', 'grpc'))",
        f"[('x-api-key', b'{SECRET}')]",
        f"Proxy-Authorization: {SECRET}",
        f"api_key={SECRET} trailing",
        f"API-KEY = '{SECRET}'",
        f"password: {SECRET}, and more",
        "the key sk-proj-abc_DEF-123456 leaked",
    ],
)
def test_credentials_are_taken_out(text: str) -> None:
    redacted = redact(text)

    assert SECRET not in redacted
    assert "abc_DEF" not in redacted
    assert redacted.count("[redacted]") == 1


@pytest.mark.parametrize(
    "text",
    [
        "grpc listening on 127.0.0.1:50051",
        "--api-key-file: cannot read keys.txt",
        "api_key_file=/etc/keys.txt",
        "risk-free ask-me",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redact(text) == text


def test_text_is_a_line_a_message(stream: io.StringIO) -> None:
    configure_logging("info", "text", stream)

    logging.getLogger(LOGGER).debug("too quiet")
    logging.getLogger(LOGGER).info("hello %s", f"Bearer {SECRET}")

    [line] = stream.getvalue().splitlines()
    assert line.endswith("Z info    turnwire.test: hello Bearer [redacted]")
    assert line[:2] == "20"


def test_nobody_can_forge_a_line(stream: io.StringIO) -> None:
    configure_logging("info", "text", stream)

    logging.getLogger(LOGGER).warning("lane %s", "x\n2026-01-01T00:00:00.000Z error root: forged\x1b[31m\u2028")

    assert len(stream.getvalue().splitlines()) == 1
    assert "\\n2026" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_json_is_an_object_a_line_with_the_extra_fields(stream: io.StringIO) -> None:
    configure_logging("debug", "json", stream)

    logging.getLogger(LOGGER).debug("hello\n%d", 1, extra={"session": "sess_1", "n": 3, "auth": f"Bearer {SECRET}"})

    [line] = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "debug",
        "logger": LOGGER,
        "message": "hello\n1",
        "session": "sess_1",
        "n": 3,
        "auth": "Bearer [redacted]",
    }


@pytest.mark.parametrize("format", ["text", "json"])
def test_tracebacks_are_written_without_secrets(stream: io.StringIO, format: str) -> None:
    configure_logging("info", format, stream)

    try:
        msg = f"cannot send Bearer {SECRET}"
        raise ValueError(msg)
    except ValueError:
        logging.getLogger(LOGGER).exception("it failed")

    assert "Traceback" in stream.getvalue()
    assert "cannot send Bearer [redacted]" in stream.getvalue()
    assert SECRET not in stream.getvalue()


def test_setting_up_twice_writes_once(stream: io.StringIO) -> None:
    configure_logging("info", "text", stream)
    configure_logging("info", "text", stream)

    logging.getLogger(LOGGER).info("once")

    assert len(stream.getvalue().splitlines()) == 1
