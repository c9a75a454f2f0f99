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


def draw(figures: Sequence[Figure], target: Path) -> None:
    """Writes an SVG file with a waterfall per model, and beside each bar what its optimization alone is good for."""
    from turnwire.bench.ablation import ORDER

    # Texts stay texts, and nothing in the file depends on the day.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "turnwire", "font.size": 10})
    made: Any = plt.subplots(len(figures), 1, figsize=(9.5, 4.6 * len(figures)), layout="constrained")
    canvas, axes = made
    for axis, figure in zip(axes if len(figures) > 1 else (axes,), figures, strict=True):
        _waterfall(axis, figure, ORDER)
    canvas.suptitle(
        f"Time to the first token of a late turn, {figures[0].tokens:,} tokens of prompt; the engine itself takes none"
    )
    canvas.savefig(target, format="svg", metadata={"Date": None})
    plt.close(canvas)


def _waterfall(axis: Any, figure: Figure, order: Sequence[str]) -> None:
    names = ["everything off", *(f"+ {name}" for name in order), "everything on"]
    first = [step[0] for step in figure.steps]
    top = max(first)
    rows = range(len(names))
    axis.barh(0, first[0], color=_BEFORE)
    axis.text(first[0] + top / 100, 0, f"{first[0]:.1f} ms", va="center")
    for row, (before, after) in enumerate(pairwise(first), start=1):
        saved = before - after
        axis.barh(row, saved, left=after, color=_SAVED if saved >= 0 else _LOST)
        alone = figure.alone[row - 1][0] - first[-1]
        told = f"{-saved:+.1f} ms   (off alone: {alone:+.1f})"
        axis.text(max(before, after) + top / 100, row, told, va="center")
        axis.plot([after, after], [row - 0.4, row + 1.4], color="#b0b4ba", linewidth=0.8)
    last = len(names) - 1
    axis.barh(last, first[-1], color=_AFTER)
    axis.text(first[-1] + top / 100, last, f"{first[-1]:.1f} ms, {figure.better:.0%} better", va="center")
    axis.set_yticks(list(rows), names)
    axis.invert_yaxis()
    axis.set_xlim(0, top * 1.32)
    axis.set_xlabel("ms, median; green: saved by switching one more optimization on, from top to bottom")
    axis.set_title(_TITLES.get(figure.model, figure.model), loc="left")
    axis.spines[["top", "right"]].set_visible(False)
