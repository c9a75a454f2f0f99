"""What result files of rollouts say of turns: of each driver and repetition, what the first turn and the later cost.

Above it: `model` and `checks`. Below it: result files. Pure. Times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.bench.drivers.records import RolloutRecord, RunRecord
from turnwire.bench.map.workload import Step, steps_in
from turnwire.bench.measured import COMPLETE
from turnwire.bench.overrides import played
from turnwire.bench.results import Results
from turnwire.bench.scenario.reading import ScenarioError
from turnwire.bench.scenario.values import Scenario

FITTED: Final = "long-history"
"""The scenario that the fit takes, at its own speed; everything else is held against the prediction."""
_SPEEDS: Final = frozenset(("tps", "ttft", "burst"))


@dataclass(frozen=True, slots=True)
class Way:
    """A kind of network, whatever its round trip."""

    bandwidth: float
    """Bits per second each way; 0 for no limit."""
    slow_start: bool
    tls: bool

    @property
    def words(self) -> str:
        """What it is, in words."""
        parts = [f"{self.bandwidth / 1e6:g} Mbit/s each way"] if self.bandwidth else []
        parts += ["encrypted"] if self.tls else []
        parts += ["TCP's window modelled"] if self.slow_start else []
        return ", ".join(parts) or "bandwidth and TCP's window unlimited, not encrypted"


@dataclass(frozen=True, slots=True)
class Observation:
    """One driver's rollouts of one repetition, on average."""

    took: float
    first: float
    """Overhead of the first turn."""
    later: float
    """Overhead of each later turn, with what the client did before the next beyond waiting as told."""
    up: float
    down: float
    anew: bool
    """Whether each turn had a connection of its own."""


@dataclass(frozen=True, slots=True)
class Played:
    """One result file."""

    name: str
    """For people."""
    results: Results
    way: Way
    rtt: float
    steps: Sequence[Step]
    fitted: bool
    runs: dict[str, dict[int, Observation]]
    """By driver and repetition."""

    @property
    def repetitions(self) -> dict[int, dict[str, Observation]]:
        """Those that every driver has."""
        common = set[int].intersection(*(set(each) for each in self.runs.values()))
        return {number: {name: each[number] for name, each in self.runs.items()} for number in sorted(common)}


def observe(results: Results) -> Played | str:
    """Returns what a file says, or why it says nothing to the map."""
    if results.ended != COMPLETE:
        return f"it did not come to its end: {results.ended}"
    try:
        scenario = played(results.options)
    except (ScenarioError, ValueError) as error:
        return str(error)
    if reason := _unfit(scenario, results.options.flags):
        return reason
    steps = steps_in(scenario)
    runs: dict[str, dict[int, Observation]] = {}
    for run in results.runs:
        observation = _observation(run.record, steps)
        if observation is not None:
            runs.setdefault(run.record.driver, {})[run.repetition] = observation
    if not runs:
        return "no rollout ended well"
    network = scenario.network
    return Played(
        name=_name(scenario, results.options.overrides),
        results=results,
        way=Way(network.bandwidth, network.slow_start, network.tls),
        rtt=network.rtt,
        steps=steps,
        fitted=scenario.name == FITTED and not _SPEEDS & set(results.options.overrides),
        runs=runs,
    )


def _unfit(scenario: Scenario, flags: Sequence[str]) -> str:
    load = scenario.load
    if load.agents > 1 or load.rate:
        return "more than one agent at once"
    if scenario.fork is not None or scenario.idle is not None:
        return "with forks or idle sessions"
    if len(scenario.turns) < 2:
        return "one turn only"
    return f"a server with {' '.join(flags)}" if flags else ""


def _name(scenario: Scenario, overrides: dict[str, str]) -> str:
    speed = scenario.speed.tokens_per_second
    history = f", {overrides['history']} of history" if "history" in overrides else ""
    words = "unlimited speed" if math.isinf(speed) else f"{speed:,.0f} tokens/s"
    return f"{scenario.name}{history}, {words}, {scenario.network.rtt * 1000:g} ms"


def _observation(run: RunRecord, steps: Sequence[Step]) -> Observation | None:
    well = [rollout for rollout in run.rollouts if not rollout.failure]
    if run.failure or len(well) != len(run.rollouts) or not well:
        # Bytes are counted for a whole run, and those of rollouts that failed are among them.
        return None
    pauses = sum(step.pause for step in steps)
    later = [_later(rollout, pauses) for rollout in well]
    return Observation(
        took=sum(rollout.took for rollout in well) / len(well),
        first=sum(rollout.turns[0].overhead for rollout in well) / len(well),
        later=sum(later) / len(later),
        up=run.bytes_up / len(well),
        down=run.bytes_down / len(well),
        anew=run.connections >= len(well) * len(steps),
    )


def _later(rollout: RolloutRecord, pauses: float) -> float:
    between = rollout.took - sum(turn.took for turn in rollout.turns) - pauses
    return (sum(turn.overhead for turn in rollout.turns[1:]) + between) / (len(rollout.turns) - 1)
