"""Shows agents at work: live where there is a terminal, else a line per turn, or per agent where there are several.

Above it: `turnwire agent` and the demo. Below it: the agent's events, and rich.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from turnwire.client.agent.events import AgentEvent, Streamed, ToolFinished, ToolStarted, TurnStarted
from turnwire.client.agent.report import TurnReport
from turnwire.client.commands.waterfall import calls_of, counted, waterfall

_REFRESH_PER_SECOND: Final = 8
_SHOWN_TURNS: Final = 8
_CALL_LENGTH: Final = 60
_SHORT_PASS: Final = 0.1

_DOING: Final = {
    "reasoning_text_delta": "reasoning",
    "reasoning_summary_text_delta": "reasoning",
    "output_text_delta": "writing",
    "function_call_arguments_delta": "calling",
}
"""Events that stand for about a token each, and what the model does then."""


class Watch:
    """What is known about one agent at work; its `on_event` is the agent's."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes how to call the agent, and where time comes from."""
        self.label: Final = label
        self.turn = 0
        self.reports: list[TurnReport] = []
        self.doing = "waiting"
        self.tokens = 0
        """Deltas so far, about one a token."""
        self.on_turn: Callable[[TurnReport], None] = lambda _: None
        """Hears of every complete turn."""
        self._clock = clock
        self._tools: dict[str, str] = {}
        self._burst_tokens = 0
        self._burst_started = 0.0
        self._burst_ended = 0.0

    def on_event(self, event: AgentEvent) -> None:
        """Takes in what an agent tells."""
        if isinstance(event, Streamed):
            doing = _DOING.get(event.event.kind)
            if doing is not None:
                self._count(doing)
        elif isinstance(event, TurnStarted):
            self.turn = event.number
            self.doing = "asking"
            self._burst_tokens = 0
        elif isinstance(event, ToolStarted):
            self._tools[event.call_id] = describe_call(event.name, event.arguments)
        elif isinstance(event, ToolFinished):
            self._tools.pop(event.call_id, None)
        else:
            self.reports.append(event.report)
            self.on_turn(event.report)

    @property
    def tokens_per_second(self) -> float | None:
        """The rate of this pass since its first token; that of the last pass while this one is too short to tell."""
        seconds = self._burst_ended - self._burst_started
        if self._burst_tokens > 1 and seconds >= _SHORT_PASS:
            return (self._burst_tokens - 1) / seconds
        return self.reports[-1].tokens_per_second if self.reports else None

    @property
    def activity(self) -> str:
        """What happens right now."""
        return "; ".join(self._tools.values()) or self.doing

    def _count(self, doing: str) -> None:
        now = self._clock()
        if not self._burst_tokens:
            self._burst_started = now
        self._burst_ended = now
        self._burst_tokens += 1
        self.tokens += 1
        self.doing = doing


class Progress:
    """Shows agents while they work: `with Progress(console, watches):`."""

    def __init__(self, console: Console, watches: Sequence[Watch]) -> None:
        """Takes where to show, and whom."""
        self._console = console
        self._watches = watches
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=_REFRESH_PER_SECOND,
                transient=True,
            )
            self._live.start()
        else:
            for watch in self._watches:
                watch.on_turn = lambda report, watch=watch: self._print(watch, report)  # type: ignore[misc]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _print(self, watch: Watch, report: TurnReport) -> None:
        if len(self._watches) == 1:
            self._console.print(f"turn {report.number}: {calls_of(report)} ({report.wall:.2f} s)", markup=False)
        elif report.outcome != "calls" or not report.tools:
            seconds = report.started + report.wall
            end = "has answered" if report.outcome == "answer" else f"has ended ({calls_of(report)})"
            self._console.print(
                f"{watch.label} {end} after {counted(report.number, 'turn')} ({seconds:.2f} s)", markup=False
            )

    def _render(self) -> RenderableType:
        if len(self._watches) > 1:
            return _lanes(self._watches)
        (watch,) = self._watches
        status = Text(f"turn {watch.turn}  ", style="bold")
        status.append(_clip(watch.activity, self._console.width - 30), style="default")
        if watch.tokens_per_second is not None:
            status.append(f"  {watch.tokens_per_second:,.0f} tok/s", style="green")
        return Group(waterfall(watch.reports[-_SHOWN_TURNS:], self._console), status)


def _lanes(watches: Sequence[Watch]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("lane", no_wrap=True)
    for name in ("turn", "tokens", "tok/s"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    table.add_column("now", no_wrap=True, overflow="ellipsis", ratio=1)
    for watch in watches:
        rate = watch.tokens_per_second
        table.add_row(
            watch.label, str(watch.turn), f"{watch.tokens:,}", f"{rate:,.0f}" if rate else "", Text(watch.activity)
        )
    return table


def describe_call(name: str, arguments: str) -> str:
    """Returns a call in a few words: the tool, and the first of its arguments that is a text."""
    try:
        values = cast("object", json.loads(arguments))
    except ValueError:
        return name
    if isinstance(values, dict):
        for value in cast("dict[str, Any]", values).values():
            if isinstance(value, str) and value.strip():
                return _clip(f"{name} {value.strip().splitlines()[0]}", _CALL_LENGTH)
    return name


def _clip(text: str, length: int) -> str:
    length = max(length, 1)
    return text if len(text) <= length else text[: length - 1] + "…"
