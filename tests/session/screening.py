"""A classifier that flags the letter z, and lets a text wait that ends in x."""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.server.session.screens import Hit, Overlap, Screened, Tails
from turnwire.v1.item_pb2 import Item

FLAGGED = (Hit("z", blocks=True),)


class LetterScreener:
    """Looks for the letter in whatever is said."""

    def screen(self, item: Item) -> tuple[Screened, ...]:
        return self.screen_text(str(item))

    def screen_text(self, text: str) -> tuple[Screened, ...]:
        return (Screened(FLAGGED if "z" in text else (), b"", b"", whole=True, model=False),)

    def follow(self, overlap: Overlap, screened: Sequence[Screened]) -> tuple[Overlap, tuple[Hit, ...]]:
        return overlap, tuple(hit for one in screened for hit in one.hits)

    def output(self, tails: Tails) -> LetterOutput:
        return LetterOutput()


class LetterOutput:
    """Looks for the letter in output."""

    tails = Tails()

    def __init__(self) -> None:
        self._last = 0

    def text(self, text: str) -> tuple[int, Sequence[Hit]]:
        self._last = len(text) if text.endswith("x") else 0
        return len(text), FLAGGED if "z" in text else ()

    def end(self) -> tuple[int, Sequence[Hit]]:
        self._last = 0
        return 1, ()

    def waiting(self) -> int:
        return self._last
