"""End to end: who is faster, in each setting that was played, and the time beside the floor.

Above it: `building`. Below it: rollouts and the plot of end-to-end times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from turnwire.bench.report.answer import verdict
from turnwire.bench.report.document import Block, Made, Picture, Row, Section, Table, Words
from turnwire.bench.report.playing import OTHERS, OURS, Played, rest, speed
from turnwire.bench.report.plots.endtoend import Cell, draw
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import interval, number, percent, percents, source_of_runs
from turnwire.bench.scenario.values import Load, Network
from turnwire.bench.summary import Headline

ANCHOR, TITLE = "end-to-end", "End to end"
_WORDS = {"wins": "faster", "loses": "**slower**", "even": "even", "unsure": "one run"}


def section(rollouts: Sequence[Played]) -> Section:
    """Returns the section."""
    if not any(played.lines for played in rollouts):
        return not_measured(ANCHOR, TITLE, "python -m turnwire.bench.run codex-fix --out bench-results/codex-fix.json")
    blocks: list[Block] = [
        Words(
            "A rollout's time from its first request to its last terminal event. The floor is inference, tools and one "
            "round trip a turn: nobody can be faster. The first table says by how much append over gRPC is faster "
            "(with a minus: slower) than each of the others, paired by repetition, with intervals of 95%; *even* is "
            "what is within noise or below 5%."
        ),
        _table(rollouts),
    ]
    for name, group in _by_scenario(rollouts).items():
        blocks += _scenario(name, group)
    return Section(ANCHOR, TITLE, blocks)


def _table(rollouts: Sequence[Played]) -> Table:
    rows: list[Row] = []
    for played in rollouts:
        cells: list[str] = []
        for driver, _ in OTHERS:
            figure = played.gains.get(driver)
            if figure is None:
                cells.append("")
            else:
                cells.append(f"{_WORDS[verdict(figure)]}: {percents(figure)}")
        line = played.line(OURS)
        rows.append((played.setting, "" if line is None else above(line), *cells))
    head = ("setting", f"{OURS}, above floor", *(f"against {driver}" for driver, _ in OTHERS))
    return Table(head, rows)


def above(line: Headline) -> str:
    """Returns how far above the floor a driver is, where there is a floor."""
    return "" if line.above_floor == float("inf") else percent(line.above_floor)


def _by_scenario(rollouts: Sequence[Played]) -> dict[str, list[Played]]:
    groups: dict[tuple[str, int, Network, Load], list[Played]] = defaultdict(list)
    for played in rollouts:
        if played.lines:
            # Same but for speed and round trip, so that one plot compares nothing else.
            history, net = played.scenario.request.history, replace(played.scenario.network, rtt=0.0)
            groups[played.scenario.name, history, net, played.scenario.load].append(played)
    named: dict[str, list[Played]] = {}
    for group in groups.values():
        scenario = group[0].scenario
        if sum(1 for each in groups if each[0] == scenario.name) == 1:
            named[scenario.name] = group
        elif len(group) > 1 or not scenario.request.history:
            # One setting of several histories alone has a section of its own.
            named[f"{scenario.name}, {rest(scenario)}"] = group
    return named


def _scenario(name: str, group: Sequence[Played]) -> list[Block]:
    drivers = list(dict.fromkeys(line.driver for played in group for line in played.lines))
    cells = [
        Cell(
            played.scenario.speed.tokens_per_second,
            played.scenario.network.rtt,
            played.floor,
            {line.driver: line.end_to_end for line in played.lines},
        )
        for played in group
    ]
    anchor = f"end-to-end-{re.sub('[^a-z0-9]+', '-', name.lower())}"
    title = f"{name}: end-to-end time of a rollout by driver, model speed and round trip"
    ordered = sorted(group, key=lambda played: (played.scenario.speed.tokens_per_second, played.scenario.network.rtt))
    rows = [(driver, *(_time(played.line(driver)) for played in ordered)) for driver in drivers]
    floors = ("*floor*", *(f"{number(played.floor)}" for played in ordered))
    head = ("s", *(_column(played) for played in ordered))
    return [
        Words(f"### {name}\n\n{group[0].scenario.description}"),
        Picture(anchor, draw(anchor, title, cells, drivers), title),
        Table(head, [*rows, floors]),
        Made([source_of_runs(played) for played in ordered]),
    ]


def _column(played: Played) -> str:
    return f"{speed(played.scenario)}, {played.scenario.network.rtt * 1000:g} ms"


def _time(line: Headline | None) -> str:
    return "" if line is None else interval(line.end_to_end)
