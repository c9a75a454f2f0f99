"""The prediction held against rollouts that were measured and not fitted. Pure.

Above it: `cells`, which believes no gain smaller than the error found here, and `words`. Below it: the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwire.bench.map.model import Model
from turnwire.bench.map.observed import Played
from turnwire.bench.metrics.statistics import median


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
class SavingCheck:
    """Two drivers in one file: what one saves against the other, in seconds a turn."""

    name: str
    driver: str
    other: str
    measured: float
    """Median of what the repetitions say each."""
    predicted: float

    @property
    def error(self) -> float:
        """By how many seconds a turn the prediction is off, whichever way.

        It is seconds and no share, since what turns cost does not depend on how long the model takes: a share of a
        fast model's turn would be too much to say of a slow one's, and the other way round too little.
        """
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


def check_savings(model: Model, files: Sequence[Played], driver: str, other: str) -> list[SavingCheck]:
    """Returns how far off the saving of one driver is against another, in each file that has repetitions of both."""
    checks: list[SavingCheck] = []
    for each in files:
        ours, theirs = each.runs.get(driver, {}), each.runs.get(other, {})
        common = sorted(set(ours) & set(theirs))
        if common:
            turns = len(each.steps)
            measured = median([(theirs[number].took - ours[number].took) / turns for number in common])
            slower, faster = (float(model.predict(name, each.steps, each.rtt)[0]) for name in (other, driver))
            checks.append(SavingCheck(each.name, driver, other, measured, (slower - faster) / turns))
    return checks
