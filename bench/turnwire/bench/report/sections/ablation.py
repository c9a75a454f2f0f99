"""What each optimization of the server is worth (P3).

Above it: `building`. Below it: measurements of kind `ablation`, and their plot.
"""

from __future__ import annotations

import math

from turnwire.bench.ablation import HISTORY, Figure
from turnwire.bench.intervals import taken
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.document import Block, Made, Picture, Section, Table, Words
from turnwire.bench.report.figures import Ablation, Measurements
from turnwire.bench.report.plots.ablation import PICTURE, TITLES, draw
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import number, percents, source

ANCHOR, TITLE = "ablation", "What each optimization is worth"


def section(measured: Measurements) -> Section:
    """Returns the section."""
    read = measured.of(Ablation)
    if read is None:
        return not_measured(ANCHOR, TITLE, "python -m turnwire.bench.ablation --out bench-results/ablation.json")
    order = read.figures.order
    blocks: list[Block] = [
        Words(
            f"A late turn after {HISTORY:,} tokens of history with everything off, then with one more optimization on "
            "at a time. Each bar is what its optimization saves; behind it, what its absence alone would cost."
        ),
        Picture(ANCHOR, draw(order, read.figures.figures, ANCHOR), PICTURE),
    ]
    for figure in read.figures.figures:
        first = figure.steps[0]
        rows = [("everything off", *map(number, first), "", "")]
        rows += [
            (f"+ {name}", *map(number, step), *map(number, alone))
            for name, step, alone in zip(order, figure.steps[1:], figure.alone, strict=True)
        ]
        blocks += [
            Words(
                f"{TITLES.get(figure.model, figure.model)}: TTFT {_better(figure)} with everything on (half the "
                f"quartile distance {number(figure.spread)} ms)."
            ),
            Table(("ms, medians", "TTFT", "turn", "alone off: TTFT", "alone off: turn"), rows),
        ]
    return Section(ANCHOR, TITLE, [*blocks, Made([source(read.found)])])


def _better(figure: Figure) -> str:
    """Returns by how much, from pairs of turns asked beside each other where the file has them."""
    better = taken(figure.saved) if figure.saved else Interval(figure.better, -math.inf, math.inf)
    if better.value >= 0:
        return f"{percents(better)} better"
    return f"{percents(Interval(-better.value, -better.high, -better.low))} worse"
