"""From runs to the figures of a table, with intervals, and to what is to be said of them. Pure.

Above it: `run` and the report. Below it: `metrics` and the result file's values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from turnwire.bench.drivers.records import RunRecord
from turnwire.bench.metrics.stages import Split, typical
from turnwire.bench.metrics.statistics import Interval, bootstrap, median, paired_bootstrap, percentile
from turnwire.bench.metrics.turns import TurnFigures, distance, faster_by, floor
from turnwire.bench.results import Results
from turnwire.bench.scenario.compiling import Rollout

LATE = 0.002
"""Seconds that the proxy, or the client itself, may be late at p99 before it is said that they are."""
WIDE = 0.05
"""Half of an interval over its figure, from which on the figure is called unsure."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One line of the table. Times are seconds."""

    driver: str
    runs: int
    rollouts: int
    failed: int
    end_to_end: Interval
    """Median of the rollouts that ended well."""
    above_floor: float
    """Of the median, as a share of the floor; infinite where there is none, and where there is no network."""
    faster: Interval | None
    """By which share it is faster than the baseline in the same repetition; None for the baseline itself, and where
    there is no network: that is no choice that somebody has."""
    ttft: Interval
    overhead: Interval
    """Of a turn, the median."""
    overhead_p99: float
    server_per_token: float
    """CPU time."""
    client_per_token: float
    server_per_turn: float
    """CPU time, that of a bridge included."""
    up_per_turn: float
    """Bytes."""
    down_per_turn: float
    server_memory: float
    """Resident bytes at the end of a run, the median."""
    idle: float | None
    """Resident bytes of the server for each idle session, the median; None where there are none."""
    lag_p99: float
    """How late the client made its requests."""
    network_p99: float
    """How late the proxy was against what it was set to."""
    parts: Split
    """Where the time of a turn went, the medians."""
    direct: bool
    """Whether nothing went over the network: client and core were one process, whose CPU time is the client's."""


def least(rollout: Rollout, round_trip: float) -> float:
    """Returns the floor of a rollout in seconds; lanes that were forked run beside each other, and count once."""
    turns = rollout.turns
    return floor([turn.inference for turn in turns], [turn.pause for turn in turns], round_trip)


def headlines(results: Results, floor_seconds: float, baseline: str, idle_sessions: int = 0) -> list[Headline]:
    """Returns a line for each driver that has a rollout that ended well, in the order asked for.

    Args:
        results: All runs.
        floor_seconds: See `least`.
        baseline: The driver that the others are compared with.
        idle_sessions: How many stood beside the rollouts.
    """
    lines: list[Headline] = []
    for driver in results.options.drivers:
        runs = results.of(driver)
        if any(rollout.turns and not rollout.failure for run in runs for rollout in run.rollouts):
            lines.append(_headline(driver, runs, floor_seconds, compare(results, driver, baseline), idle_sessions))
    return lines


def compare(results: Results, driver: str, baseline: str) -> Interval | None:
    """Returns by which share a driver's rollouts are faster than another's in the same repetition.

    None where no repetition has both, and for a driver against itself.
    """
    pairs = _pairs(results, driver, baseline)
    return paired_bootstrap(pairs, faster_by) if pairs else None


def _headline(
    driver: str,
    runs: Sequence[RunRecord],
    floor_seconds: float,
    faster: Interval | None,
    idle_sessions: int,
) -> Headline:
    direct = not any(run.bytes_up or run.bytes_down for run in runs)
    took = [_took(run) for run in runs]
    tokens, turns = sum(run.tokens for run in runs), sum(run.turns for run in runs)
    server = sum(run.cpu["server"] + run.cpu.get("bridge", 0.0) for run in runs)
    end_to_end = bootstrap(took)
    overheads = _turns(runs, lambda turn: turn.overhead)
    lags = [lag for run in runs for rollout in run.rollouts for lag in (rollout.start_lag, *rollout.lags)]
    return Headline(
        driver=driver,
        runs=len(runs),
        rollouts=sum(len(run.rollouts) for run in runs),
        failed=sum(run.failed for run in runs),
        end_to_end=end_to_end,
        above_floor=distance(end_to_end.value, floor_seconds) if floor_seconds > 0 and not direct else inf,
        faster=None if direct else faster,
        ttft=bootstrap(_turns(runs, lambda turn: turn.ttft)),
        overhead=bootstrap(overheads),
        overhead_p99=percentile([each for run in overheads for each in run], 0.99),
        server_per_token=server / max(1, tokens),
        client_per_token=sum(run.cpu["client"] for run in runs) / max(1, tokens),
        server_per_turn=server / max(1, turns),
        up_per_turn=sum(run.bytes_up for run in runs) / max(1, turns),
        down_per_turn=sum(run.bytes_down for run in runs) / max(1, turns),
        server_memory=median([float(run.memory["server"]) for run in runs]),
        idle=median([_idle(run, idle_sessions) for run in runs]) if idle_sessions else None,
        lag_p99=percentile(lags, 0.99),
        network_p99=max(run.lateness["p99"] for run in runs),
        parts=typical([turn for run in runs for rollout in run.rollouts for turn in rollout.turns]),
        direct=direct,
    )


def _idle(run: RunRecord, sessions: int) -> float:
    return (run.memory["server_idle"] - run.memory["server_before"]) / sessions


def _took(run: RunRecord) -> list[float]:
    return [rollout.took for rollout in run.rollouts if not rollout.failure]


def _turns(runs: Sequence[RunRecord], figure: Callable[[TurnFigures], float]) -> list[list[float]]:
    return [[figure(turn) for rollout in run.rollouts for turn in rollout.turns] for run in runs]


def _pairs(results: Results, driver: str, baseline: str) -> list[tuple[float, float]]:
    """Returns the medians of both in each repetition that has both."""
    if driver == baseline:
        return []
    medians: dict[int, dict[str, float]] = {}
    for run in results.runs:
        took = _took(run.record)
        if not run.record.failure and took:
            medians.setdefault(run.repetition, {})[run.record.driver] = median(took)
    return [(each[driver], each[baseline]) for each in medians.values() if driver in each and baseline in each]


def remarks(lines: Sequence[Headline], results: Results) -> list[str]:
    """Returns what has to be said beside the figures: failures, noise, a generator or network that was late."""
    said: list[str] = []
    cores = results.machine.get("cores") or 1
    loads = [run.record.load_before for run in results.runs]
    if loads and max(loads) > cores:
        said.append(
            f"The machine was busy: a load of {min(loads):.1f} to {max(loads):.1f} before the runs, on {cores} cores. "
            "Compare within this run."
        )
    said += [f"{name} is left out: {reason}." for name, reason in results.skipped.items()]
    for line in lines:
        if line.failed:
            said.append(f"{line.driver}: {line.failed} of {line.rollouts} rollouts failed.")
        if line.direct:
            said.append(
                f"{line.driver}: no server and no network; the core's CPU time is counted as the client's, and "
                "its memory is not the server's."
            )
        if line.runs < 2:
            said.append(f"{line.driver}: one run only, so there is no interval.")
        elif line.end_to_end.high - line.end_to_end.low > 2 * WIDE * line.end_to_end.value:
            said.append(f"{line.driver}: the end-to-end time is unsure by more than {WIDE:.0%}; repeat more often.")
        if line.lag_p99 > LATE:
            said.append(f"{line.driver}: the client itself was {line.lag_p99 * 1000:.1f} ms late at p99.")
    worst = max((line.network_p99 for line in lines), default=0.0)
    if worst > LATE:
        said.append(f"The network was up to {worst * 1000:.1f} ms late at p99 against what it was set to.")
    return said
