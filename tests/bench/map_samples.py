"""Result files of a machine whose turns cost what is said here, so that tests know what a fit has to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwire.bench.drivers.records import RolloutRecord, RunRecord
from turnwire.bench.map.crossing import Crossing, extras
from turnwire.bench.map.workload import Step, steps_in
from turnwire.bench.measured import COMPLETE
from turnwire.bench.metrics.turns import Moments, turn_figures
from turnwire.bench.network.link import Path
from turnwire.bench.overrides import played
from turnwire.bench.results import Options, Results, Run
from turnwire.bench.scenario.reading import source_of

HISTORIES = ("1024", "102400", "409600")
"""Bytes, as text: short enough that nobody waits for texts to be made."""


@dataclass(frozen=True)
class Truth:
    """What a driver's turns cost: the same at each, for each megabyte of the conversation, for each second of RTT."""

    each: float = 0.003
    per_megabyte: float = 0.0
    per_rtt: float = 0.0
    noise: Sequence[float] = (0.0, 0.0, 0.0)
    """Seconds on top of each turn, by repetition."""
    anew: bool = False
    content: str = "new"

    def overhead(self, step: Step, rtt: float) -> float:
        return self.each + self.per_megabyte * step.whole / 1e6 + self.per_rtt * rtt

    def crossings(self, steps: Sequence[Step]) -> list[Crossing]:
        ups = [
            100
            + (step.settings if self.content != "new" or not turn else 0)
            + (step.whole if self.content == "whole" else step.new)
            for turn, step in enumerate(steps)
        ]
        return [Crossing(up, 0.0, 300.0) for up in ups]


KEPT = Truth(0.004, per_megabyte=0.02, content="whole")
NEW = Truth(0.004, per_megabyte=0.02, per_rtt=1.0, anew=True, content="whole")
CHAINED = Truth(0.004, content="settings")
GRPC = Truth(0.003)
MACHINE: Mapping[str, Truth] = {"grpc-append": GRPC, "http-chained": CHAINED, "http-full": KEPT, "http-full-new": NEW}


def measured(scenario: str, drivers: Mapping[str, Truth] = MACHINE, **overrides: str) -> Results:
    """Returns a file of that machine."""
    options = Options(f"run {scenario}", scenario, source_of(scenario), dict(overrides), list(drivers), 3, [])
    network = played(options).network
    steps, rtt = steps_in(played(options)), network.rtt
    way = Path(rtt, network.bandwidth, network.slow_start)
    results = Results(options, {"cores": 2}, ended=COMPLETE, date="2026-01-01T00:00:00+00:00")
    for name, truth in drivers.items():
        crossings = truth.crossings(steps)
        waited = extras(way, steps, crossings, anew=truth.anew)
        for repetition, noise in enumerate(truth.noise):
            record, now = RolloutRecord(), 0.0
            for step, waits in zip(steps, waited, strict=True):
                took = step.inference + rtt + truth.overhead(step, rtt) + waits + noise
                moments = Moments(now, [], now + took)
                record.turns.append(turn_figures(moments, step.tokens, step.inference, rtt, step.pause))
                now += took + step.pause
            record.took = now
            up, down = sum(each.up for each in crossings), sum(each.paced for each in crossings)
            run = RunRecord(name, [record], bytes_up=round(up), bytes_down=round(down))
            run.connections = len(steps) if truth.anew else 0
            results.runs.append(Run(repetition, run))
    return results


def grid(drivers: Mapping[str, Truth] = MACHINE, **overrides: str) -> list[Results]:
    """Returns files to fit."""
    return [
        measured("long-history", drivers, history=history, rtt=rtt, **overrides)
        for history in HISTORIES
        for rtt in ("0ms", "20ms", "100ms")
    ]
