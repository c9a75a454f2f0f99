"""Horizontal bars, whole or of parts, each with its figure at its end: stages of a turn, memory.

Above it: the report's sections. Below it: `style`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnwire.bench.report.plots.style import COLOURS, INK, QUIET, canvas, look, svg_of


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    name: str
    parts: Sequence[float]
    """Beside each other; a negative one is drawn as nothing, and written."""
    written: str
    """The figure at its end."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    across: str
    """What is measured, with its unit."""
    bars: Sequence[Bar]
    parts: Sequence[tuple[str, str]] = ()
    """Where bars have parts: their names and the names of their colours."""
    limit: tuple[float, str] | None = None
    """A budget, and its name."""


def draw(name: str, title: str, panels: Sequence[Panel]) -> str:
    """Returns an SVG of panels below each other."""
    heights = [0.26 * len(panel.bars) + (1.15 if panel.parts else 0.85) for panel in panels]
    with canvas(len(panels), 1, sum(heights), height_ratios=heights) as (figure, axes):
        for axis, panel in zip(axes[:, 0], panels, strict=True):
            _panel(axis, panel)
        return svg_of(figure, name, title)


def _panel(axis: Any, panel: Panel) -> None:
    longest = 0.0
    for row, bar in enumerate(panel.bars):
        at = 0.0
        for place, part in enumerate(bar.parts):
            colour = COLOURS[panel.parts[place][1]][0] if panel.parts else look(bar.name).colour
            axis.barh(row, max(0.0, part), left=at, color=colour, height=0.7)
            at += max(0.0, part)
        longest = max(longest, at)
        axis.annotate(bar.written, (at, row), xytext=(4, 0), textcoords="offset points", va="center", color=INK)
    axis.set_yticks(range(len(panel.bars)), [bar.name.replace("`", "") for bar in panel.bars])
    axis.set_ylim(len(panel.bars) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    if panel.limit:
        value, words = panel.limit
        longest = max(longest, value)
        axis.axvline(value, color=QUIET, linewidth=1, linestyle=(0, (6, 3)))
        axis.annotate(
            words,
            (value, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
        )
    widest = max((len(bar.written) for bar in panel.bars), default=0)
    axis.set_xlim(0, (longest or 1.0) * (1.04 + 0.014 * widest))
    axis.set_title(panel.title, pad=16 if panel.limit else 6)
    axis.set_xlabel(panel.across)
    if panel.parts:
        handles = [axis.barh([0], [0], color=COLOURS[colour][0], label=part) for part, colour in panel.parts]
        axis.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=len(handles),
            frameon=False,
            borderaxespad=0.1,
        )
        axis.set_title(panel.title, pad=22)
