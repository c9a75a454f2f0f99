"""The headline as tables for terminals: one of times, one of costs, each narrow enough for 120 columns.

Above it: `run`. Below it: `summary`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from turnwire.bench.intervals import spread
from turnwire.bench.scenario.values import Scenario
from turnwire.bench.summary import Headline


def title(scenario: Scenario, floor: float) -> str:
    """Says what was played, over what, and what the least possible time is."""
    network = scenario.network
    speed = "unlimited" if math.isinf(scenario.speed.tokens_per_second) else f"{scenario.speed.tokens_per_second:g}"
    extras = [
        f"{network.bandwidth / 1e6:g} Mbit/s" if network.bandwidth else "",
        "slow start" if network.slow_start else "",
        "TLS" if network.tls else "",
    ]
    over = f"RTT {network.rtt * 1000:g} ms{''.join(f', {extra}' for extra in extras if extra)}"
    return (
        f"{scenario.name}: {len(scenario.turns)} turns, {scenario.tool_calls} tool calls, {over}\n"
        f"model simulated at {speed} tokens/s; floor {floor:.3f} s; intervals of 95%"
    )


def _table(*columns: str) -> Table:
    table = Table()
    table.add_column("driver", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def times(lines: Sequence[Headline], baseline: str) -> Table:
    """Returns how long it took, a line for each driver."""
    table = _table(
        "end to end\ns", "above\nfloor", f"% faster than\n{baseline}", "TTFT\nms", "overhead of a turn\nms", "p99\nms"
    )
    table.add_column("failed", justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            line.driver,
            spread(line.end_to_end, 1, 2),
            "" if math.isinf(line.above_floor) else f"{line.above_floor:.1%}",
            "" if line.faster is None else spread(line.faster, 100, 1),
            f"{line.ttft.value * 1000:.1f}",
            spread(line.overhead, 1000, 1),
            f"{line.overhead_p99 * 1000:.0f}",
            f"{line.failed}/{line.rollouts}",
        )
    return table


def costs(lines: Sequence[Headline]) -> Table:
    """Returns what it cost, a line for each driver; the server's CPU time has the bridge's with it."""
    idle = any(line.idle is not None for line in lines)
    table = _table(
        "server CPU\nms/turn",
        "µs/token",
        "client CPU\nµs/token",
        "KB up\n/turn",
        "KB down\n/turn",
        "server\nMB",
        *(["server KB\n/idle session"] if idle else []),
    )
    for line in lines:
        table.add_row(
            line.driver,
            f"{line.server_per_turn * 1000:.1f}",
            f"{line.server_per_token * 1e6:.0f}",
            f"{line.client_per_token * 1e6:.0f}",
            f"{line.up_per_turn / 1024:.1f}",
            f"{line.down_per_turn / 1024:.1f}",
            f"{line.server_memory / 1024**2:.0f}",
            *([] if line.idle is None else [f"{line.idle / 1024:.1f}"]),
        )
    return table


def stages(lines: Sequence[Headline]) -> Table:
    """Returns where the time of a turn went, a line for each driver; see `metrics.stages`."""
    table = _table("API\nms", "engine late\nms", "all else\nms", "inference\nms", "round trip\nms", "client's own\nms")

    def shown(value: float | None) -> str:
        return "not told" if value is None else f"{value * 1000:.2f}"

    for line in lines:
        parts = line.parts
        sums = (parts.api, parts.late, parts.rest, parts.inference, parts.network, parts.client)
        table.add_row(line.driver, *map(shown, sums))
    return table
