"""Lines over one quantity, each with its interval and its name: by history, by concurrency.

Above it: the report's sections. Below it: `style`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.plots.style import QUIET, Look, canvas, end_labels, look, svg_of


@dataclass(frozen=True, slots=True)
class Line:
    """One line."""

    name: str
    points: Sequence[tuple[float, Interval]]
    """Places, in order, and figures there."""
    named: bool = True
    """Whether its name stands at its end."""
    look: Look | None = None
    """By its name where None."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes; both are logarithmic, since both span decades."""

    title: str
    """Empty where the text above says it."""
    across: str
    """What the horizontal axis is, with its unit."""
    up: str
    """What the vertical axis is, with its unit."""
    lines: Sequence[Line]
    limit: tuple[float, str] | None = None
    """A budget, and its name."""


def plain(value: float) -> str:
    """Returns a number for an axis, such as 1,000 or 0.5."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def draw(
    name: str, title: str, panels: Sequence[Panel], place: Callable[[float], str] = plain, height: float = 3.6
) -> str:
    """Returns an SVG of panels below each other.

    Args:
        name: Unique in the page.
        title: What is seen.
        panels: Without points at or below 0, which a logarithmic axis cannot show.
        place: Writes places of the horizontal axis.
        height: Of a panel, in inches.
    """
    with canvas(len(panels), 1, height * len(panels)) as (figure, axes):
        for axis, panel in zip(axes[:, 0], panels, strict=True):
            _panel(axis, panel, place)
        return svg_of(figure, name, title)


def _panel(axis: Any, panel: Panel, place: Callable[[float], str]) -> None:
    ends: list[tuple[float, float, str, str]] = []
    for line in panel.lines:
        kind = line.look or look(line.name)
        xs = [x for x, _ in line.points]
        ys = [figure.value for _, figure in line.points]
        strength = 1.4 if line.named else 0.8
        axis.plot(xs, ys, kind.line, marker=kind.marker, color=kind.colour, linewidth=strength, markersize=3.5)
        for x, figure in line.points:
            if math.isfinite(figure.low) and figure.low > 0:
                axis.plot([x, x], [figure.low, figure.high], color=kind.colour, linewidth=3, alpha=0.3)
        if line.named:
            ends.append((xs[-1], ys[-1], line.name, kind.colour))
    axis.set_xscale("log")
    axis.set_yscale("log")
    places = sorted({x for line in panel.lines for x, _ in line.points})
    axis.set_xticks(places, [place(x) for x in places])
    axis.set_xticks([], minor=True)
    if len(places) == 1:
        axis.set_xlim(places[0] / 2, places[0] * 2)
    if panel.limit:
        value, words = panel.limit
        axis.axhline(value, color=QUIET, linewidth=1, linestyle=(0, (6, 3)))
        axis.annotate(
            words, (0.0, value), xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points"
        )
    low, high = axis.get_ylim()
    if high / low < 4:
        # A flat line shall look flat: at least a decade is shown.
        middle = math.sqrt(low * high)
        low, high = middle / 3.2, middle * 3.2
    axis.set_ylim(low, high)
    ticks = [value for value in _round_numbers(low, high) if low <= value <= high]
    axis.set_yticks(ticks, [plain(value) for value in ticks])
    axis.set_yticks([], minor=True)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.across)
    axis.set_ylabel(panel.up)
    end_labels(axis, ends)


def _round_numbers(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 of each decade, or 1 alone where there are many decades."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(decades) > 4 else (1, 2, 5)
    return [step * 10.0**decade for decade in decades for step in steps]
