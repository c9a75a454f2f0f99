"""Stop strings, found in output text whatever chunks it comes in.

Above it: `passes`. Below it: nothing. An engine that knows stop strings ends sampling at one by itself, but the ids
sampled spell the string out all the same; and some engines do not know them. So they are looked for here in any case,
in output text only: what is in reasoning or a call's arguments is none of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnwire.server.session.chunks import Channel, Chunk, TextChunk


class StopScanner:
    """Cuts output text before the stop string that is complete first, and holds back what may become one."""

    __slots__ = ("_held", "_stops", "_text", "stopped")

    def __init__(self, stops: Sequence[str]) -> None:
        """Takes the strings, none of them empty."""
        self._stops = tuple(stops)
        self._held: list[TextChunk] = []
        self._text = ""
        self.stopped = False
        """Whether a stop string was found; nothing comes out any more."""

    def feed(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Returns what may be shown of all that has come."""
        out: list[Chunk] = []
        for chunk in chunks:
            if self.stopped:
                break
            if isinstance(chunk, TextChunk) and chunk.channel is Channel.TEXT:
                out.extend(self._scan(chunk))
            else:
                out.extend(self.flush())
                out.append(chunk)
        return out

    def flush(self) -> list[TextChunk]:
        """Returns what is held back, since no more of it will come."""
        held, self._held, self._text = self._held, [], ""
        return held

    def _scan(self, chunk: TextChunk) -> list[TextChunk]:
        self._held.append(chunk)
        self._text += chunk.text
        # The one complete first, which is the one found first if the text came a character at a time.
        found = [(at + len(stop), at) for stop in self._stops if (at := self._text.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._until(min(found)[1])
        return self._before(len(self._text) - self._undecided())

    def _undecided(self) -> int:
        """Returns how many characters at the end may begin a stop string."""
        text = self._text
        for length in range(min(len(text), max(map(len, self._stops)) - 1), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0

    def _before(self, limit: int) -> list[TextChunk]:
        """Returns the chunks that end within the limit; chunks stay whole, since their ids are those of their text."""
        end = count = 0
        for chunk in self._held:
            if end + len(chunk.text) > limit:
                break
            end += len(chunk.text)
            count += 1
        out, self._held = self._held[:count], self._held[count:]
        self._text = self._text[end:]
        return out

    def _until(self, limit: int) -> list[TextChunk]:
        """Returns the chunks up to a place, the last cut there."""
        out = self._before(limit)
        rest = limit - sum(len(chunk.text) for chunk in out)
        if rest > 0:
            out.append(replace(self._held[0], text=self._held[0].text[:rest]))
        return out
