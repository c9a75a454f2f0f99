"""Checks of strings that hold JSON: that they can be written into public JSON as they are.

Above: `wellformed` and the checks of tools. Below: msgspec, which skips over text without building values.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

MAX_DEPTH: Final = 200
"""Levels of arrays and objects. Parsers of clients and engines stop somewhere between 128 and a thousand."""

TOO_DEEP: Final = f"it nests more than {MAX_DEPTH} levels"

_skip: Final = msgspec.json.Decoder(Raw).decode
_skip_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKET: Final = re.compile(r"[\[\]{}]")


def fault(text: str) -> str:
    """Returns why a text is not usable as JSON; "" where it is."""
    try:
        _skip(text)
    except msgspec.DecodeError as error:
        return str(error)
    except RecursionError:
        return TOO_DEEP
    return TOO_DEEP if _is_deep(text) else ""


def members(text: str) -> dict[str, Raw] | None:
    """Returns the members of valid JSON text as raw slices, None where it holds no object."""
    try:
        return _skip_members(text)
    except msgspec.DecodeError:
        return None


def decoded(text: str) -> dict[str, Any] | None:
    """Returns JSON text as a dict, None where it holds no object or a number that Python cannot."""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False
