"""Readers of single values: strings, numbers, booleans, enums and JSON text.

Above: `decode`, which puts them together. Below: `refusal`. A reader returns None for null, which means absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from turnwire.v1.json.refusal import kind_of, out_of_range, unknown_value, wrong_type

Read = Callable[[Raw, int], Any]
"""Reads one value at a depth; None stands for null, which means absent."""

_unpack_string: Final = msgspec.json.Decoder(str | None).decode
_unpack_boolean: Final = msgspec.json.Decoder(bool | None).decode
_unpack_number: Final = msgspec.json.Decoder(int | float | None).decode


def read_string(raw: Raw, depth: int) -> str | None:
    """Reads a string."""
    del depth
    try:
        return _unpack_string(raw)
    except msgspec.ValidationError:
        raise wrong_type(raw, "a string") from None


def read_boolean(raw: Raw, depth: int) -> bool | None:
    """Reads true or false."""
    del depth
    try:
        return _unpack_boolean(raw)
    except msgspec.ValidationError:
        raise wrong_type(raw, "a boolean") from None


def read_text(raw: Raw, depth: int) -> str:
    """Keeps any value as the text it came in."""
    del depth
    return bytes(raw).decode()


def read_text_or_null(raw: Raw, depth: int) -> str | None:
    """Keeps any value but null as the text it came in."""
    text = read_text(raw, depth)
    return None if text == "null" else text


def enum(values: Mapping[str, int]) -> Read:
    """Returns the reader of an enum with these public strings."""

    def read(raw: Raw, depth: int) -> int | None:
        name = read_string(raw, depth)
        if name is None:
            return None
        number = values.get(name)
        if number is None:
            raise unknown_value(name, values)
        return number

    return read


def integer(bounds: tuple[float, float]) -> Read:
    """Returns the reader of whole numbers; 1.0 is one of them."""
    low, high = bounds

    def read(raw: Raw, depth: int) -> int | None:
        del depth
        value = _plain_number(raw, "an integer", bounds)
        if value is None:
            return None
        if isinstance(value, float):
            if not value.is_integer():
                raise wrong_type(raw, "an integer")
            value = int(value)
        if not low <= value <= high:
            raise out_of_range(bounds)
        return value

    return read


def number(bounds: tuple[float, float]) -> Read:
    """Returns the reader of numbers."""
    low, high = bounds

    def read(raw: Raw, depth: int) -> float | None:
        del depth
        value = _plain_number(raw, "a decimal", bounds)
        if value is None:
            return None
        if not low <= value <= high:
            raise out_of_range(bounds)
        return float(value)

    return read


def _plain_number(raw: Raw, expected: str, bounds: tuple[float, float]) -> int | float | None:
    value: int | float | None
    try:
        value = _unpack_number(raw)
    except (msgspec.ValidationError, ValueError):
        if kind_of(raw) in ("an integer", "a decimal"):
            raise out_of_range(bounds) from None
        raise wrong_type(raw, expected) from None
    return value
