"""One line of the table of budgets, and the table as Markdown and for terminals.

Above it: the modules that fill in lines. Below it: `intervals` and rich.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from turnwire.bench.intervals import known
from turnwire.bench.metrics.statistics import Interval


class Verdict(enum.Enum):
    """Whether a budget is kept."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"
    NO_BUDGET = "no budget"
    """A figure for comparison."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line. A budget with several parts has several lines of the same id."""

    id: str
    what: str
    budget: str
    figure: str
    """With its interval, where there is one."""
    verdict: Verdict
    sure: bool = True
    """Whether the whole interval lies on the same side of the budget, where there is one."""
    run: str = ""
    """What measures it, where it was not measured."""

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.verdict is Verdict.NOT_MEASURED:
            return f"not measured: run `{self.run}`"
        return self.verdict.value if self.sure else f"{self.verdict.value}, but the interval goes beyond the budget"


def judged(id: str, what: str, budget: str, figure: str, value: Interval, limit: float, *, least: bool = False) -> Line:
    """Returns a line whose figure has to be at most `limit`, or at least with `least`."""
    met = value.value >= limit if least else value.value <= limit
    sure = not known(value) or not value.low <= limit <= value.high or value.low == value.high
    return Line(id, what, budget, figure, Verdict.MET if met else Verdict.MISSED, sure)


def missing(id: str, what: str, budget: str, run: str) -> Line:
    """Returns a line without a figure."""
    return Line(id, what, budget, "", Verdict.NOT_MEASURED, run=run)


def markdown(lines: Sequence[Line]) -> str:
    """Returns the table in Markdown."""
    rows = ["| | what | budget | figure | verdict |", "|---|---|---|---|---|"]
    rows += [f"| {line.id} | {line.what} | {line.budget} | {line.figure} | {line.words} |" for line in lines]
    return "\n".join(rows) + "\n"


_COLOURS = {Verdict.MET: "green", Verdict.MISSED: "red", Verdict.NOT_MEASURED: "yellow", Verdict.NO_BUDGET: "dim"}


def table(lines: Sequence[Line]) -> Table:
    """Returns the table for terminals."""
    made = Table(title="Budgets; in brackets 95% intervals", title_justify="left")
    made.add_column("", no_wrap=True)
    for column in ("what", "budget", "figure", "verdict"):
        made.add_column(column, overflow="fold")
    for line in lines:
        made.add_row(line.id, line.what, line.budget, line.figure, line.words, style=_COLOURS[line.verdict])
    return made
