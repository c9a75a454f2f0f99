"""The ablation as a waterfall: from everything off to everything on, one bar per optimization.

Above it: the ablation's command and the report's section. Below it: `style`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from turnwire.bench.report.plots.style import COLOURS, QUIET, canvas, svg_of

if TYPE_CHECKING:
    from turnwire.bench.ablation import Figure

PICTURE: Final = "Time of a late turn with one more optimization switched on at a time"
"""What is seen."""
TITLES: Final = {"tiny": "token engine, rendered as harmony", "chat": "chat upstream, an image in the turn"}
"""By the model's name."""


def draw(order: Sequence[str], figures: Sequence[Figure], name: str = "ablation") -> str:
    """Returns an SVG: per model a waterfall of the time to the first token and one of the whole turn, and beside each
    bar what its optimization alone is good for.

    Args:
        order: The optimizations, as they were switched on.
        figures: Of each model.
        name: Unique in the page.
    """
    rows = 2 * len(figures)
    with canvas(rows, 1, (0.25 * (len(order) + 2) + 0.75) * rows) as (canvas_, axes):
        for place, figure in enumerate(figures):
            for which, what in enumerate(("time to the first token", "whole turn")):
                axis = axes[2 * place + which, 0]
                _waterfall(axis, order, [step[which] for step in figure.steps], [one[which] for one in figure.alone])
                axis.set_title(f"{what}: {TITLES.get(figure.model, figure.model)}")
        return svg_of(canvas_, name, PICTURE)


def _waterfall(axis: Any, order: Sequence[str], steps: Sequence[float], alone: Sequence[float]) -> None:
    names = ["everything off", *(f"+ {name}" for name in order), "everything on"]
    top, last = max(steps), len(names) - 1
    axis.barh(0, steps[0], color=COLOURS["other"][0])
    axis.text(steps[0] + top / 100, 0, f"{steps[0]:.1f} ms", va="center")
    for row, (before, after) in enumerate(pairwise(steps), start=1):
        saved = before - after
        axis.barh(row, saved, left=after, color=COLOURS["gain" if saved >= 0 else "loss"][0])
        told = f"{_signed(-saved)} ms  (off alone: {_signed(alone[row - 1] - steps[-1])})"
        axis.text(max(before, after) + top / 100, row, told, va="center")
        axis.plot([after, after], [row - 0.4, row + 1.4], color=QUIET, linewidth=0.8)
    axis.barh(last, steps[-1], color=COLOURS["grpc"][0])
    change = 1 - steps[-1] / steps[0]
    told = f"{steps[-1]:.1f} ms, {abs(change):.0%} {'better' if change >= 0 else 'worse'}"
    axis.text(steps[-1] + top / 100, last, told, va="center")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set_xlim(0, top * 1.45)
    axis.set_xlabel("ms, median; each bar switches one more on, from top to bottom")


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\u2212")
