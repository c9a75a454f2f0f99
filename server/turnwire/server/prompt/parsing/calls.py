"""What readers of calls and the parser of tagged text say to each other.

Above it: the dialects. Below it: nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools that a model may call."""

    names: frozenset[str] = frozenset()
    """Empty where they are not known."""
    schemas: Mapping[str, str] = field(default_factory=dict[str, str])
    """JSON Schemas of their arguments as JSON text, by name; a tool without one takes anything."""


class Progress(enum.Enum):
    """How far a reader has come."""

    MORE = 0
    """It needs more text."""
    DONE = 1
    """What it was opened for is over; what follows is for the parser."""
    FAILED = 2
    """This is not a call. What was read since the last call becomes text."""


class CallSink(Protocol):
    """Takes calls. Positions are those in the text given to `Reader.read`."""

    def start(self, name: str, position: int, call_id: str = "") -> bool:
        """Begins a call; false where it took too long to get there, and the reader must fail."""
        ...

    def arguments(self, text: str, start: int, end: int) -> None:
        """Says arguments that were read from `start` to `end`."""
        ...

    def end(self) -> None:
        """Ends the call."""
        ...


class Reader(Protocol):
    """Reads one call, or a list of them, from behind an opening mark on."""

    progress: Progress

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position` and returns where it stopped.

        As long as no call is open, the text of the next time begins at the same place, so that positions hold; while
        one is open it begins where the reader stopped.
        """
        ...

    def may_end(self) -> bool:
        """Whether the output may end here with nothing missing."""
        ...


@runtime_checkable
class Completing(Protocol):
    """A reader that makes JSON of its own, and may know how to end it."""

    def finish(self, text: str, position: int, sink: CallSink) -> None:
        """The output is over, by the model's own will, and ends with `text[position:]` while a call is open.

        Ends the call where all that is missing is marks; else the arguments stay as they are.
        """
        ...
