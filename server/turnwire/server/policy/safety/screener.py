"""The built-in classifier: rules of a file, found in items by themselves, across the seams between them, and in output
while it is written.

Above it: the core, through its port `Screener`. Below it: matchers and folding. Every text is looked at once. What goes
on from one text into the next is found in a seam: the last bytes of the one and the first of the other, as many as the
longest match has, once with a space between them and once without, so that neither a phrase nor a word that is written
in two items stays unseen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from turnwire.server.policy.safety.folding import fold
from turnwire.server.policy.safety.matcher import CONTEXT, SLICE, Matcher
from turnwire.server.policy.safety.rules import Category
from turnwire.server.policy.safety.texts import said
from turnwire.server.session.screens import Direction, Hit, Overlap, Screened, Tails
from turnwire.v1.item_pb2 import Item


class _Side:
    """The rules of one direction."""

    def __init__(self, categories: Iterable[Category], direction: Direction) -> None:
        chosen = [category for category in categories if direction in category.directions]
        self.hits = [category.hit for category in chosen]
        self.matcher = Matcher([category.terms for category in chosen])

    def named(self, places: Iterable[int]) -> tuple[Hit, ...]:
        return tuple(self.hits[place] for place in sorted(places))


class RuleScreener:
    """Finds what the rules say. Safe to use from several threads at once."""

    def __init__(self, categories: Sequence[Category]) -> None:
        """Compiles rules, which may take seconds for lists of very many words.

        Raises:
            ImportError: A package of the extra `safety` is missing.
        """
        self._input = _Side(categories, Direction.INPUT)
        self._output = _Side(categories, Direction.OUTPUT)
        self._keep = max(self._input.matcher.width, self._output.matcher.width) + CONTEXT
        said = repr([(each, sorted(one.value for one in each.directions)) for each in categories])
        self.version = hashlib.blake2b(said.encode(), digest_size=8).hexdigest()
        """Tells these rules from others; equal rules have the same."""

    def screen(self, item: Item) -> tuple[Screened, ...]:
        """Looks at an item of the input by itself."""
        if self._input.matcher.empty:
            return ()
        return tuple(self._alone(text, model) for text, model in said(item) if text)

    def screen_text(self, text: str) -> tuple[Screened, ...]:
        """Looks at what a hosted tool brought."""
        return () if self._input.matcher.empty or not text else (self._alone(text, model=False),)

    def _alone(self, text: str, model: bool) -> Screened:
        data = fold(text)
        keep = self._keep
        # A match that begins or ends with the text has nothing beside it.
        _, found = scan(self._input.matcher, keep, b"", _beside(data, b" "), final=True)
        return Screened(self._input.named(found), data[: _cut(data, keep)], data[-keep:], len(data) <= keep, model)

    def follow(self, overlap: Overlap, screened: Sequence[Screened]) -> tuple[Overlap, tuple[Hit, ...]]:
        """Goes on from an overlap by what was found in texts by themselves."""
        hits: dict[Hit, None] = {}
        client, model = overlap
        for one in screened:
            hits.update(dict.fromkeys(one.hits))
            if one.model:
                model, found = self._seam(model, one)
            else:
                client, found = self._seam(client, one)
            hits.update(dict.fromkeys(self._input.named(found)))
        return Overlap(client, model), tuple(hits)

    def _seam(self, tails: Tails, one: Screened) -> tuple[Tails, set[int]]:
        matcher, keep = self._input.matcher, self._keep
        spaced, joined = tails
        # A short text does not end the matches that it is part of.
        head = _beside(one.head, b" ") if one.whole else one.head
        after, found = scan(matcher, keep, spaced, head, crossing=True, final=one.whole)
        beside = (joined + one.head)[-keep:]
        if joined:
            found |= scan(matcher, keep, joined, head, crossing=True, final=one.whole)[1]
        if one.whole:
            return Tails(after, beside), found
        return Tails(_beside(one.tail, b" ")[-keep:], one.tail), found

    def output(self, tails: Tails) -> RuleOutput | None:
        """Begins to look at output; None where no rule is for it."""
        if self._output.matcher.empty:
            return None
        return RuleOutput(self._output, self._keep, tails)


class RuleOutput:
    """Looks at what a model says while it says it."""

    __slots__ = ("_fresh", "_keep", "_side", "_tails")

    def __init__(self, side: _Side, keep: int, tails: Tails) -> None:
        """Takes the rules, how many bytes to keep, and what was said before."""
        self._side = side
        self._keep = keep
        self._tails = tails
        self._fresh = True
        """Whether the next piece begins a text."""

    @property
    def tails(self) -> Tails:
        """What has to be remembered."""
        return self._tails

    def text(self, text: str) -> tuple[int, Sequence[Hit]]:
        """Takes the next piece of a text."""
        data = fold(text)
        if not data:
            return 0, ()
        matcher, keep = self._side.matcher, self._keep
        spaced, joined = self._tails
        size = len(data) - (data[0] == _SPACE and spaced.endswith(b" "))
        after, found = scan(matcher, keep, spaced, data, crossing=self._fresh)
        beside = after
        if joined != spaced:
            beside, more = scan(matcher, keep, joined, data, crossing=self._fresh)
            found |= more
        self._tails = Tails(after, beside)
        self._fresh = False
        return size, self._side.named(found) if found else ()

    def end(self) -> tuple[int, Sequence[Hit]]:
        """Hears that a text is complete."""
        spaced, joined = self._tails
        self._fresh = True
        after, found = scan(self._side.matcher, self._keep, spaced, b" ", final=True)
        if joined != spaced:
            found |= scan(self._side.matcher, self._keep, joined, b" ", final=True)[1]
        self._tails = Tails(after, joined)
        return int(not spaced.endswith(b" ")), self._side.named(found) if found else ()

    def waiting(self) -> int:
        """Returns how many bytes at the end may be the beginning of something that is to be stopped."""
        spaced, joined = self._tails
        matcher = self._side.matcher
        longest = matcher.waiting(spaced)
        # Spaces between items count as said, and there are no more of them than letters.
        return longest if joined == spaced else max(longest, 2 * matcher.waiting(joined))


_SPACE: Final = 0x20


def scan(
    matcher: Matcher, keep: int, tail: bytes, data: bytes, *, crossing: bool = False, final: bool = False
) -> tuple[bytes, set[int]]:
    """Looks at what follows a tail; returns the next tail and the places of what was found.

    Args:
        matcher: The rules.
        keep: Bytes of the next tail.
        tail: What was looked at before.
        data: What is new.
        crossing: Whether what ends with the tail was decided before.
        final: Whether what ends with the data is decided.
    """
    if data[:1] == b" " and tail[-1:] == b" ":
        # Two pieces of one run of white space.
        data = data[1:]
    if len(data) <= SLICE:
        stretch = tail + data
        return stretch[-keep:], matcher.find(stretch, len(tail) + crossing, final=final)
    found: set[int] = set()
    at = 0
    while at < len(data):
        end = _cut(data, at + SLICE)
        stretch = tail + data[at:end]
        found |= matcher.find(stretch, len(tail) + crossing, final=final and end >= len(data))
        tail, at, crossing = stretch[-keep:], end, False
    return tail, found


def _cut(data: bytes, end: int) -> int:
    """Returns where to cut text at the latest: never within a character, which might be a letter."""
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    return end


def _beside(text: bytes, more: bytes) -> bytes:
    return text + (more[1:] if text[-1:] == b" " and more[:1] == b" " else more)
