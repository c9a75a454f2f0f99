"""The prediction held against rollouts that were measured and not fitted. Pure.

Above it: `cells`, which believes no gain smaller than the error found here, and `words`. Below it: the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwire.bench.map.model import Model
from turnwire.bench.map.observed import Played
from turnwire.bench.metrics.statistics import median
from turnwire.bench.metrics.turns import faster_by


@dataclass(frozen=True, slots=True)
class Check:
    """One driver in one file. Times are seconds."""

    name: str
    driver: str
    measured: float
    """Median of the repetitions."""
    predicted: float

    @property
    def error(self) -> float:
        """By which share the prediction is longer than what was measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class GainCheck:
    """Two drivers in one file: by which share one is faster than the other."""

    name: str
    driver: str
    other: str
    measured: float
    """Median of what the repetitions say each."""
    predicted: float

    @property
    def error(self) -> float:
        """By how much the prediction is off, as a share of the other's time, whichever way."""
        return abs(self.predicted - self.measured)


def check(model: Model, files: Sequence[Played]) -> list[Check]:
    """Returns how far off each fitted driver is in each file of the model's way that was not fitted."""
    checks: list[Check] = []
    for each in files:
        for driver in model.costs:
            if runs := each.runs.get(driver):
                predicted = float(model.predict(driver, each.steps, each.rtt)[0])
                took = median([run.took for run in runs.values()])
                checks.append(Check(each.name, driver, took, predicted))
    return checks


def check_gains(model: Model, files: Sequence[Played], driver: str, other: str) -> list[GainCheck]:
    """Returns how far off the gain of one driver over another is, in each file that has repetitions of both."""
    checks: list[GainCheck] = []
    for each in files:
        ours, theirs = each.runs.get(driver, {}), each.runs.get(other, {})
        common = sorted(set(ours) & set(theirs))
        if common:
            measured = median([faster_by(ours[number].took, theirs[number].took) for number in common])
            predicted = model.gain(driver, other, each.steps, each.rtt).value
            checks.append(GainCheck(each.name, driver, other, measured, predicted))
    return checks
