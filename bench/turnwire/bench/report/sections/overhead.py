"""Turn overhead against the history that a conversation begins with.

Above it: `building`. Below it: rollouts of one scenario with different histories, and the plot of lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.document import Made, Picture, Section, Table, Words
from turnwire.bench.report.playing import Played, network, size, speed
from turnwire.bench.report.plots.lines import Line, Panel, draw
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import interval, source_of_runs

ANCHOR, TITLE = "overhead", "Turn overhead against history"
_COMMAND = "python -m turnwire.bench.run long-history --history 100KiB --out bench-results/long-history-100KiB.json"


def section(rollouts: Sequence[Played]) -> Section:
    """Returns the section: the setting that was played with most histories."""
    group = histories(rollouts)
    if len(group) < 2:
        return not_measured(ANCHOR, TITLE, f"{_COMMAND}` and the same with other histories, such as `--history 1MiB")
    drivers = list(dict.fromkeys(line.driver for played in group for line in played.lines))
    lines: list[Line] = []
    for driver in drivers:
        there = [(played, line) for played in group if (line := played.line(driver)) is not None]
        points = [(float(played.scenario.request.history), line.overhead) for played, line in there]
        # A logarithmic axis cannot show what is not above 0; the table has it.
        lines.append(Line(driver, [(x, figure) for x, figure in points if figure.value > 0]))
    lines = [Line(line.name, [(x, _ms(figure)) for x, figure in line.points]) for line in lines if line.points]
    title = "Turn overhead by driver and history at the start"
    setting = f"{group[0].scenario.name}, {speed(group[0].scenario)}, {network(group[0].scenario)}"
    panel = Panel(setting, "history at the start", "overhead of a turn, ms (median, 95% interval)", lines)
    return Section(
        ANCHOR,
        TITLE,
        [
            Words(
                "A turn's time less inference and one round trip: work of server and client, and what the history "
                "costs on the way. Flat is good."
            ),
            Picture(ANCHOR, draw(ANCHOR, title, [panel], size, height=4.8), title),
            Table(
                ("ms", *(size(played.scenario.request.history) for played in group)),
                [(driver, *(_cell(played, driver) for played in group)) for driver in drivers],
            ),
            Made([source_of_runs(played) for played in group]),
        ],
    )


def _cell(played: Played, driver: str) -> str:
    line = played.line(driver)
    return "" if line is None else interval(line.overhead, 1000)


def _ms(figure: Interval) -> Interval:
    return Interval(figure.value * 1000, figure.low * 1000, figure.high * 1000)


def histories(rollouts: Sequence[Played]) -> list[Played]:
    """Returns the files that differ in nothing but history, by history: those of the setting with most of them."""
    groups: dict[object, dict[int, Played]] = defaultdict(dict)
    for played in rollouts:
        scenario = played.scenario
        if scenario.request.history and played.lines:
            same = (scenario.name, scenario.speed, scenario.network, scenario.load)
            groups[same][scenario.request.history] = played
    largest = max(groups.values(), key=len, default=dict[int, Played]())
    return [largest[history] for history in sorted(largest)]
