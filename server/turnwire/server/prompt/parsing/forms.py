"""Patterns for marks with something in them, such as `<parameter=NAME>`, and whether a text may still become one.

Above it: readers of calls. Below it: nothing. Python's patterns do not say whether a text that ends is the beginning of
a match, so a second pattern is made for that out of the same parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LONGEST_RUN: Final = 256
"""Characters of the longest run."""


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one class."""

    characters: str
    """The class as in a pattern, such as `[^>]`."""
    name: str = ""
    """The group that takes them."""
    least: int = 0

    @property
    def pattern(self) -> str:
        """The run as a pattern."""
        run = f"{self.characters}{{{self.least},{LONGEST_RUN}}}"
        return f"(?P<{self.name}>{run})" if self.name else run

    @property
    def begun(self) -> str:
        """The same for its beginnings."""
        return f"{self.characters}{{0,{LONGEST_RUN}}}"


@dataclass(frozen=True, slots=True)
class Ahead:
    """What must follow, one of several, but is not part of what matches. Only at the end of a row."""

    texts: tuple[str, ...]


BLANKS: Final = Run(r"\s")

Part = str | Run | Ahead
"""A piece of a form; a bare text stands for itself."""


class Form:
    """One of several rows of parts. A group may have its name in one of them only."""

    __slots__ = ("_begun", "_pattern")

    def __init__(self, *rows: Iterable[Part]) -> None:
        """Takes the rows, of which the first that matches counts."""
        parts = [tuple(row) for row in rows]
        self._pattern = re.compile("|".join("".join(map(_pattern, row)) for row in parts))
        self._begun = re.compile("|".join(map(_begun, parts)))

    def match(self, text: str, position: int) -> re.Match[str] | None:
        """Returns the match at a position."""
        return self._pattern.match(text, position)

    def search(self, text: str, position: int) -> re.Match[str] | None:
        """Returns the first match from a position on."""
        return self._pattern.search(text, position)

    def begun(self, text: str, position: int) -> bool:
        """Whether all the text from a position on may be the beginning of a match."""
        return self._begun.fullmatch(text, position) is not None


def _pattern(part: Part) -> str:
    if isinstance(part, Ahead):
        return f"(?={'|'.join(map(re.escape, part.texts))})"
    return part.pattern if isinstance(part, Run) else re.escape(part)


def _begun(row: tuple[Part, ...]) -> str:
    """Returns the pattern of all beginnings of a row: each character may be the last."""
    found = ""
    for part in reversed(row):
        if isinstance(part, Ahead):
            found = "|".join(_begun((text,)) for text in part.texts)
            continue
        for step in (part.begun,) if isinstance(part, Run) else map(re.escape, reversed(part)):
            found = f"{step}(?:{found})?" if found else step
    return f"(?:{found})?"
