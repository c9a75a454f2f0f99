"""Logs: text for people or JSON lines for collectors, and never a secret in them.

Above it: `cli`, which sets logging up once. Below it: the standard library's logging.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import IO, Final

REDACTED: Final = "[redacted]"

_SECRETS: Final = (
    # An authorization header with its scheme, in a dict, a tuple of gRPC metadata, or plain text.
    (re.compile(r"""(?i)\b(bearer|basic)(\s+)[^\s"'`,;)}\]\\]+"""), rf"\1\2{REDACTED}"),
    # Anything named like a secret: api_key=…, "x-api-key": "…", ('authorization', '…').
    (
        re.compile(
            r"""(?ix) \b ((?:proxy-)?authorization | (?:x-)?api[_-]?key | password | secret)
                ( \\?["']? \s* [:=,] \s* (?:b(?=["']))? \\?["']? )
                (?! (?:bearer|basic) \b) [^\s"'`,;)}\]\\]+"""
        ),
        rf"\1\2{REDACTED}",
    ),
    # Keys by the look of them.
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), REDACTED),
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def redact(text: str) -> str:
    """Returns a text with whatever looks like a key or a credential taken out."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class _Formatter(logging.Formatter):
    """Redaction sits in the formatters, not in a filter: tracebacks exist only once a record is formatted."""

    def moment(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{whole}.{int(record.msecs):03d}Z"

    def traceback(self, record: logging.LogRecord) -> str:
        text = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        return redact("\n".join(part for part in (text, record.stack_info) if part))


class TextFormatter(_Formatter):
    """One line a message; tracebacks below it."""

    def format(self, record: logging.LogRecord) -> str:
        """Writes a record."""
        # Whoever can put a line break into a message could otherwise forge lines.
        message = _CONTROL.sub(lambda match: repr(match[0])[1:-1], redact(record.getMessage()))
        line = f"{self.moment(record)} {record.levelname.lower():7} {record.name}: {message}"
        traceback = self.traceback(record)
        return f"{line}\n{traceback}" if traceback else line


class JsonFormatter(_Formatter):
    """One JSON object a line; what was passed as `extra` becomes keys of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Writes a record."""
        entry: dict[str, object] = {
            "time": self.moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for key, value in vars(record).items():
            if key not in _STANDARD and key not in entry:
                entry[key] = value if isinstance(value, bool | int | float) else redact(str(value))
        if traceback := self.traceback(record):
            entry["traceback"] = traceback
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(level: str, format: str, stream: IO[str] | None = None) -> None:
    """Sends all logs of the process to one stream; replaces what was set up before.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        format: `text` or `json`.
        stream: By default standard error.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
