"""Shows where the time of an agent's run went: a bar of three stages per turn, and totals.

Above it: `turnwire agent` and the demo. Below it: the agent's reports, and rich. What has no colour gets letters.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwire.client.agent.report import Outcome, RunTotals, TurnReport

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_PLAIN_WIDTH: Final = 110
_MIN_BAR: Final = 10
_CALLS_WIDTH: Final = (22, 32)
_ENDS: Final[Mapping[Outcome, str]] = {
    "calls": "calls not run",
    "answer": "answer",
    "incomplete": "cut off",
    "failed": "failed",
    "cancelled": "cancelled",
}
_NUMBERS: Final = (("API\nms", 6), ("inference\nms", 9), ("client\nms", 6), ("tokens", 6), ("tok/s", 6))


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the three stages, as it is shown."""

    name: str
    style: str
    letter: str
    """Stands for it where there is no colour."""


API: Final = Stage("API", "red", "A")
INFERENCE: Final = Stage("inference", "green", "i")
CLIENT: Final = Stage("client", "blue", "c")


def make_console(*, stderr: bool = False) -> Console:
    """Returns a console: of the terminal's width, or wide enough for a table where there is none."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=stderr, highlight=False, width=_PLAIN_WIDTH)
    return console


def waterfall(turns: Sequence[TurnReport], console: Console) -> Table:
    """Returns a table with a bar per turn, all to the same scale."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, caption=_legend(console), caption_justify="left")
    free = console.width - 5 - sum(width + 1 for _, width in _NUMBERS)
    calls_width = min(max(free // 3, _CALLS_WIDTH[0]), _CALLS_WIDTH[1])
    bar_width = max(free - calls_width - 2, _MIN_BAR)
    table.add_column("turn", justify="right", width=4)
    table.add_column("calls", width=calls_width, no_wrap=True, overflow="ellipsis")
    for (name, width), stage in zip_longest(_NUMBERS, (API, INFERENCE, CLIENT)):
        table.add_column(name, justify="right", width=width, style=stage.style if stage else None, no_wrap=True)
    table.add_column(width=bar_width, no_wrap=True)
    slowest = max((turn.wall for turn in turns), default=0.0)
    for turn in turns:
        rate = turn.tokens_per_second
        table.add_row(
            str(turn.number),
            calls_of(turn),
            _milliseconds(turn.api),
            _milliseconds(turn.inference),
            _milliseconds(turn.client),
            str(turn.tokens.output),
            f"{rate:,.0f}" if rate is not None else "",
            bar(turn, slowest, bar_width, colour=console.color_system is not None),
        )
    return table


def bar(turn: TurnReport, full: float, width: int, *, colour: bool) -> Text:
    """Returns the stages of a turn end to end, `full` seconds being `width` cells; exact to an eighth of a cell."""
    cells = width * 8
    edges: list[int] = []
    reached = 0.0
    for seconds in (turn.api, turn.inference, turn.client):
        reached += seconds
        edges.append(min(round(reached / full * cells), cells) if full > 0 else 0)
    stages = (API, INFERENCE, CLIENT)
    text = Text()
    for start in range(0, edges[-1], 8):
        # The stage of each eighth of this cell; None is behind the end.
        parts = [
            next((stage for stage, edge in zip(stages, edges, strict=True) if eighth < edge), None)
            for eighth in range(start, start + 8)
        ]
        first = parts[0]
        if first is None:
            break
        if not colour:
            most = max((API, INFERENCE, CLIENT, None), key=parts.count)
            text.append(most.letter if most is not None else "")
            continue
        last = parts[-1]
        filled = parts.count(first)
        style = first.style if last is None or last is first else f"{first.style} on {last.style}"
        text.append(_EIGHTHS[filled], style)
    return text


def calls_of(turn: TurnReport) -> str:
    """Names the tools of a turn, those called several times once, and how it ended where that was not at calls."""
    counts = Counter(tool.name for tool in turn.tools)
    names = [f"{name} x{count}" if count > 1 else name for name, count in counts.items()]
    if not names or turn.outcome != "calls":
        names.append(_ENDS[turn.outcome])
    return ", ".join(names)


def counted(number: int, what: str) -> str:
    """Returns a number of things, such as `1 turn` or `2 turns`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def totals_lines(totals: RunTotals, *, elapsed: float | None = None, runs: int = 1) -> list[Text]:
    """Returns the sums as lines.

    Args:
        totals: Of one run, or of several at once.
        elapsed: How long it all took, where that is not the sum.
        runs: How many runs they are.
    """
    tokens = totals.tokens
    failed = f", {totals.failed_calls} failed" if totals.failed_calls else ""
    lines = [
        Text(f"{counted(totals.turns, 'turn')}, {counted(totals.tool_calls, 'tool call')}{failed}"),
        Text(
            f"{tokens.output:,} tokens sampled ({tokens.reasoning:,} of them reasoning); "
            f"{tokens.input:,} tokens of prompts ({tokens.cached:,} of them already known)"
        ),
    ]
    wall = f"{totals.wall:.2f} s" if elapsed is None else f"{elapsed:.2f} s for {totals.wall:.2f} s of {runs} agents"
    line = Text(f"{wall}: ")
    for number, (stage, seconds) in enumerate(
        ((API, totals.api), (INFERENCE, totals.inference), (CLIENT, totals.client))
    ):
        line.append(", " if number else "")
        line.append(f"{stage.name} {seconds:.2f} s ({totals.share(seconds):.1%})", stage.style)
    lines.append(line)
    return lines


def _legend(console: Console) -> Text:
    legend = Text()
    for stage in (API, INFERENCE, CLIENT):
        legend.append("  " if legend else "")
        mark = "█" if console.color_system is not None else stage.letter
        legend.append(f"{mark} {stage.name}", stage.style)
    return legend


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f}" if seconds < 0.1 else f"{seconds * 1000:,.0f}"
