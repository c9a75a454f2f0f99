"""What a door costs, and what repeated measurements of it come to. Pure.

Above it: `doors`, its tables, the budgets and the report. Below it: nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """One measurement of a door with so many lanes. CPU times are microseconds."""

    door: str
    lanes: int
    parsed: bool
    server_us: float
    """For each token."""
    front_us: float
    """Of what stands between, for each token."""
    client_us: float
    """For each token."""
    bytes_down: float
    """To the client, for each token."""
    stretch: float
    """Wall time over the ideal at the set speed."""
    turn_ms: float
    """Round trip of a turn that is answered at once, the median of all lanes together."""
    turn_us: float
    """CPU time of all servers for one such turn."""


def medians(costs: Sequence[Cost]) -> list[Cost]:
    """Returns the median of each figure, by door, lanes, and whether the client parses."""
    grouped: dict[tuple[str, int, bool], list[Cost]] = {}
    for cost in costs:
        grouped.setdefault((cost.door, cost.lanes, cost.parsed), []).append(cost)
    return [_median(each) for each in grouped.values()]


def _median(costs: Sequence[Cost]) -> Cost:
    one = costs[0]
    figures = ("server_us", "front_us", "client_us", "bytes_down", "stretch", "turn_ms", "turn_us")
    medians = {name: statistics.median(getattr(cost, name) for cost in costs) for name in figures}
    return Cost(one.door, one.lanes, one.parsed, **medians)
