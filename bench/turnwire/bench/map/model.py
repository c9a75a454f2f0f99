"""What a turn costs by driver, history and round trip, fitted; and how long any rollout takes by that. Pure.

Above it: `checks` and `cells`. Below it: what was observed, and numpy.

A turn's overhead (the turn less inference and one round trip) and what the client does before the next do not depend on
the model's speed, so rollouts at one speed say what turns cost at any. Overhead is taken as

    a + b * history + c * RTT

by least squares of what is missed as a share, so that a short history counts as much as a long one; for each driver and
way, and the first turn apart from the later ones: it carries the history whatever the shape. `b` is what long histories
cost where they are sent or read again, `c` further round trips such as those of new connections. None is below 0, since
nothing is done in no time, and no turn is shorter for a longer history or way. What a limited bandwidth or TCP's window
add does depend on speed; it is worked out by `crossing` before the fit and in the prediction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnwire.bench.map.crossing import extras
from turnwire.bench.map.observed import Played, Way
from turnwire.bench.map.sent import Counted, Sent, sent
from turnwire.bench.map.workload import Step, least_time
from turnwire.bench.metrics.statistics import CONFIDENCE, Interval
from turnwire.bench.network.link import Path

Vector = NDArray[np.float64]

DRAWS: Final = 500
_MEGABYTE: Final = 1e6
_TERMS: Final = 3
_LEAST: Final = 0.001
"""Seconds of overhead below which shares are of this."""


class TooLittle(ValueError):
    """The files do not suffice for a fit; its text says what is missing."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a driver's turns cost over one way."""

    sent: Sent
    anew: bool
    first: Vector
    """Coefficients of the first turn's overhead, a row for the fit and one for each draw; see `terms`."""
    later: Vector
    """Those of the later turns."""


@dataclass(frozen=True, slots=True)
class Model:
    """What all drivers' turns cost over one way."""

    way: Way
    costs: dict[str, Cost]
    sure: bool
    """Whether there were repetitions to draw from; without them no interval has an end."""
    longest: float
    """Bytes of the longest history that was fitted."""
    farthest: float
    """Seconds of the longest round trip that was fitted."""

    def predict(self, driver: str, steps: Sequence[Step], rtt: float) -> Vector:
        """Returns how long a rollout takes in seconds: by the fit, then by each draw. Draws of two drivers belong
        together.

        Raises:
            KeyError: The driver was not fitted.
        """
        cost = self.costs[driver]
        added = sum(_extras(self.way, cost.sent, cost.anew, steps, rtt))
        later = sum((terms(step.whole, rtt) for step in steps[1:]), np.zeros(_TERMS))
        return least_time(steps, rtt) + added + cost.first @ terms(steps[0].whole, rtt) + cost.later @ later

    def gain(self, driver: str, other: str, steps: Sequence[Step], rtt: float) -> Interval:
        """Returns by which share a driver's rollout is shorter than another's, with its interval.

        Raises:
            KeyError: One of them was not fitted.
        """
        gains = 1 - self.predict(driver, steps, rtt) / self.predict(other, steps, rtt)
        return self.interval(gains)

    def interval(self, values: Vector) -> Interval:
        """Returns the figure of the fit, with the percentile interval of its draws."""
        if not self.sure:
            return Interval(float(values[0]), -math.inf, math.inf)
        outside = (1 - CONFIDENCE) / 2
        low, high = (float(each) for each in np.quantile(values[1:], (outside, 1 - outside)))
        return Interval(float(values[0]), low, high)


def terms(whole: float, rtt: float) -> Vector:
    """Returns what the coefficients are multiplied with: 1, megabytes of history, and the round trip."""
    return np.array([1.0, whole / _MEGABYTE, rtt])


