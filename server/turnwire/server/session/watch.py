"""What a classifier's rules mean for one response at work: what it has said so far, and what of it has to wait.

Above it: verdicts, which decide. Below it: the values and ports of `screens`. Output waits as the engine's own chunks,
in order: a chunk leaves when nothing of it may be the beginning of something that is to be stopped, and when everybody
who was asked has answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from turnwire.server.session.chunks import (
    CallDelta,
    CallStart,
    Channel,
    Chunk,
    Finish,
    PassUsage,
    TextChunk,
)
from turnwire.server.session.screens import SILENCE, Direction, Hit, OutputScreen, Overlap, Screener, Verdict
from turnwire.server.session.transcript import Entry, Transcript

_RECALLED_ENTRIES: Final = 16
_RECALLED_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Pending:
    """A question that somebody else was asked."""

    direction: Direction
    start: int = 0
    """How much of the output stands before what it is about."""
    then: Callable[[Verdict], None] | None = None
    """Takes the answer in place of the response, which goes on meanwhile."""


@dataclass(slots=True)
class Watch:
    """The guard of one response. Mutable; owned by its run."""

    overlap: Overlap = SILENCE
    pending: dict[int, Pending] = field(default_factory=dict[int, Pending])
    """Questions that were not answered yet, by ticket."""
    postponed: Callable[[], None] | None = None
    """What goes on once the input's verdict is there."""
    reported: set[tuple[Direction, str]] = field(default_factory=set[tuple[Direction, str]])
    """Categories that were reported already."""
    outcome: Finish | None = None
    """How the pass ended whose output waits."""
    screen: OutputScreen | None = None
    held: deque[tuple[int, Chunk]] = field(default_factory=deque[tuple[int, Chunk]])
    """Chunks that wait, each with where it ends."""
    held_bytes: int = 0
    """About how much that is."""
    seen: int = 0
    """How much was said in this pass."""
    sent: int = 0
    """How much of it was sent to be classified elsewhere."""
    whole: bool = False
    """Whether the pass has ended."""
    tokens: int = 0
    reasoning_tokens: int = 0
    unsent: list[str] = field(default_factory=list[str])
    """Output that was not sent to be classified elsewhere yet."""
    unsent_size: int = 0
    context: str = ""
    """The end of what was sent before it."""
    _open: object = None
    """The text that is being said."""

    @property
    def asks_about_input(self) -> bool:
        """Whether the input's verdict is not there."""
        return any(pending.direction is Direction.INPUT for pending in self.pending.values())

    def begin(self, screener: Screener | None) -> None:
        """Begins a pass."""
        self.screen = None if screener is None else screener.output(self.overlap.model)
        self.held.clear()
        self.held_bytes = self.seen = self.sent = self.tokens = self.reasoning_tokens = 0
        self.unsent.clear()
        self.unsent_size = 0
        self.context = ""
        self.outcome = None
        self.whole = False
        self._open = None

    def look(self, chunk: Chunk) -> Sequence[Hit]:
        """Looks at the next chunk of a pass."""
        self.tokens += chunk.tokens
        if isinstance(chunk, TextChunk):
            place = (chunk.channel, chunk.phase)
            hits = self.close() if self._open != place else ()
            self._open = place
            if chunk.channel is Channel.REASONING:
                self.reasoning_tokens += chunk.tokens
            return (*hits, *self._text(chunk.text))
        if isinstance(chunk, CallDelta):
            return self._text(chunk.text)
        hits = self.close()
        if isinstance(chunk, CallStart):
            hits = (*hits, *self._text(chunk.name), *self.close())
            self._open = chunk
        return hits

    def _text(self, text: str) -> Sequence[Hit]:
        if not text:
            return ()
        self.unsent.append(text)
        self.unsent_size += len(text)
        if self.screen is None:
            self.seen += len(text)
            return ()
        size, hits = self.screen.text(text)
        self.seen += size
        return hits

    def close(self) -> Sequence[Hit]:
        """Ends the text that is being said, if there is one."""
        if self._open is None and not self.whole:
            return ()
        self._open = None
        if self.unsent:
            self.unsent.append("\n")
        if self.screen is None:
            return ()
        size, hits = self.screen.end()
        self.seen += size
        return hits

    def finish(self) -> Sequence[Hit]:
        """Hears that the pass has ended."""
        self.whole = True
        return self.close()

    def hold(self, chunk: Chunk) -> None:
        """Lets a chunk wait that was looked at."""
        self.held.append((self.seen, chunk))
        self.held_bytes += _size(chunk)

    def release(self, *, asked: bool) -> list[Chunk]:
        """Returns the chunks that need not wait any longer.

        Args:
            asked: Whether output is classified elsewhere too.
        """
        limit = self.seen
        if self.asks_about_input:
            limit = -1
        elif self.screen is not None and not self.whole:
            limit -= self.screen.waiting()
        if asked:
            # Answers may come in any order, and output leaves in its own.
            about = [each.start for each in self.pending.values() if each.direction is Direction.OUTPUT]
            limit = min(limit, self.sent, *about)
        released: list[Chunk] = []
        held = self.held
        while held and held[0][0] <= limit:
            chunk = held.popleft()[1]
            self.held_bytes -= _size(chunk)
            released.append(chunk)
        return released

    def take_unsent(self, overlap: int) -> str:
        """Returns the output that is to be sent, with the end of what was sent before it; "" where there is none."""
        self.sent = self.seen
        if not self.unsent:
            return ""
        text = self.context + "".join(self.unsent)
        self.context = text[-overlap:] if overlap else ""
        self.unsent.clear()
        self.unsent_size = 0
        return text

    def carry(self) -> Overlap:
        """Returns what has to be remembered of the chain."""
        if self.screen is not None:
            self.overlap = self.overlap._replace(model=self.screen.tails)
        return self.overlap

    def cost(self, prompt: int, cached: int) -> PassUsage:
        """Returns what the pass has cost: as its engine counted it, if that came to say so, else as far as it was seen.

        Args:
            prompt: The prompt's tokens as the server counts them.
            cached: How many of them the engine had seen before.
        """
        if self.outcome is not None:
            return self.outcome.usage
        return PassUsage(prompt, cached, self.tokens, self.reasoning_tokens)


def last_entries(transcript: Transcript) -> list[Entry]:
    """Returns the last entries of a chain that does not remember its last words; few, and none beyond a long one."""
    last: list[Entry] = []
    size = 0
    for segment in transcript.segments():
        for entry in reversed(segment.new):
            size += len(entry.data)
            if len(last) >= _RECALLED_ENTRIES or size > _RECALLED_BYTES:
                return last[::-1]
            last.append(entry)
    return last[::-1]


def _size(chunk: Chunk) -> int:
    return len(chunk.text) + 24 if isinstance(chunk, (TextChunk, CallDelta)) else 24
