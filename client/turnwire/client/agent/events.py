"""What an agent tells whoever watches it, through its `on_event`.

Below: `report` and the client's own events. Above: progress displays, logs, tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from turnwire.client.agent.report import TurnReport
from turnwire.client.events import Event


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The model is asked."""

    number: int
    """Counted from 1."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """An event of the response arrived: text, reasoning, a finished item, a pause."""

    number: int
    """The turn."""
    event: Event


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool began its work."""

    number: int
    """The turn."""
    call_id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool has finished; its output goes to the model."""

    number: int
    """The turn."""
    call_id: str
    name: str
    output: str
    failed: bool
    """Whether the tool could not be run or could not do what was asked."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is complete."""

    report: TurnReport


AgentEvent: TypeAlias = TurnStarted | Streamed | ToolStarted | ToolFinished | TurnEnded
"""Anything an agent tells."""
