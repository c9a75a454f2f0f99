"""Percentiles, and how sure they are.

Above it: the room's other modules, the runner, the report. Below it: nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95


def percentile(values: Sequence[float], share: float) -> float:
    """Returns a quantile, linear between the two nearest values (type 7 of Hyndman and Fan, numpy's default).

    Raises:
        ValueError: There are no values, or `share` is not from 0 to 1.
    """
    if not values or not 0 <= share <= 1:
        msg = f"expected values, and a share from 0 to 1, found {len(values)} values and {share}"
        raise ValueError(msg)
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """Returns the middle; see `percentile`."""
    return percentile(values, 0.5)


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and where it would lie in most repetitions."""

    value: float
    low: float
    high: float


def bootstrap(
    runs: Sequence[Sequence[float]],
    statistic: Callable[[Sequence[float]], float] = median,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Returns a statistic of all values, with the percentile interval of a bootstrap over runs.

    Whole runs are drawn, not single values: values of one run share its process, its place in memory and what else the
    machine did, so they say less than as many independent ones. With one run there is nothing to draw from, and the
    interval is from minus to plus infinity. Few runs give narrow intervals by chance; five are a minimum.

    Args:
        runs: The values of each run; runs without values are left out.
        statistic: Of the values of the runs drawn, together.
        confidence: The share of repetitions that the interval is to hold.
        resamples: How many times to draw.
        seed: Makes it repeatable.

    Raises:
        ValueError: There are no values.
    """
    drawn_from = [list(run) for run in runs if run]
    value = statistic([each for run in drawn_from for each in run])
    if len(drawn_from) < 2:
        return Interval(value, -math.inf, math.inf)
    return _interval(
        value, drawn_from, lambda picked: statistic([x for run in picked for x in run]), confidence, resamples, seed
    )


def paired_bootstrap(
    pairs: Sequence[tuple[float, float]],
    compare: Callable[[float, float], float],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Returns the median of a comparison of two figures of the same repetition, with its interval.

    Repetitions are drawn with both their figures, so that what slowed down both is no difference.

    Raises:
        ValueError: There are no pairs.
    """
    compared = [[compare(left, right)] for left, right in pairs]
    return bootstrap(compared, median, confidence=confidence, resamples=resamples, seed=seed)


def _interval(
    value: float,
    runs: Sequence[Sequence[float]],
    statistic: Callable[[Sequence[Sequence[float]]], float],
    confidence: float,
    resamples: int,
    seed: int,
) -> Interval:
    # Not a secret: the same runs have to give the same interval.
    choice = random.Random(seed)
    drawn = [statistic(choice.choices(runs, k=len(runs))) for _ in range(resamples)]
    outside = (1 - confidence) / 2
    return Interval(value, percentile(drawn, outside), percentile(drawn, 1 - outside))
