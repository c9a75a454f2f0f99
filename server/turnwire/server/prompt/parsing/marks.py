"""The marks of a dialect, by where they may stand, ready to be looked for.

Above it: the parser of tagged text. Below it: the dialects.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from turnwire.server.prompt.parsing.dialects import DIALECTS, INNER_MARKS


class Marks:
    """Marks to look for, and what may still become one."""

    def __init__(self, marks: Iterable[str]) -> None:
        self.all = tuple(sorted(marks, key=len, reverse=True))
        self.pattern = re.compile("|".join(map(re.escape, self.all)))
        self._firsts = re.compile("[" + "".join(re.escape(mark[0]) for mark in self.all) + "]")
        self._longest = len(self.all[0])

    def absent(self, text: str) -> bool:
        """Whether no mark can begin in the text."""
        return self._firsts.search(text) is None

    def held_from(self, text: str, position: int) -> int:
        """Returns where the beginning of a mark stands at the end of the text; its length where none does."""
        position = max(position, len(text) - self._longest + 1)
        while found := self._firsts.search(text, position):
            rest = text[found.start() :]
            if any(mark.startswith(rest) for mark in self.all):
                return found.start()
            position = found.end()
        return len(text)


@dataclass(frozen=True, slots=True)
class MarkSets:
    """The marks of a dialect, by where they may stand."""

    begin: Marks
    """Where text would begin."""
    first: Marks
    """In text, before any reasoning."""
    text: Marks | None
    """In text, after reasoning."""
    think: Marks
    """In reasoning."""
    visible: tuple[str, ...]
    """All of them, and those that readers look for."""


@functools.cache
def mark_sets(name: str, calls: bool) -> MarkSets:
    """Returns the marks of a dialect, with those of calls or without."""
    dialect = DIALECTS[name]
    think_open, think_close = dialect.think
    marks = (*dialect.openers, *dialect.framing) if calls else dialect.framing
    begin = Marks((think_open, *marks, think_close))
    return MarkSets(
        begin=begin,
        first=Marks((*marks, think_close)),
        text=Marks(marks) if marks else None,
        think=Marks((think_close, *(dialect.in_reasoning if calls else ()))),
        visible=(*begin.all, *INNER_MARKS),
    )
