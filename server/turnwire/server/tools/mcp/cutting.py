"""Cuts answers of MCP servers that are too long, so that they stay JSON: what fits is kept, the rest is never read.

A server that answers 50 MB must cost neither the memory nor the event loop's time for 50 MB. Above: the transports.
Below: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from pydantic_core import from_json, to_json

CUT_MARK: Final = "turnwire/cut"
"""Key in the `_meta` of a result that was cut."""

_ID: Final = re.compile(rb'"id"\s*:\s*("[\w-]{1,64}"|\d{1,18})')
_HEAD: Final = 256
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def cut_message(prefix: bytes) -> bytes | None:
    """Makes a JSON-RPC response of the beginning of one: strings and lists end where the prefix does.

    Returns:
        The response, its result marked as cut; None where not even the beginning of a result was there.
    """
    try:
        value: object = from_json(prefix, allow_partial="trailing-strings")
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    message = cast("dict[str, Any]", value)
    result: object = message.get("result")
    if not isinstance(result, dict):
        return None
    _mend(cast("dict[str, Any]", result))
    message.setdefault("jsonrpc", "2.0")
    return to_json(message)


def spoilt_message(line: bytes) -> bytes | None:
    """Makes an error response of a message that cannot be read, so that whoever asked does not wait in vain.

    Returns:
        The response; None where the message does not seem to answer anything.
    """
    found = _ID.search(line[:_HEAD])
    if found is None:
        return None
    error = b'{"code":-32700,"message":"The answer could not be read."}'
    return b'{"jsonrpc":"2.0","id":' + found[1] + b',"error":' + error + b"}"


def _mend(result: dict[str, Any]) -> None:
    """Takes out of a result what is incomplete, and marks it as cut."""
    result["_meta"] = {CUT_MARK: True}
    # It stands at the end, and servers of newer protocols must give it.
    result.setdefault("resultType", "complete")
    # Whatever stood in it stands in the content too.
    result.pop("structuredContent", None)
    for key in ("content", "tools"):
        parts: object = result.get(key)
        if isinstance(parts, list) and parts:
            last: object = cast("list[object]", parts).pop()
            text = cast("dict[str, object]", last).get("text") if isinstance(last, dict) else None
            if isinstance(text, str):
                cast("list[object]", parts).append({"type": "text", "text": text})


class EventCutter:
    """Cuts the events of an event stream that are too long; others pass as they came."""

    def __init__(self, limit: int) -> None:
        """Takes the most bytes of one event."""
        self._limit = limit
        self._buffer = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Takes bytes of the stream and yields whole events."""
        # What was searched before needs no second look, but for an end that began with it.
        start = max(0, len(self._buffer) - 3)
        self._buffer += chunk
        while (end := _EVENT_END.search(self._buffer, start)) is not None:
            event = bytes(self._buffer[: end.end()])
            del self._buffer[: end.end()]
            start = 0
            if self._skipping:
                self._skipping = False
            elif len(event) > self._limit:
                yield _cut_event(event[: self._limit])
            else:
                yield event
        if len(self._buffer) > self._limit:
            if not self._skipping:
                yield _cut_event(bytes(self._buffer[: self._limit]))
                self._skipping = True
            # An end may begin with what came last.
            del self._buffer[:-3]

    def rest(self) -> bytes:
        """Returns what stands after the last whole event."""
        return b"" if self._skipping else bytes(self._buffer)


def _cut_event(prefix: bytes) -> bytes:
    lines = prefix.splitlines()
    data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
    message = cut_message(data)
    if message is None:
        # No answer can be made of it: the client then sees a message that is none.
        message = b"null"
    return b"event: message\ndata: " + message + b"\n\n"
