"""End-to-end time of a rollout per driver, for each model speed and round trip, with the floor.

Above it: the report's sections. Below it: `style`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.plots.style import GRID, INK, canvas, look, svg_of

_MARKERS: Final = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True, slots=True)
class Cell:
    """One speed and one round trip, in seconds; times by driver."""

    tokens_per_second: float
    round_trip: float
    floor: float
    times: dict[str, Interval]


def draw(name: str, title: str, cells: Sequence[Cell], drivers: Sequence[str]) -> str:
    """Returns an SVG: a row for each driver, a panel for each speed, a marker for each round trip; floors dashed."""
    speeds = sorted({cell.tokens_per_second for cell in cells})
    trips = sorted({cell.round_trip for cell in cells})
    with canvas(1, len(speeds), 0.27 * len(drivers) + 1.35, sharey=True) as (figure, axes):
        for axis, speed in zip(axes[0], speeds, strict=True):
            for cell in (each for each in cells if each.tokens_per_second == speed):
                shade = _shade(trips.index(cell.round_trip), len(trips))
                axis.axvline(cell.floor, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), alpha=shade)
                for row, driver in enumerate(drivers):
                    if driver in cell.times:
                        marker = _MARKERS[trips.index(cell.round_trip) % len(_MARKERS)]
                        _point(axis, row, cell.times[driver], marker, look(driver).colour, shade)
            axis.set_title("no limit" if math.isinf(speed) else f"{speed:,.0f} tokens/s")
            axis.set_xlim(0, 1.06 * _longest(each for each in cells if each.tokens_per_second == speed))
            axis.grid(visible=True, axis="y", color=GRID)
        axes[0][0].set_yticks(range(len(drivers)), drivers)
        axes[0][0].set_ylim(len(drivers) - 0.4, -0.6)
        for tick, driver in zip(axes[0][0].get_yticklabels(), drivers, strict=True):
            tick.set_color(look(driver).colour)
        figure.supxlabel("end-to-end time of a rollout, s, median and 95% interval", fontsize=9)
        handles: list[Any] = []
        for place, trip in enumerate(trips):
            marker, shade = _MARKERS[place % len(_MARKERS)], _shade(place, len(trips))
            handles += axes[0][0].plot([], [], marker, color=INK, alpha=shade, label=_trip(trip), linestyle="")
        floor = axes[0][0].plot([], [], color=INK, linewidth=0.9, linestyle=(0, (4, 2)), label="floor of each")[0]
        figure.legend(handles=[*handles, floor], loc="outside upper left", ncols=len(trips) + 1, frameon=False)
        return svg_of(figure, name, title)


def _longest(cells: Iterable[Cell]) -> float:
    """Returns the longest of all times and floors, ends of intervals included."""
    longest = 0.0
    for cell in cells:
        ends = (end for time in cell.times.values() for end in (time.value, time.high))
        longest = max(longest, cell.floor, *(end for end in ends if math.isfinite(end)))
    return longest or 1.0


def _point(axis: Any, row: int, time: Interval, marker: str, colour: str, shade: float) -> None:
    if math.isfinite(time.low):
        axis.plot([time.low, time.high], [row, row], color=colour, linewidth=3, alpha=0.3)
    axis.plot([time.value], [row], marker, color=colour, alpha=shade, markersize=5)


def _shade(place: int, count: int) -> float:
    """Returns how opaque: the longer the round trip, the more."""
    return 1.0 if count < 2 else 0.4 + 0.6 * place / (count - 1)


def _trip(seconds: float) -> str:
    return f"RTT {seconds * 1000:g} ms"
