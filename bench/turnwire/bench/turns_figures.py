"""What repeated measurements of continued turns come to: medians with intervals, and the ratio to the shortest. Pure.

Above it: `turns`. Below it: `metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from turnwire.bench.intervals import known, listed, spread
from turnwire.bench.metrics.statistics import Interval, bootstrap, median, paired_bootstrap


@dataclass(frozen=True, slots=True)
class Behind:
    """What a turn costs behind one history."""

    kilobytes: int
    microseconds: Interval
    """The median."""
    ratio: Interval
    """To the shortest history of the same run."""
    visited: Mapping[str, int]
    """Items that each stage looked at in a turn."""


def behind(runs: Sequence[Sequence[tuple[int, Sequence[float], Mapping[str, int]]]]) -> list[Behind]:
    """Returns what turns cost behind each history.

    Args:
        runs: Of each run, and of each history in the same order: its size in KB, the microseconds of its turns, and the
            items that the stages looked at.

    Raises:
        ValueError: There are no runs.
    """
    if not runs:
        msg = "expected at least one run"
        raise ValueError(msg)
    found: list[Behind] = []
    for place, (kilobytes, _, visited) in enumerate(runs[0]):
        times = [run[place][1] for run in runs]
        pairs = [(median(run[place][1]), median(run[0][1])) for run in runs]
        ratio = paired_bootstrap(pairs, lambda one, shortest: one / shortest)
        found.append(Behind(kilobytes, bootstrap(times), ratio, visited))
    return found


def figures(lines: Sequence[Behind]) -> dict[str, Any]:
    """Returns the lines for a result file, by KB of history."""
    return {str(line.kilobytes): _figure(line) for line in lines}


def _figure(line: Behind) -> dict[str, Any]:
    took = line.microseconds
    figure: dict[str, Any] = {"median_us": took.value}
    if known(took):
        figure |= {"low_us": took.low, "high_us": took.high}
    return figure | {"ratio": listed(line.ratio), "visited": dict(line.visited)}


def table(title: str, lines: Sequence[Behind]) -> Table:
    """Returns the lines as a table."""
    made = Table(title=title, title_justify="left")
    for column in ("history", "median, µs", "against the shortest"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("items looked at")
    for line in lines:
        looked = ", ".join(f"{stage} {count}" for stage, count in line.visited.items())
        cells = (f"{line.kilobytes:,} KB", spread(line.microseconds, 1, 0), spread(line.ratio, 1, 2), looked)
        made.add_row(*cells)
    return made
