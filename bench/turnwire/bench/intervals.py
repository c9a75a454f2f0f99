"""Figures with their intervals, as words for tables and as lists for result files. Pure.

Above it: tables, measurements and budgets. Below it: `metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwire.bench.metrics.statistics import Interval


def known(figure: Interval) -> bool:
    """Whether there is an interval: one run alone has none."""
    return math.isfinite(figure.low) and math.isfinite(figure.high)


def spread(figure: Interval, scale: float = 1.0, digits: int = 1) -> str:
    """Returns a figure times `scale`, with its interval in brackets where it has one."""
    value = f"{figure.value * scale:.{digits}f}"
    if not known(figure):
        return value
    return f"{value} ({figure.low * scale:.{digits}f} to {figure.high * scale:.{digits}f})"


def listed(figure: Interval) -> list[float]:
    """Returns value, low and high; the value alone where there is no interval, since JSON has no infinity."""
    return [figure.value, figure.low, figure.high] if known(figure) else [figure.value]


def taken(figures: Sequence[float]) -> Interval:
    """Returns what `listed` gave.

    Raises:
        ValueError: It is no list of one or three numbers.
    """
    if len(figures) == 3:
        return Interval(*figures)
    if len(figures) != 1:
        msg = f"expected a figure, or a figure and its interval, found {len(figures)} numbers"
        raise ValueError(msg)
    return Interval(figures[0], -math.inf, math.inf)
