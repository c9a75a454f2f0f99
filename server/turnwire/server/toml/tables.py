"""Reads the tables of a TOML file key by key and collects every mistake, each with its line and key.

Above it: whoever knows a format. Below it: `positions`, which knows the lines.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from turnwire.server.toml.positions import KeyPath, format_path, key_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file."""

    origin: str
    """The file, or whatever else the text came from."""
    line: int
    """Counted from 1; 0 where the mistake has no place in the text."""
    key: str
    """Such as `turn[2].call[0].arguments`; empty where no key can be named."""
    message: str
    """What is wrong and what is expected."""

    def __str__(self) -> str:
        place = f"{self.origin}:{self.line}" if self.line else self.origin
        return f"{place}: key '{self.key}': {self.message}" if self.key else f"{place}: {self.message}"


class FileError(ValueError):
    """A file cannot be used; its text has one line per mistake."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        """Every mistake found, in the order of the file."""


class Report:
    """Collects the mistakes of one file."""

    def __init__(self, origin: str, lines: Mapping[KeyPath, int], error: type[FileError] = FileError) -> None:
        self._origin = origin
        self._lines = lines
        self._error = error
        self._problems: list[Problem] = []

    def add(self, path: KeyPath, message: str) -> None:
        """Notes a mistake at `path`, or at the nearest table around it that is in the file."""
        self._problems.append(Problem(self._origin, self.line(path), format_path(path), message))

    def line(self, path: KeyPath) -> int:
        """Returns the line of `path`, or of the nearest table around it that is in the file."""
        known = path
        while known and known not in self._lines:
            known = known[:-1]
        return self._lines.get(known, 1)

    def raise_if_any(self) -> None:
        """Raises the file's kind of `FileError` with all mistakes so far."""
        if self._problems:
            raise self._error(sorted(self._problems, key=lambda problem: problem.line))


def read_text(path: Path, error: type[FileError]) -> str:
    """Reads a file of text.

    Raises:
        FileError: It cannot be read, as the class given.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8 text"
        raise error([Problem(str(path), 0, "", f"cannot be read: {reason}")]) from problem


def read_top(source: str, origin: str, error: type[FileError]) -> Table:
    """Reads the text of a file; its mistakes are collected in the `report` of what is returned.

    Raises:
        FileError: It is not valid TOML, as the class given.
    """
    try:
        document = tomllib.loads(source)
    except tomllib.TOMLDecodeError as problem:
        raise error([_syntax_problem(origin, source, str(problem))]) from problem
    return Table(document, (), Report(origin, key_lines(source), error))


def _syntax_problem(origin: str, source: str, message: str) -> Problem:
    # tomllib says the place only in its message: "... (at line 3, column 7)" or "... (at end of document)".
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    line = int(place.group(1)) if place and place.group(1) else max(1, len(source.splitlines()))
    return Problem(origin, line, "", f"not valid TOML: {message[: place.start()] if place else message}")


class Table:
    """One table, taken key by key; a value of the wrong type is reported and read as absent."""

    def __init__(self, values: Mapping[str, object], path: KeyPath, report: Report) -> None:
        self._values = values
        self._known: set[str] = set()
        self.path = path
        self.report = report

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def problem(self, key: str, message: str) -> None:
        """Notes a mistake at `key` of this table."""
        self.report.add((*self.path, key), message)

    def value(self, key: str) -> object:
        """Takes the value as it is; None where the key is absent."""
        self._known.add(key)
        return self._values.get(key)

    def string(self, key: str) -> str | None:
        """Takes a string."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        self.problem(key, f"expected a string, found {describe(value)}")
        return None

    def strings(self, key: str) -> list[str]:
        """Takes an array of strings that is not empty; an empty list where the key is absent."""
        value = self.value(key)
        if value is None:
            return []
        elements = _elements(value)
        strings = [element for element in elements if isinstance(element, str)]
        if not strings or len(strings) < len(elements):
            self.problem(key, f"expected an array of strings, found {describe(value)}")
            return []
        return strings

    def integer(self, key: str, *, low: int, high: int) -> int | None:
        """Takes an integer from `low` to `high`, both included."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, f"expected an integer from {low} to {high}, found {describe(value)}")
        elif not low <= value <= high:
            self.problem(key, f"expected an integer from {low} to {high}, found {value}")
        else:
            return value
        return None

    def number(self, key: str, *, high: float, or_else: str = "") -> float | None:
        """Takes a number from 0 to `high`, both included; `or_else` adds to what the message says is expected."""
        value = self.value(key)
        if value is None:
            return None
        expected = f"expected a number from 0 to {high:g}{or_else}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(key, f"{expected}, found {describe(value)}")
        elif not math.isfinite(value) or not 0 <= value <= high:
            self.problem(key, f"{expected}, found {value}")
        else:
            return float(value)
        return None

    def choice(self, key: str, options: Mapping[str, T]) -> T | None:
        """Takes one of a few words."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, str) and value in options:
            return options[value]
        expected = ", ".join(f'"{option}"' for option in options)
        found = f'"{value}"' if isinstance(value, str) else describe(value)
        hint = did_you_mean(value, options) if isinstance(value, str) else ""
        self.problem(key, f"expected one of {expected}, found {found}{hint}")
        return None

    def boolean(self, key: str) -> bool | None:
        """Takes true or false."""
        value = self.value(key)
        if value is None or isinstance(value, bool):
            return value
        self.problem(key, f"expected true or false, found {describe(value)}")
        return None

    def read(self, key: str, reader: Callable[[object], T]) -> T | None:
        """Takes a value by a reader that raises `ValueError` with what it expected."""
        value = self.value(key)
        if value is None:
            return None
        try:
            return reader(value)
        except ValueError as error:
            self.problem(key, str(error))
            return None

    def named_tables(self, key: str) -> dict[str, Table]:
        """Takes a table of tables, by their names; empty where the key is absent."""
        outer = self.table(key)
        if outer is None:
            return {}
        found = {name: outer.table(name) for name in outer.keys()}  # noqa: SIM118 - not a mapping
        return {name: inner for name, inner in found.items() if inner is not None}

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that are there, in order."""
        return tuple(self._values)

    def table(self, key: str) -> Table | None:
        """Takes a table."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, dict):
            return Table(cast("dict[str, object]", value), (*self.path, key), self.report)
        self.problem(key, f"expected a table, found {describe(value)}")
        return None

    def tables(self, key: str) -> list[Table]:
        """Takes an array of tables; empty where the key is absent."""
        value = self.value(key)
        if value is None:
            return []
        elements = _elements(value)
        if not elements or not all(isinstance(element, dict) for element in elements):
            header = ".".join(part for part in (*self.path, key) if isinstance(part, str))
            self.problem(key, f"expected tables, each begun by [[{header}]], found {describe(value)}")
            return []
        return [
            Table(cast("dict[str, object]", element), (*self.path, key, index), self.report)
            for index, element in enumerate(elements)
        ]

    def refuse_unknown_keys(self) -> None:
        """Reports the keys nobody took; to be called once everything known was."""
        for key in self._values:
            if key not in self._known:
                hint = did_you_mean(key, self._known) or f"; known here: {', '.join(sorted(self._known))}"
                self.problem(key, f"unknown key{hint}")


def did_you_mean(word: str, known: Mapping[str, object] | set[str]) -> str:
    """Returns a hint at the nearest known word, or nothing if none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def _elements(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def describe(value: object) -> str:
    """Names the TOML type of a value."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, list) and not value:
        return "an empty array"
    kinds = ((str, "a string"), (int, "an integer"), (float, "a float"), (list, "an array"), (dict, "a table"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "a date or time")
