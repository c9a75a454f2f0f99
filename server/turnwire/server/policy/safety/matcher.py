"""The rules of one direction, compiled: what is found in a stretch of text, and what of its end must wait.

Above it: the screener. Below it: an Aho-Corasick automaton for all literals at once, RE2 for patterns, both of bounded
memory and of a time that grows with the text alone.

A stretch is what was kept of the text before it, followed by what is new. Matches that end within what was kept were
found before. A match that ends where the stretch ends is not decided: what follows may belong to the word. It is found
when more has come, so texts are ended by a space.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from turnwire.server.policy.safety.folding import fold
from turnwire.server.policy.safety.patterns import Pattern, compile_pattern

CONTEXT: Final = 5
"""Bytes kept beside the longest match: the character before it, which tells whether a word begins, and the space."""
SLICE: Final = 64 * 1024
"""Bytes looked at together: all finds of a slice are listed, and texts may be made to be full of them."""
_SHARED_MEMORY: Final = 32 * 1024 * 1024
"""Bytes that RE2 may use for the automata of all patterns together."""
_ENDS_IN_WORD: Final = re.compile(r"\w\Z")
_BEGINS_IN_WORD: Final = re.compile(r"\A\w")


@dataclass(frozen=True, slots=True)
class Terms:
    """What one category is found by."""

    literals: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    whole_words: bool = True
    """Whether literals are found only where no letter, digit or underscore stands beside them."""
    waits: bool = True
    """Whether a match must not leave half."""


class Matcher:
    """All terms of a direction. Safe to use from several threads at once."""

    def __init__(self, categories: Sequence[Terms]) -> None:
        """Compiles terms; what is found is told by their place in the sequence.

        Raises:
            ImportError: A package is missing.
        """
        literals: dict[bytes, list[tuple[int, bool]]] = {}
        held = _Held()
        for place, terms in enumerate(categories):
            for literal in terms.literals:
                folded = fold(literal).strip()
                literals.setdefault(folded, []).append((place, terms.whole_words))
                if terms.waits:
                    held.add(folded, whole=terms.whole_words)
        self._literals = list(literals.values())
        self._automaton: Any = None
        if literals:
            self._automaton = importlib.import_module("ahocorasick_rs").BytesAhoCorasick(list(literals))
        patterns = [(place, pattern) for place, terms in enumerate(categories) for pattern in terms.patterns]
        self._patterns = [(place, compile_pattern(pattern.source)) for place, pattern in patterns]
        self._any = _together([pattern.source for _, pattern in patterns])
        self._held = held.prefixes
        self._starts = held.starts()
        waiting = [pattern.beginnings for place, pattern in patterns if categories[place].waits]
        self._waiting = _together(waiting, end=r"\z")
        widths = [len(literal) for literal in literals] + [pattern.width for _, pattern in patterns]
        self.width: Final = max(widths, default=0)
        """Bytes of the longest match."""

    @property
    def empty(self) -> bool:
        """Whether nothing can be found."""
        return not self.width

    def find(self, stretch: bytes, kept: int, *, final: bool = False) -> set[int]:
        """Returns the places of what is found in a stretch and was not found before.

        Args:
            stretch: The text.
            kept: Where a match ends at the earliest that was not found before. What stands before that was looked at:
                at least the width and `CONTEXT` of it, or all there was.
            final: Whether a match that ends with the stretch is decided.
        """
        found: set[int] = set()
        end = len(stretch) + final
        if self._automaton is not None:
            finds: list[tuple[int, int, int]] = self._automaton.find_matches_as_indexes(stretch, overlapping=True)
            for index, start, stop in finds:
                if kept <= stop < end:
                    for place, whole in self._literals[index]:
                        if place not in found and (not whole or _is_alone(stretch, start, stop)):
                            found.add(place)
        begin = max(0, kept - self.width)
        if self._any is not None and self._any.search(stretch, begin) is not None:
            for place, pattern in self._patterns:
                if place not in found and _finds(pattern, stretch, begin, kept, end):
                    found.add(place)
        return found

    def waiting(self, stretch: bytes) -> int:
        """Returns how many bytes at the end of a stretch may be the beginning of a match that must not leave half."""
        longest = 0
        if self._starts is not None:
            # The first is the longest.
            for start in self._starts.finditer(stretch, max(0, len(stretch) - self.width)):
                if stretch[start.start() :] in self._held:
                    longest = len(stretch) - start.start()
                    break
        if self._waiting is not None:
            begin = max(0, len(stretch) - self.width)
            match = self._waiting.search(stretch, begin)
            if match is not None:
                longest = max(longest, len(stretch) - match.start())
        return longest


def _together(sources: Sequence[str], end: str = "") -> Any:
    if not sources:
        return None
    return compile_pattern("(?:" + "|".join(f"(?:{source})" for source in sources) + ")" + end, _SHARED_MEMORY)


def _finds(pattern: Any, stretch: bytes, begin: int, kept: int, end: int) -> bool:
    """Whether a pattern has a match that is decided and was not found before; looks at few that were."""
    while (match := pattern.search(stretch, begin)) is not None:
        if kept <= match.end() < end:
            return True
        begin = match.start() + 1
    return False


def _is_alone(stretch: bytes, start: int, stop: int) -> bool:
    """Whether no letter, digit or underscore stands beside a find."""
    if stretch.isascii():
        return not (start and _WORD[stretch[start - 1]]) and not (stop < len(stretch) and _WORD[stretch[stop]])
    before = stretch[max(0, start - 4) : start].decode(errors="ignore")
    after = stretch[stop : stop + 4].decode(errors="ignore")
    return _ENDS_IN_WORD.search(before) is None and _BEGINS_IN_WORD.search(after) is None


_WORD: Final = tuple(re.fullmatch(r"\w", chr(code)) is not None for code in range(0x80))


class _Held:
    """Literals that must not leave half, by how they begin."""

    def __init__(self) -> None:
        self.prefixes: set[bytes] = set()
        self._whole = True

    def add(self, literal: bytes, *, whole: bool) -> None:
        self.prefixes.update(literal[:length] for length in range(1, len(literal) + 1))
        self._whole = self._whole and whole

    def starts(self) -> re.Pattern[bytes] | None:
        """Returns a pattern for where one may begin; None where there are none."""
        if not self.prefixes:
            return None
        firsts = b"".join(re.escape(bytes((code,))) for code in sorted({prefix[0] for prefix in self.prefixes}))
        # Letters beyond ASCII end no word here: more is looked at than has to be.
        return re.compile((b"(?<![0-9a-z_])" if self._whole else b"") + b"[" + firsts + b"]")
