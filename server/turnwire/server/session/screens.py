"""What the core knows of safety classifiers: verdicts as values, and the port of the fast local one.

Above it: verdicts, which decide by these values, and the classifiers of `policy.safety`, which make them. Below it:
entries. A classifier sees what is new only. What it has to remember of a chain, so that something written in two pieces
is still found, is an `Overlap`: a few hundred bytes that are carried along the chain like its other running values.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from turnwire.server.session.transcript import Entry, Transcript
    from turnwire.v1.item_pb2 import Item


class Direction(enum.Enum):
    """Whose words were looked at."""

    INPUT = "input"
    """What the client sent, and what hosted tools brought."""
    OUTPUT = "output"
    """What the model said."""


@dataclass(frozen=True, slots=True)
class Hit:
    """Something was flagged. It never holds what was flagged."""

    category: str
    blocks: bool
    """Whether it ends the response; else it is counted."""
    code: str = "invalid_prompt"
    """The error code where it ends a response because of its input."""


class Tails(NamedTuple):
    """The end of what one party said, in a form of the classifier's own; a value."""

    spaced: bytes = b""
    """With a space between one item and the next."""
    joined: bytes = b""
    """With nothing between them: a word may be written in two items."""


class Overlap(NamedTuple):
    """The end of what was said in a chain; a value."""

    client: Tails = Tails()
    model: Tails = Tails()


SILENCE: Final = Overlap()
"""The overlap of a chain in which nothing was said."""


class Screened(NamedTuple):
    """What a classifier found in one text by itself, and what it needs to find what goes on into the next; a value."""

    hits: tuple[Hit, ...]
    head: bytes
    tail: bytes
    whole: bool
    """Whether `head` is all of it."""
    model: bool
    """Whether the model said it once, and a client replays it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a classifier says in the end."""

    hits: tuple[Hit, ...] = ()
    failed: bool = False
    """Whether there is none, and the server is configured not to go on without."""


class OutputScreen(Protocol):
    """Looks at what a model says while it says it."""

    def text(self, text: str, /) -> tuple[int, Sequence[Hit]]:
        """Takes the next piece of a text; returns its length in the classifier's own form, and what was found."""
        ...

    def end(self) -> tuple[int, Sequence[Hit]]:
        """Hears that a text is complete: what comes next is another item, or another part; as `text`."""
        ...

    def waiting(self) -> int:
        """Returns how much at the end of what was said may be the beginning of something that is to be stopped."""
        ...

    @property
    def tails(self) -> Tails:
        """What has to be remembered."""
        ...


class Screener(Protocol):
    """A classifier that answers at once. Safe to use from several threads; what it returns are values."""

    def screen(self, item: Item) -> tuple[Screened, ...]:
        """Looks at an item of the input by itself. Costs the item; large ones are worth a thread."""
        ...

    def screen_text(self, text: str) -> tuple[Screened, ...]:
        """Looks at what a hosted tool brought; as `screen`."""
        ...

    def follow(self, overlap: Overlap, screened: Sequence[Screened]) -> tuple[Overlap, tuple[Hit, ...]]:
        """Goes on from an overlap: returns the next one, and all hits, those across the seams included.

        Costs the overlap, whatever the size of the items.
        """
        ...

    def output(self, tails: Tails) -> OutputScreen | None:
        """Begins to look at output; None where nothing is looked for there."""
        ...


@dataclass(frozen=True, slots=True)
class Safety:
    """How a session is guarded."""

    gate: bool = True
    """Whether flags stop a response, and nothing leaves before it was looked at; else they are counted."""
    screener: Screener | None = None
    remote: frozenset[Direction] = frozenset()
    """What the runtime is asked to have classified elsewhere."""
    piece: int = 2_000
    """Characters of output that are classified elsewhere at a time."""
    overlap: int = 200
    """Characters before a piece that are sent again with it."""
    whole: bool = False
    """Whether every turn looks at the whole conversation anew: the uncached way of working."""


@dataclass(frozen=True, slots=True)
class Classify:
    """Have something classified elsewhere; answer with `Session.verdict`."""

    handle: int
    ticket: int
    direction: Direction
    entries: tuple[Entry, ...] = ()
    """New items of the input."""
    text: str = ""
    """New output."""
    before: Transcript | None = field(default=None, repr=False)
    """What stands before the items, for the last few words of it."""


@dataclass(frozen=True, slots=True)
class Flagged:
    """Report a flag to metrics and logs."""

    response_id: str
    direction: Direction
    category: str
    stopped: bool
    """Whether it ended the response."""
