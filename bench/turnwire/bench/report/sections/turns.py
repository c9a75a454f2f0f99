"""The server's own work in a continued turn against the history before it (P1).

Above it: `building`. Below it: measurements of kind `turns`, and the plot of lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.document import Made, Picture, Section, Table, Words
from turnwire.bench.report.figures import Measurements, Turn, Turns
from turnwire.bench.report.playing import size
from turnwire.bench.report.plots.lines import Line, Panel, draw
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import interval, number, source

ANCHOR, TITLE = "turns", "Server work of a continued turn"
_KB = 1024


def section(measured: Measurements) -> Section:
    """Returns the section."""
    read = measured.of(Turns)
    if read is None:
        return not_measured(ANCHOR, TITLE, "python -m turnwire.bench.turns --out bench-results/turns.json")
    both = (("takes items", read.figures.items), ("token engine", read.figures.harmony))
    lines = [
        Line(name, [(kb * _KB, _figure(turn)) for kb, turn in sorted(turns.items())]) for name, turns in both if turns
    ]
    histories = sorted({kb for _, turns in both for kb in turns})
    title = "Server work of a continued turn by history, from the event's bytes to the prompt in the engine's hands"
    panel = Panel("Event in to prompt out", "history", "µs, median and 95% interval", lines, (1000.0, "budget: 1 ms"))
    return Section(
        ANCHOR,
        TITLE,
        [
            Words(
                "From the event's bytes to the prompt in the engine's hands, in one process, with engines that answer "
                "nothing: one that takes items as they are, and one of tokens, rendered as harmony. Flat means that a "
                "turn costs what is new in it, and not what the history is long."
            ),
            Picture(ANCHOR, draw(ANCHOR, title, [panel], size), title),
            Table(
                ("µs", *(size(kb * _KB) for kb in histories), "longest / shortest"),
                [(name, *(_cell(turns, kb) for kb in histories), _ratio(turns)) for name, turns in both],
            ),
            Made([source(read.found)]),
        ],
    )


def _figure(turn: Turn) -> Interval:
    return Interval(turn.median_us, turn.low_us, turn.high_us)


def _cell(turns: Mapping[int, Turn], kb: int) -> str:
    return interval(_figure(turns[kb])) if kb in turns else ""


def _ratio(turns: Mapping[int, Turn]) -> str:
    return number(turns[max(turns)].median_us / turns[min(turns)].median_us) if turns else ""
