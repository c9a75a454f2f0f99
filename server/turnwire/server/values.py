"""Reads single configuration values: numbers, durations, sizes, lists; as TOML types or as the text of a flag.

Above it: `settings`. Below it: nothing. Every reader takes what was written and raises `ValueError` with what it
expected and what it found; where it was written is for the caller to say.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast

from turnwire.server.address import Address, parse_address

T = TypeVar("T", bound=str)

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES: Final = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")

FOREVER: Final = 10 * 365 * 86400.0
"""Longest duration, in seconds; ten years."""


def describe(value: object) -> str:
    """Writes a value as messages show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return repr(value)
    if isinstance(value, list):
        return "an array"
    return "a table" if isinstance(value, dict) else "a date or time"


def near(word: str, known: Collection[str]) -> str:
    """Returns a hint at the nearest known word, or at all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f'did you mean "{close[0]}"?'
    return "known here: " + ", ".join(sorted(known)) if known else "there are none in this version"


def read_bool(value: object) -> bool:
    """Reads true or false, or as text 1, 0, yes, no, on, off."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    msg = f"expected true or false, found {describe(value)}"
    raise ValueError(msg)


def integer(low: int, high: int) -> Callable[[object], int]:
    """Makes a reader of integers from `low` to `high`, both included."""

    def read(value: object) -> int:
        number = value
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
            number = int(value)
        if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
            return number
        msg = f"expected an integer from {low} to {high}, found {describe(value)}"
        raise ValueError(msg)

    return read


def rate(value: object) -> float:
    """Reads tokens per second; "unlimited" and 0 are infinite."""
    if value == "unlimited":
        return math.inf
    number = value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value):
        number = float(value)
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1_000_000:
        return float(number) or math.inf
    msg = f'expected a number from 0 to 1000000 or "unlimited", found {describe(value)}'
    raise ValueError(msg)


def duration(low: float, high: float = FOREVER) -> Callable[[object], float]:
    """Makes a reader of durations in seconds: a number of seconds, or text such as "250ms", "30s", "5m", "2h", "1d"."""

    def read(value: object) -> float:
        seconds = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value.strip())):
            seconds = float(match[1]) * _UNITS.get(match[2] or "s", math.nan)
        if low <= seconds <= high:
            return seconds
        msg = f'expected a duration from {_spell(low)} to {_spell(high)}, such as "30s", found {describe(value)}'
        raise ValueError(msg)

    return read


def size(low: int, high: int) -> Callable[[object], int]:
    """Makes a reader of sizes in bytes: a number, or text such as "64KiB", "16MiB", "1GiB"."""

    def read(value: object) -> int:
        found = -1.0
        if isinstance(value, int) and not isinstance(value, bool):
            found = value
        elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value.strip())):
            found = float(match[1]) * _SIZES.get(match[2], math.nan)
        if low <= found <= high and found == int(found):
            return int(found)
        msg = f'expected a size from {low} to {high} bytes, such as "64KiB", found {describe(value)}'
        raise ValueError(msg)

    return read


def one_of(words: Sequence[T]) -> Callable[[object], T]:
    """Makes a reader of one of a few words."""

    def read(value: object) -> T:
        for word in words:
            if word == value:
                return word
        expected = ", ".join(f'"{word}"' for word in words)
        msg = f"expected {'one of ' if len(words) > 1 else ''}{expected}, found {describe(value)}"
        raise ValueError(msg)

    return read


def read_words(value: object) -> list[str]:
    """Reads an array of strings, or as text words parted by commas."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    words = _elements(value)
    if words is not None and all(isinstance(word, str) for word in words):
        return [word for each in words if isinstance(each, str) for word in read_words(each)]
    msg = f"expected a string or an array of strings, found {describe(value)}"
    raise ValueError(msg)


def read_names(known: Collection[str]) -> Callable[[object], frozenset[str]]:
    """Makes a reader of several of a few words."""

    def read(value: object) -> frozenset[str]:
        words = read_words(value)
        for word in words:
            if word not in known:
                msg = f'unknown name "{word}"; {near(word, known)}'
                raise ValueError(msg)
        return frozenset(words)

    return read


def read_set(read: Callable[[str], str]) -> Callable[[object], frozenset[str]]:
    """Makes a reader of several words, each of which `read` reads."""

    def read_all(value: object) -> frozenset[str]:
        return frozenset(read(word) for word in read_words(value))

    return read_all


def read_text(value: object) -> str:
    """Reads a string that is not empty."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    msg = f"expected a string, found {describe(value)}"
    raise ValueError(msg)


def file(folder: Path) -> Callable[[object], Path]:
    """Makes a reader of paths of files that exist; relative ones are taken from `folder`."""

    def read(value: object) -> Path:
        path = folder / Path(read_text(value)).expanduser()
        try:
            with path.open("rb"):
                return path
        except OSError as error:
            msg = f"cannot read {path}: {error.strerror}"
            raise ValueError(msg) from error

    return read


def directory(folder: Path) -> Callable[[object], Path]:
    """Makes a reader of paths of directories, which may be missing; relative ones are taken from `folder`."""

    def read(value: object) -> Path:
        path = folder / Path(read_text(value)).expanduser()
        if path.exists() and not path.is_dir():
            msg = f"{path} is not a directory"
            raise ValueError(msg)
        return path

    return read


def address(folder: Path) -> Callable[[object], Address | None]:
    """Makes a reader of one address; relative socket paths are taken from `folder`."""

    def read(value: object) -> Address | None:
        found = parse_address(read_text(value))
        return found and found.relative_to(folder)

    return read


def addresses(folder: Path) -> Callable[[object], tuple[Address, ...]]:
    """Makes a reader of any number of addresses; `off` alone is none."""

    def read(value: object) -> tuple[Address, ...]:
        words = read_words(value)
        found = [parse_address(word) for word in words]
        if not words or (None in found and len(found) > 1):
            msg = "expected at least one address, or off alone" if not words else "off cannot stand beside addresses"
            raise ValueError(msg)
        places = tuple(each.relative_to(folder) for each in found if each is not None)
        for place in places:
            if places.count(place) > 1 and (place.port or place.path):
                msg = f"{place} is named twice"
                raise ValueError(msg)
        return places

    return read


def _elements(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _spell(seconds: float) -> str:
    """Writes a duration in its largest whole unit."""
    for unit, length in reversed(_UNITS.items()):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds * 1000:g}ms" if seconds else "0s"
