"""The map's cells: model speed, round trip, history and turns, and who gains more than 5% in each. Pure.

Above it: `picture`, `words`. Below it: the model and its checks.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.bench.map.checks import check_savings
from turnwire.bench.map.model import Model, Vector
from turnwire.bench.map.observed import Played
from turnwire.bench.map.workload import Profile
from turnwire.bench.metrics.statistics import Interval

MATTERS: Final = 0.05
"""The share of the end-to-end time from which on a gain matters."""
BASELINE: Final = "http-full"
OURS: Final = "grpc-append"
OTHERS: Final[tuple[str, ...]] = (
    "http-full",
    "http-full-new",
    "http-chained",
    "ws-create",
    "ws-append",
    "native-append",
)
"""Whom gRPC is compared with, in this order, where they were measured."""
STEPS: Final = (
    ("HTTP, chained", ("http-chained",)),
    ("WebSocket, create", ("ws-create", "native-create")),
    ("WebSocket, append", ("ws-append", "native-append")),
    ("gRPC", ("grpc-create", "grpc-append")),
)
"""What one may change about stateless HTTP, the least change first, and the drivers that stand for it."""


class Verdict(enum.Enum):
    """What a gain comes to."""

    GAINS = "gains"
    NEITHER = "neither"
    LOSES = "loses"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Judged:
    """A gain with what it comes to."""

    gain: Interval
    """A share of the other's time; from the fit and its draws."""
    error: float | None
    """How far off predictions were at most where they were checked, as a share of the other's time here; None where
    they were not checked."""

    @property
    def low(self) -> float:
        """The least that it may be, the model's error with it."""
        return self.gain.low - (self.error or 0.0)

    @property
    def high(self) -> float:
        """The most that it may be, the model's error with it."""
        return self.gain.high + (self.error or 0.0)

    @property
    def verdict(self) -> Verdict:
        """Gains or loses where the whole of it is beyond 5%, neither where the whole of it is within, else unsure.

        What was not checked is unsure, too.
        """
        if self.error is None:
            return Verdict.UNSURE
        if self.low > MATTERS:
            return Verdict.GAINS
        if self.high < -MATTERS:
            return Verdict.LOSES
        return Verdict.NEITHER if self.low >= -MATTERS and self.high <= MATTERS else Verdict.UNSURE

    @property
    def slower(self) -> bool:
        """Whether it is slower for certain, however little."""
        return self.error is not None and self.high < 0


@dataclass(frozen=True, slots=True)
class Grid:
    """Which cells there are."""

    speeds: Sequence[float] = (65.0, 250.0, 1000.0, 4000.0)
    """Tokens per second."""
    rtts: Sequence[float] = (0.0, 0.02, 0.05, 0.1)
    histories: Sequence[int] = (1024, 100 * 1024, 1024**2)
    turns: Sequence[int] = (5, 30, 100)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell is."""

    speed: float
    rtt: float
    history: int
    turns: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell."""

    place: Place
    over_baseline: dict[str, Judged]
    """By how much each driver is faster than stateless HTTP that is kept alive."""
    of_ours: dict[str, Judged]
    """By how much append over gRPC is faster than each of the others."""

    @property
    def step(self) -> int | None:
        """The least of `STEPS` that gains more than 5% for certain; None where none does."""
        for number, (_, drivers) in enumerate(STEPS):
            judged = [self.over_baseline[name] for name in drivers if name in self.over_baseline]
            if any(each.verdict is Verdict.GAINS for each in judged):
                return number
        return None

    @property
    def unsure(self) -> bool:
        """Whether no step gains for certain, and one may."""
        return self.step is None and any(
            each.error is None or each.high > MATTERS for name, each in self.over_baseline.items() if name in _CHOICES
        )

    @property
    def best(self) -> str:
        """The driver of `STEPS` that gains most."""
        return max((name for name in self.over_baseline if name in _CHOICES), key=self._gain)

    def _gain(self, driver: str) -> float:
        return self.over_baseline[driver].gain.value


_CHOICES: Final = frozenset(name for _, drivers in STEPS for name in drivers)


def cells(model: Model, held_out: Sequence[Played], profile: Profile, grid: Grid) -> list[Cell]:
    """Returns all cells, by history, turns, round trip and speed.

    Args:
        model: With the baseline and one driver of `STEPS` at least.
        held_out: Files that were not fitted; by them is known how far off savings are.
        profile: What the rollouts are like.
        grid: Which cells.
    """
    errors: dict[tuple[str, str], float | None] = {}
    """Seconds a turn."""

    def judged(driver: str, other: str, times: dict[str, Vector], turns: int) -> Judged:
        if (driver, other) not in errors:
            found = [each.error for each in check_savings(model, held_out, driver, other)]
            errors[driver, other] = max(found, default=None)
        seconds = errors[driver, other]
        error = None if seconds is None else seconds * turns / float(times[other][0])
        return Judged(model.interval(1 - times[driver] / times[other]), error)

    made: list[Cell] = []
    for history in grid.histories:
        for turns in grid.turns:
            for rtt in grid.rtts:
                for speed in grid.speeds:
                    steps = profile.steps(speed, turns, history)
                    times = {name: model.predict(name, steps, rtt) for name in model.costs}
                    over = {name: judged(name, BASELINE, times, turns) for name in times if name != BASELINE}
                    ours = (
                        {name: judged(OURS, name, times, turns) for name in OTHERS if name in times}
                        if OURS in times
                        else {}
                    )
                    made.append(Cell(Place(speed, rtt, history, turns), over, ours))
    return made