def fit(files: Sequence[Played], counted: Sequence[Played], *, draws: int = DRAWS, seed: int = 0) -> Model:
    """Fits each driver to the files that have it, where those suffice.

    Args:
        files: Those to fit, all of one way.
        counted: Those whose bytes say what drivers send; they may have any way.
        draws: Of the bootstrap: repetitions are drawn anew for each file, the same for all its drivers, so that what
            slowed down all is no difference.
        seed: Makes it repeatable.

    Raises:
        TooLittle: No driver has two histories and two round trips of which one changes while the other does not.
    """
    # Not a secret: the same files have to give the same map.
    choice = np.random.default_rng(seed)
    drawn: list[_Drawn] = []
    for each in files:
        if numbers := list(each.repetitions):
            picks = np.vstack([np.arange(len(numbers)), choice.integers(len(numbers), size=(draws, len(numbers)))])
            drawn.append(_Drawn(each, numbers, picks))
    used = {name: [each for each in drawn if name in each.file.runs] for name in dict.fromkeys(_names(files))}
    fitted = {name: those for name, those in used.items() if _suffice(those)}
    corners = {(each.steps[0].whole, each.rtt) for each in files}
    if not fitted:
        found = ", ".join(f"{history / 1024:,.0f} KiB at {rtt * 1000:g} ms" for history, rtt in sorted(corners))
        raise TooLittle(
            "expected two histories and two round trips, each changed alone, with repetitions that all drivers of a "
            f"file have, found {found or 'nothing'}"
        )
    return Model(
        way=files[0].way,
        costs={name: _cost(name, those, counted) for name, those in fitted.items()},
        sure=all(len(each.numbers) > 1 for those in fitted.values() for each in those),
        longest=max(history for history, _ in corners),
        farthest=max(rtt for _, rtt in corners),
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A file with the repetitions that all its drivers have, and which of them each draw takes."""

    file: Played
    numbers: Sequence[int]
    picks: NDArray[np.int64]
    """Places in `numbers`, a row for each draw, all of them in the first."""


def _names(files: Sequence[Played]) -> list[str]:
    return [name for each in files for name in each.runs]


def _suffice(files: Sequence[_Drawn]) -> bool:
    rows = [terms(each.file.steps[0].whole, each.file.rtt) for each in files]
    return bool(rows) and int(np.linalg.matrix_rank(np.array(rows))) == _TERMS


def _cost(driver: str, files: Sequence[_Drawn], counted: Sequence[Played]) -> Cost:
    sending = sent(
        [Counted(each.steps, run.up, run.down) for each in counted for run in each.runs.get(driver, {}).values()]
    )
    anew = all(run.anew for each in files for run in each.file.runs[driver].values())
    rows_first: list[Vector] = []
    rows_later: list[Vector] = []
    first: list[Vector] = []
    later: list[Vector] = []
    for each in files:
        steps, rtt = each.file.steps, each.file.rtt
        added = _extras(each.file.way, sending, anew, steps, rtt)
        follow = len(steps) - 1
        runs = [each.file.runs[driver][number] for number in each.numbers]
        rows_first.append(terms(steps[0].whole, rtt))
        rows_later.append(sum((terms(step.whole, rtt) for step in steps[1:]), np.zeros(_TERMS)) / follow)
        # The median of repetitions: one that something else slowed down should not bend the fit.
        first.append(np.median(np.array([run.first for run in runs])[each.picks], axis=1) - added[0])
        later.append(np.median(np.array([run.later for run in runs])[each.picks], axis=1) - sum(added[1:]) / follow)
    return Cost(sending, anew, _solved(rows_first, first), _solved(rows_later, later))


def _extras(way: Way, sending: Sent, anew: bool, steps: Sequence[Step], rtt: float) -> list[float]:
    path = Path(rtt, way.bandwidth, way.slow_start and rtt > 0)
    return extras(path, steps, sending.crossings(steps), anew=anew)


def _solved(rows: Sequence[Vector], values: Sequence[Vector]) -> Vector:
    """Returns the coefficients with none below 0, a row for each draw.

    Where some have to be held at 0, the best is one that is found without them; there are few enough to try all.
    """
    right = np.array(values)
    # What counts as a share of: the figure itself, and not a draw's, so that all draws weigh alike.
    weights = 1 / np.maximum(right[:, :1], _LEAST)
    left, right = np.array(rows) * weights, right * weights
    best: Vector = np.zeros((right.shape[1], _TERMS))
    least: Vector = (right**2).sum(axis=0)
    for count in range(1, _TERMS + 1):
        for kept in itertools.combinations(range(_TERMS), count):
            found: Vector = np.linalg.lstsq(left[:, kept], right, rcond=None)[0].astype(np.float64).T
            missed: Vector = ((left[:, kept] @ found.T - right) ** 2).sum(axis=0)
            better = (found >= 0).all(axis=1) & (missed < least)
            least = np.where(better, missed, least)
            full = np.zeros_like(best)
            full[:, kept] = found
            best = np.where(better[:, None], full, best)
    return best
