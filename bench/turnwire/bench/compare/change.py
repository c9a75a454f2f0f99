"""How much a figure changed, how sure that is, and what it is called. Pure.

Above it: the command and its tables. Below it: `metrics`.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.bench.metrics.statistics import CONFIDENCE, RESAMPLES, Interval, median, percentile

NOISE: Final = 0.05
"""The share that a figure may change by without anything having changed, unless set otherwise."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a measurement; more of it is worse unless said otherwise."""

    name: str
    unit: str
    runs: tuple[float, ...] = ()
    """Of each run. Where there are none, the interval that the file has is all that is known."""
    interval: Interval | None = None
    more_is_better: bool = False
    exact: bool = False
    """Whether it is counted, such as bytes, so that one run says it all."""

    @property
    def value(self) -> float:
        """The figure."""
        if self.interval is not None:
            return self.interval.value
        return median(self.runs)


class Verdict(enum.Enum):
    """What a change is called."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no change beyond noise"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Change:
    """A figure then and now."""

    name: str
    unit: str
    old: float
    new: float
    relative: Interval
    """By which share it grew."""
    verdict: Verdict


def changed(old: Figure, new: Figure, noise: float = NOISE) -> Change:
    """Compares a figure of two measurements.

    It is better or worse where the whole interval of the change lies beyond the noise, the same where it lies within
    it, and unsure otherwise: more repetitions would tell. What is counted needs no interval.

    Raises:
        ValueError: There is neither a run nor an interval, or the old figure is not above 0.
    """
    if old.value <= 0:
        msg = f"{old.name}: there is no change from {old.value}"
        raise ValueError(msg)
    relative = _relative(old, new)
    low, high = (relative.value,) * 2 if old.exact else (relative.low, relative.high)
    if new.more_is_better:
        low, high = -high, -low
    if low > noise:
        verdict = Verdict.WORSE
    elif high < -noise:
        verdict = Verdict.BETTER
    elif -noise <= low and high <= noise:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.UNSURE
    return Change(old.name, old.unit, old.value, new.value, relative, verdict)


def _relative(old: Figure, new: Figure) -> Interval:
    value = new.value / old.value - 1
    if len(old.runs) > 1 and len(new.runs) > 1:
        return _drawn(value, old.runs, new.runs)
    before, after = old.interval, new.interval
    if before is None or after is None or before.low <= 0 or not math.isfinite(before.high + after.high):
        return Interval(value, -math.inf, math.inf)
    # As far apart as both intervals allow: wider than need be, so that nothing is claimed that was not seen.
    return Interval(value, after.low / before.high - 1, after.high / before.low - 1)


def _drawn(value: float, old: Sequence[float], new: Sequence[float]) -> Interval:
    """Draws runs of both anew, each for itself: they were not measured beside each other."""
    choice = random.Random(0)
    drawn = [
        median(choice.choices(new, k=len(new))) / median(choice.choices(old, k=len(old))) - 1 for _ in range(RESAMPLES)
    ]
    outside = (1 - CONFIDENCE) / 2
    return Interval(value, percentile(drawn, outside), percentile(drawn, 1 - outside))
