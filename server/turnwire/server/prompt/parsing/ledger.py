"""Which sampled ids a stretch of text comes from.

Above it: the parser of tagged text. Below it: nothing. Positions count characters from the beginning of the pass. A
token belongs to the first piece of text that shares a character with it; one without text of its own (half a character,
an invisible mark) to the text that follows it at once; one that is all framing is only counted.
"""

from __future__ import annotations

from collections import deque


class Ledger:
    """The ids whose text has not been given out yet."""

    __slots__ = ("_groups", "_start", "framing", "given")

    def __init__(self) -> None:
        self._groups: deque[tuple[int, tuple[int, ...]]] = deque()
        self._start = 0
        self.framing = 0
        """Ids passed over since the last that were given out."""
        self.given = 0
        """All ids given out or passed over."""

    def add(self, end: int, ids: tuple[int, ...]) -> None:
        """Notes that the text up to `end` comes from these ids, from the end of those before on."""
        self._groups.append((end, ids))

    def skip(self, position: int) -> None:
        """Passes over ids whose text ends at or before `position`."""
        groups = self._groups
        while groups and groups[0][0] <= position and self._start < position:
            self._start, ids = groups.popleft()
            self.framing += len(ids)
            self.given += len(ids)

    def take(self, start: int, end: int) -> tuple[tuple[int, ...], int, int]:
        """Gives out the ids of a stretch of text; returns them, all tokens accounted to it, and the first's index."""
        self.skip(start)
        first = self.given
        groups = self._groups
        taken: tuple[int, ...] = ()
        while groups and self._start < end:
            self._start, ids = groups.popleft()
            taken = (*taken, *ids) if taken else ids
        self.given += len(taken)
        tokens = len(taken) + self.framing
        self.framing = 0
        return taken, tokens, first

    @property
    def waiting(self) -> bool:
        """Whether there are ids that were neither given out nor passed over."""
        return bool(self._groups)

    def pass_through(self, end: int, ids: tuple[int, ...]) -> tuple[int, int]:
        """Gives out ids at once, where none wait; returns the tokens accounted to them and the first's index."""
        first = self.given
        self._start = end
        self.given += len(ids)
        tokens = len(ids) + self.framing
        self.framing = 0
        return tokens, first
