"""A scenario as values: turns, speeds, and which turn is played next.

Above it: `scenario`, which reads them from a file, `script` and the engine. Below it: the session core's chunk values.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwire.server.session.chunks import CallKind, FinishReason

if TYPE_CHECKING:
    import re

UNLIMITED = math.inf
"""Tokens per second of an engine that is as fast as the machine."""


class OnEnd(enum.Enum):
    """What is played once every positional turn was."""

    LAST = "last"
    """The last turn, again and again."""
    REPEAT = "repeat"
    """The turns from the first on."""
    ERROR = "error"
    """Nothing: the pass fails."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast tokens come."""

    ttft: float = 0.0
    """Seconds from the start of a pass to its first token."""
    tokens_per_second: float = UNLIMITED
    burst: int = 1
    """Tokens released at once; the rate on average stays."""

    def changed_by(self, change: SpeedChange | None) -> Speed:
        """Returns this speed with what `change` sets."""
        if change is None:
            return self
        return Speed(
            self.ttft if change.ttft is None else change.ttft,
            self.tokens_per_second if change.tokens_per_second is None else change.tokens_per_second,
            self.burst if change.burst is None else change.burst,
        )


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """What a turn, or the command line, sets differently; None keeps what was."""

    ttft: float | None = None
    tokens_per_second: float | None = None
    burst: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call."""

    name: str
    kind: CallKind
    arguments: str
    """JSON text of a function's arguments, or the free text of a custom tool's input."""
    call_id: str = ""
    """Empty lets the script make one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The engine dies in mid-stream."""

    code: str
    message: str
    after_tokens: int = 0
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one pass says: reasoning, its summary, text, refusal, calls, in this order."""

    index: int
    """Its place in the file, from 0."""
    when: re.Pattern[str] | None = None
    reasoning: str = ""
    summary: str = ""
    text: str = ""
    refusal: str = ""
    calls: tuple[Call, ...] = ()
    finish: FinishReason = FinishReason.STOP
    failure: Failure | None = None
    speed: SpeedChange | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The turn chosen for a pass."""

    turn: Turn
    may_repeat: bool
    """Whether the same chain may play this turn more than once, so that call ids given in the file would clash."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A checked scenario; never changes once loaded."""

    origin: str
    digest: str
    """SHA-256 of the text, in hex; part of what call ids are made from."""
    models: tuple[str, ...]
    context_length: int | None
    speed: Speed
    turns: tuple[Turn, ...]
    on_end: OnEnd

    @property
    def reads_text(self) -> bool:
        """Whether any turn is chosen by the text of the newest item."""
        return any(turn.when is not None for turn in self.turns)

    def select(self, passes_before: int, newest_text: str) -> Selection | None:
        """Chooses the turn of a pass.

        Args:
            passes_before: How many passes of the chain were sampled before this one.
            newest_text: Text of the newest user message or tool output; read only by turns with `when`.

        Returns:
            The first turn whose `when` is found in the text, else the positional one; None if the script has ended.
        """
        for turn in self.turns:
            if turn.when is not None and turn.when.search(newest_text):
                return Selection(turn, may_repeat=True)
        positional = [turn for turn in self.turns if turn.when is None]
        if passes_before < len(positional):
            # The last turn may be played again later, but its first time is known to be the first.
            return Selection(positional[passes_before], may_repeat=False)
        if not positional or self.on_end is OnEnd.ERROR:
            return None
        again = -1 if self.on_end is OnEnd.LAST else passes_before % len(positional)
        return Selection(positional[again], may_repeat=True)
