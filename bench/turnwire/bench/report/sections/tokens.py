"""What a streamed token costs, in processor time and bytes, against how many responses stream at once.

Above it: `building`. Below it: measurements of kind `doors`, and the plot of lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from turnwire.bench.doors_cost import Cost
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.document import Block, Made, Picture, Section, Table, Words
from turnwire.bench.report.figures import Doors, Measurements
from turnwire.bench.report.plots.lines import Line, Panel, draw
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import number, source

ANCHOR, TITLE = "tokens", "Processor time and bytes for each token"
_BARE = "bare "
_PANELS: Sequence[tuple[str, str, str, Callable[[Cost], float], bool]] = (
    ("server", "Server's processor time", "server CPU, µs a token", lambda cost: cost.server_us + cost.front_us, False),
    (
        "client",
        "Client's processor time, events parsed",
        "client CPU, µs a token",
        lambda cost: cost.client_us,
        True,
    ),
    ("bytes", "Bytes to the client on the wire", "bytes a token", lambda cost: cost.bytes_down, False),
)


def section(measured: Measurements) -> Section:
    """Returns the section."""
    read = measured.of(Doors)
    if read is None:
        return not_measured(ANCHOR, TITLE, "python -m turnwire.bench.doors --out bench-results/doors.json")
    blocks: list[Block] = [
        Words(
            "Each door of the same server streams the same tokens at the same pace; processor time is of whole "
            "processes, the simulated engine's included (and a bridge's, where there is one). Dotted and unnamed: "
            "the bare library, aiohttp or grpc.aio, which sends the same bytes with nothing behind it."
        )
    ]
    for name, title, up, figure, parsed in _PANELS:
        costs = chosen(read.figures.costs, parsed=parsed)
        blocks += _panel(f"{ANCHOR}-{name}", title, up, costs, figure)
    return Section(ANCHOR, TITLE, [*blocks, Made([source(read.found)])])


def chosen(costs: Sequence[Cost], *, parsed: bool) -> list[Cost]:
    """Returns one measurement of each door and number of lanes: with parsing clients where asked for, and had."""
    best: dict[tuple[str, int], Cost] = {}
    for cost in costs:
        key = cost.door, cost.lanes
        if key not in best or cost.parsed is parsed:
            best[key] = cost
    return list(best.values())


def _panel(name: str, title: str, up: str, costs: Sequence[Cost], figure: Callable[[Cost], float]) -> list[Block]:
    doors = list(dict.fromkeys(cost.door for cost in costs))
    lanes = sorted({cost.lanes for cost in costs})
    found = {(cost.door, cost.lanes): figure(cost) for cost in costs}
    lines: list[Line] = []
    for door in doors:
        points = [(float(count), _alone(found[door, count])) for count in lanes if found.get((door, count), 0.0) > 0]
        if points:
            lines.append(Line(door, points, named=not door.startswith(_BARE)))
    panel = Panel("", "responses at once", up, lines)
    table = Table(
        (up, *(f"{count:,}" for count in lanes)),
        [(door, *(number(found[door, count]) if (door, count) in found else "" for count in lanes)) for door in doors],
    )
    told = f"{title}: {up} by door and responses at once"
    return [Words(f"### {title}"), Picture(name, draw(name, told, [panel], height=4.4), told), table]


def _alone(value: float) -> Interval:
    return Interval(value, -math.inf, math.inf)
