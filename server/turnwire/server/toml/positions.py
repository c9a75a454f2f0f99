"""Finds the line of every key in a TOML file that already parsed.

Above it: whoever names the line of a mistake. Below it: nothing.

`tomllib` reports no positions, and tomlkit, the well-kept library that preserves layout, does not expose any either.
Since `tomllib` has accepted the file before, this scanner may trust its syntax, which keeps it small.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

KeyPath = tuple[str | int, ...]
"""A place in a document: keys of tables and, within arrays, indices from 0."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:[^"\\]|\\.)*"' r"|'[^']*'",
    re.DOTALL,
)
_PLAIN_VALUE = re.compile(r"[^,\]}#\r\n]*")


def key_lines(source: str) -> dict[KeyPath, int]:
    """Returns the 1-based line on which each table, array element and key of `source` begins."""
    return _Scanner(source).run()


def format_path(path: KeyPath) -> str:
    """Writes a place as people do: `turn[2].call[0].arguments`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


class _Scanner:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", source))]
        self._lines: dict[KeyPath, int] = {}
        self._array_sizes: dict[KeyPath, int] = {}

    def run(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip(_BLANK):
            if self._takes("[["):
                table = self._array_table_header()
            elif self._takes("["):
                table = self._resolve(self._dotted_key())
                self._takes("]")
            else:
                self._assignment(table)
        return self._lines

    def _array_table_header(self) -> KeyPath:
        line = self._line()
        *parents, last = self._dotted_key()
        self._takes("]]")
        array = (*self._resolve(parents), last)
        index = self._array_sizes.get(array, 0)
        self._array_sizes[array] = index + 1
        self._lines.setdefault(array, line)
        self._lines[(*array, index)] = line
        return (*array, index)

    def _resolve(self, parts: list[str]) -> KeyPath:
        """Follows a header's key; a name of an array of tables means its newest element."""
        path: KeyPath = ()
        for part in parts:
            path = (*path, part)
            self._lines.setdefault(path, self._line())
            if path in self._array_sizes:
                path = (*path, self._array_sizes[path] - 1)
        return path

    def _assignment(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for part in self._dotted_key():
            path = (*path, part)
            self._lines.setdefault(path, line)
        self._takes("=")
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        if self._takes("["):
            for index in self._elements("]"):
                self._lines[(*path, index)] = self._line()
                self._value((*path, index))
        elif self._takes("{"):
            for _ in self._elements("}"):
                self._assignment(path)
        elif string := _STRING.match(self._source, self._at):
            self._at = string.end()
        else:
            self._skip(_PLAIN_VALUE)

    def _elements(self, closing: str) -> Iterator[int]:
        """Stops before each element of an array or inline table; the caller consumes the element."""
        index = 0
        while self._skip(_BLANK) and not self._takes(closing):
            yield index
            index += 1
            self._skip(_BLANK)
            self._takes(",")

    def _dotted_key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            if bare := _BARE_KEY.match(self._source, self._at):
                parts.append(bare.group())
                self._at = bare.end()
            elif quoted := _STRING.match(self._source, self._at):
                parts.append(tomllib.loads(f"key = {quoted.group()}")["key"])
                self._at = quoted.end()
            self._skip(_SPACE)
            if not self._takes("."):
                return parts

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        """Skips what `pattern` matches here; says whether anything is left after it."""
        if match := pattern.match(self._source, self._at):
            self._at = match.end()
        return self._at < len(self._source)

    def _takes(self, token: str) -> bool:
        found = self._source.startswith(token, self._at)
        if found:
            self._at += len(token)
        return found

    def _line(self) -> int:
        return bisect_right(self._line_starts, self._at)
