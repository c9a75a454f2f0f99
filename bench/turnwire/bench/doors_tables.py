"""Tables of what the doors cost, for terminals.

Above it: `doors` and `smoke`. Below it: rich.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Column, Table

from turnwire.bench.doors_cost import Cost


def tables(costs: Sequence[Cost]) -> list[Table]:
    """Returns the figures, a row for each door and a column for each number of lanes."""
    lanes = sorted({cost.lanes for cost in costs})
    names = list(dict.fromkeys(cost.door for cost in costs))
    by_key = {(cost.door, cost.lanes, cost.parsed): cost for cost in costs}

    def table(title: str, show: Callable[[Cost], str], which: Sequence[bool]) -> Table:
        made = Table(title, *(str(count) for count in lanes))
        for name in names:
            rows = [parsed for parsed in which if any((name, count, parsed) in by_key for count in lanes)]
            for parsed in rows:
                cells = [by_key.get((name, count, parsed)) for count in lanes]
                label = f"{name}, parsed" if parsed and len(which) > 1 else name
                made.add_row(label, *("" if cost is None else show(cost) for cost in cells))
        return made

    def first(name: str) -> Sequence[bool]:
        return (False,) if (name, lanes[-1], False) in by_key else (True,)

    def server(cost: Cost) -> str:
        return f"{cost.server_us:.1f}" + (f" + {cost.front_us:.1f}" if cost.front_us else "")

    def plain(title: str, show: Callable[[Cost], str]) -> Table:
        made = Table(title, *(str(count) for count in lanes))
        for name in names:
            (parsed,) = first(name)
            cells = [by_key.get((name, count, parsed)) for count in lanes]
            made.add_row(name, *("" if cost is None else show(cost) for cost in cells))
        return made

    return [
        plain("server, µs of CPU a token; responses at once:", server),
        table("client, µs of CPU a token", lambda cost: _shown(cost.client_us, 1), (False, True)),
        plain("bytes a token, to the client", lambda cost: _shown(cost.bytes_down, 0)),
        plain("round trip of a turn, ms at the median", lambda cost: f"{cost.turn_ms:.2f}"),
        plain("server, µs of CPU a turn", lambda cost: f"{cost.turn_us:.0f}"),
        plain("time / ideal", lambda cost: f"{cost.stretch:.2f}"),
    ]


def summary(costs: Sequence[Cost]) -> Table:
    """Returns the figures of one number of lanes, a row for each door."""
    made = Table(
        Column("door", no_wrap=True), "server µs/token", "client µs/token", "bytes/token", "turn, ms", "time / ideal"
    )
    for cost in costs:
        server = f"{cost.server_us:.1f}" + (f" + {cost.front_us:.1f}" if cost.front_us else "")
        figures = (f"{cost.client_us:.1f}", f"{cost.bytes_down:.0f}", f"{cost.turn_ms:.1f}", f"{cost.stretch:.2f}")
        made.add_row(cost.door, server, *figures)
    return made


def _shown(value: float, digits: int) -> str:
    """Returns a figure, or nothing for the core alone, which has no client."""
    return f"{value:.{digits}f}" if value else ""
