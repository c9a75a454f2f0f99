"""The headline as a table for terminals.

Above it: `run`. Below it: `summary`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from turnwire.bench.drivers.registry import DRIVERS
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.scenario.values import Scenario
from turnwire.bench.summary import Headline


def _spread(figure: Interval, scale: float, digits: int) -> str:
    value = f"{figure.value * scale:.{digits}f}"
    if math.isinf(figure.low):
        return value
    return f"{value} [{figure.low * scale:.{digits}f}, {figure.high * scale:.{digits}f}]".replace("[", "\\[")


def headline_table(lines: Sequence[Headline], scenario: Scenario, floor: float, baseline: str) -> Table:
    """Returns a line for each driver; the title says what was played. Intervals are of 95%."""
    network = scenario.network
    speed = "unlimited" if math.isinf(scenario.speed.tokens_per_second) else f"{scenario.speed.tokens_per_second:g}"
    extras = [
        f"{network.bandwidth / 1e6:g} Mbit/s" if network.bandwidth else "",
        "slow start" if network.slow_start else "",
        "TLS" if network.tls else "",
    ]
    title = (
        f"{scenario.name}: {len(scenario.turns)} turns, {scenario.tool_calls} tool calls, model simulated at {speed} "
        f"tokens/s, RTT {network.rtt * 1000:g} ms{''.join(f', {extra}' for extra in extras if extra)}; "
        f"floor {floor:.3f} s"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("driver")
    idle = ["KB/idle session"] if any(line.idle is not None for line in lines) else []
    for name in (
        "end to end, s",
        "above floor",
        f"faster than {baseline}",
        "TTFT, ms",
        "overhead a turn, ms",
        "p99",
        "server ms CPU/turn",
        "server µs/token",
        "client µs/token",
        "KB up/turn",
        "KB down/turn",
        *idle,
        "failed",
    ):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(
            DRIVERS[line.driver].title,
            _spread(line.end_to_end, 1, 3),
            "" if math.isinf(line.above_floor) else f"{line.above_floor:.1%}",
            "" if line.faster is None else _spread(line.faster, 100, 1) + " %",
            _spread(line.ttft, 1000, 1),
            _spread(line.overhead, 1000, 2),
            f"{line.overhead_p99 * 1000:.1f}",
            f"{line.server_per_turn * 1000:.2f}",
            f"{line.server_per_token * 1e6:.0f}",
            f"{line.client_per_token * 1e6:.0f}",
            f"{line.up_per_turn / 1024:.1f}",
            f"{line.down_per_turn / 1024:.1f}",
            *([] if line.idle is None else [f"{line.idle / 1024:.1f}"]),
            f"{line.failed}/{line.rollouts}",
        )
    return table
