"""Draws the ablation as a waterfall: from everything off to everything on, one bar per optimization.

Above it: the ablation bench. Below it: matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl

if TYPE_CHECKING:
    from turnwire.bench.ablation import Figure

mpl.use("svg")

from matplotlib import pyplot as plt

_BEFORE: Final = "#8a8f98"
_SAVED: Final = "#2f9e62"
_LOST: Final = "#c8553d"
_AFTER: Final = "#2f6fb0"
_TITLES: Final = {"tiny": "token engine, rendered as harmony", "chat": "chat upstream, an image in the turn"}


def draw(order: Sequence[str], figures: Sequence[Figure], target: Path) -> None:
    """Writes an SVG file: per model a waterfall of the time to the first token and one of the whole turn, and beside
    each bar what its optimization alone is good for."""
    from turnwire.bench.ablation import HISTORY

    # Texts stay texts, and nothing in the file depends on the day.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "turnwire", "font.size": 10})
    size = (15, 4.4 * len(figures))
    made: Any = plt.subplots(len(figures), 2, figsize=size, layout="constrained", sharey="row", squeeze=False)
    canvas, axes = made
    for row, figure in zip(axes, figures, strict=True):
        about = _TITLES.get(figure.model, figure.model)
        for which, (axis, what) in enumerate(zip(row, ("time to the first token", "whole turn"), strict=True)):
            steps = [step[which] for step in figure.steps]
            _waterfall(axis, order, steps, [one[which] for one in figure.alone], named=not which)
            axis.set_title(f"{what}: {about}", loc="left")
    canvas.suptitle(f"A turn after {HISTORY:,} tokens of history; the model itself takes no time here")
    canvas.savefig(target, format="svg", metadata={"Date": None})
    plt.close(canvas)


def _waterfall(axis: Any, order: Sequence[str], steps: Sequence[float], alone: Sequence[float], *, named: bool) -> None:
    names = ["everything off", *(f"+ {name}" for name in order), "everything on"]
    top, last = max(steps), len(names) - 1
    axis.barh(0, steps[0], color=_BEFORE)
    axis.text(steps[0] + top / 100, 0, f"{steps[0]:.1f} ms", va="center")
    for row, (before, after) in enumerate(pairwise(steps), start=1):
        saved = before - after
        axis.barh(row, saved, left=after, color=_SAVED if saved >= 0 else _LOST)
        told = f"{_signed(-saved)} ms  (off alone: {_signed(alone[row - 1] - steps[-1])})"
        axis.text(max(before, after) + top / 100, row, told, va="center")
        axis.plot([after, after], [row - 0.4, row + 1.4], color="#b0b4ba", linewidth=0.8)
    axis.barh(last, steps[-1], color=_AFTER)
    axis.text(steps[-1] + top / 100, last, f"{steps[-1]:.1f} ms, {1 - steps[-1] / steps[0]:.0%} better", va="center")
    axis.set_yticks(range(len(names)), names)
    if named:
        # Both share the rows, and turning them over twice would undo it.
        axis.invert_yaxis()
    axis.set_xlim(0, top * 1.42)
    axis.set_xlabel("ms, median; each bar switches one more optimization on, from top to bottom")
    axis.spines[["top", "right"]].set_visible(False)


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\u2212")
