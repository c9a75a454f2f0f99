"""The map as heatmaps: a panel for each history and number of turns, speed across and round trip up.

Above it: `section`. Below it: the cells, and the style that all plots of the report share.

Colours are those that colour-blind readers tell apart, and what they say is in the cells' figures, too: `?` is unsure,
a figure without a colour makes no difference that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from turnwire.bench.map.cells import STEPS, Cell, Judged, Place, Verdict
from turnwire.bench.map.names import signed, size, speed_words
from turnwire.bench.report.plots.style import GRID, INK, PAPER, QUIET, canvas, svg_of

_STEPS: Final = ("#f2c14e", "#56b4e9", "#009e73", "#cc79a7")
"""Of the steps, the least change first."""
_GAINS, _LOSES, _NEITHER, _UNSURE = "#7cc4f0", "#f0a35c", PAPER, "#d3d7de"
_ON_COLOUR: Final = "#101214"
"""Of figures in cells that keep their colours by night."""


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    cells: dict[tuple[float, float], tuple[str, str]]
    """Colour and words by speed and round trip."""


def draw_steps(name: str, title: str, cells: Sequence[Cell]) -> str:
    """Returns an SVG of what the least change is that gains more than 5%; in each cell the most that any gains.

    Args:
        name: Unique in the page.
        title: What is seen.
        cells: Of all histories and turns.
    """
    histories = sorted({cell.place.history for cell in cells})
    turns = sorted({cell.place.turns for cell in cells})

    def panel(history: int, count: int) -> _Panel:
        return _Panel(
            f"{size(history)}, {count} turns",
            _coloured(cells, lambda place: (place.history, place.turns) == (history, count), _step),
        )

    panels = [[panel(history, count) for count in turns] for history in histories]
    legend = [
        *((_STEPS[number], words) for number, (words, _) in enumerate(STEPS)),
        (_NEITHER, "none"),
        (_UNSURE, "? unsure"),
    ]
    return _drawn(
        name, title, panels, legend, "the least change of stateless HTTP that gains more than 5% for certain:"
    )


def draw_against(name: str, title: str, cells: Sequence[Cell], others: Sequence[tuple[str, str]]) -> str:
    """Returns an SVG of by how much append over gRPC is faster than each of the others, or slower.

    Args:
        name: Unique in the page.
        title: What is seen.
        cells: Of one number of turns and all histories.
        others: Drivers with their words, a row of panels each.
    """
    histories = sorted({cell.place.history for cell in cells})

    def panel(other: str, words: str, history: int) -> _Panel:
        def looked(cell: Cell) -> tuple[str, str]:
            return _against(cell.of_ours[other])

        return _Panel(f"{words}; {size(history)}", _coloured(cells, lambda place: place.history == history, looked))

    panels = [[panel(other, words, history) for history in histories] for other, words in others]
    legend = [
        (_GAINS, "faster by more than 5%"),
        (_LOSES, "slower by more than 5%"),
        (_NEITHER, "neither"),
        (_UNSURE, "? unsure"),
    ]
    return _drawn(name, title, panels, legend, "append over gRPC is, end to end:")


def _step(cell: Cell) -> tuple[str, str]:
    gain = signed(cell.over_baseline[cell.best].gain.value)
    if cell.step is not None:
        return _STEPS[cell.step], gain
    return (_UNSURE, f"{gain}?") if cell.unsure else (_NEITHER, gain)


def _against(judged: Judged) -> tuple[str, str]:
    gain = signed(judged.gain.value)
    colour = {Verdict.GAINS: _GAINS, Verdict.LOSES: _LOSES, Verdict.NEITHER: _NEITHER, Verdict.UNSURE: _UNSURE}
    return colour[judged.verdict], f"{gain}?" if judged.verdict is Verdict.UNSURE else gain


def _coloured(
    cells: Sequence[Cell], wanted: Callable[[Place], bool], looked: Callable[[Cell], tuple[str, str]]
) -> dict[tuple[float, float], tuple[str, str]]:
    return {(cell.place.speed, cell.place.rtt): looked(cell) for cell in cells if wanted(cell.place)}


def _drawn(
    name: str, title: str, panels: Sequence[Sequence[_Panel]], legend: Sequence[tuple[str, str]], asked: str
) -> str:
    rows, columns = len(panels), len(panels[0])
    with canvas(rows, columns, 1.45 * rows + 0.9, sharex=True, sharey=True) as (figure, axes):
        for row, line in enumerate(panels):
            for column, panel in enumerate(line):
                _filled(axes[row, column], panel)
        figure.supxlabel("model speed, tokens/s", fontsize=9)
        figure.supylabel("round trip, ms", fontsize=9)
        boxes = [
            axes[0, 0].fill_between([], [], color=colour, edgecolor=QUIET, linewidth=0.6, label=words)
            for colour, words in legend
        ]
        figure.legend(handles=boxes, loc="outside upper left", ncols=3, frameon=False, title=asked, alignment="left")
        return svg_of(figure, name, title)


def _filled(axis: Any, panel: _Panel) -> None:
    speeds = sorted({speed for speed, _ in panel.cells})
    trips = sorted({rtt for _, rtt in panel.cells})
    for (speed, rtt), (colour, words) in panel.cells.items():
        x, y = speeds.index(speed), trips.index(rtt)
        axis.fill_between([x - 0.5, x + 0.5], y - 0.5, y + 0.5, color=colour, edgecolor=GRID, linewidth=0.8)
        axis.text(x, y, words, ha="center", va="center", fontsize=8, color=INK if colour == PAPER else _ON_COLOUR)
    axis.set_xticks(range(len(speeds)), [speed_words(speed) for speed in speeds])
    axis.set_yticks(range(len(trips)), [f"{rtt * 1000:g}" for rtt in trips])
    axis.set_xlim(-0.5, len(speeds) - 0.5)
    axis.set_ylim(-0.5, len(trips) - 0.5)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.set_title(panel.title, color=INK)
