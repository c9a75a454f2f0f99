"""Rollouts of result files beside what they played: the scenario, its floor, and the figures by driver.

Above it: the report's sections. Below it: the folder, the scenario and the summary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.bench.folder import Broken, Folder
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.overrides import played
from turnwire.bench.results import Results
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.values import Scenario
from turnwire.bench.summary import Headline, compare, headlines, least, remarks

OURS: Final = "grpc-append"
OTHERS: Final = (
    ("http-full", "HTTP with the whole history"),
    ("http-chained", "HTTP chained"),
    ("ws-append", "append over the official WebSocket"),
    ("native-append", "append over WebSocket `turnwire.v1`"),
)
"""Whom append over gRPC is compared with, and their names."""
BASELINE: Final = "http-full"
"""Whom all are compared with in tables of single files."""


@dataclass(frozen=True, slots=True)
class Played:
    """One file of rollouts."""

    file: str
    results: Results
    scenario: Scenario
    floor: float
    """Seconds."""
    lines: Sequence[Headline]
    """By driver, in the order asked for; compared with `BASELINE`."""
    gains: Mapping[str, Interval]
    """By which share `OURS` is faster than each of `OTHERS` that the file has."""
    remarks: Sequence[str]

    def line(self, driver: str) -> Headline | None:
        """Returns a driver's figures, where it has any."""
        return next((line for line in self.lines if line.driver == driver), None)

    @property
    def setting(self) -> str:
        """What was played, in words, such as "codex-fix at 1,000 tokens/s, RTT 50 ms"."""
        return f"{self.scenario.name} at {speed(self.scenario)}, {network(self.scenario)}{_load(self.scenario)}"


def speed(scenario: Scenario) -> str:
    """Returns the model's speed in words."""
    each = scenario.speed.tokens_per_second
    return "unlimited speed" if math.isinf(each) else f"{each:,g} tokens/s"


def network(scenario: Scenario) -> str:
    """Returns the network in words."""
    return ", ".join((f"RTT {scenario.network.rtt * 1000:g} ms", *_extras(scenario)))


def _extras(scenario: Scenario) -> list[str]:
    net = scenario.network
    bandwidth = f"{net.bandwidth / 1e6:g} Mbit/s" if net.bandwidth else ""
    return [each for each in (bandwidth, "slow start" if net.slow_start else "", "TLS" if net.tls else "") if each]


def rest(scenario: Scenario) -> str:
    """Returns what a setting has beside speed and round trip, in words."""
    return ", ".join(word for word in (*_extras(scenario), _load(scenario).removeprefix(", ")) if word) or "plain"


def size(count: float) -> str:
    """Returns bytes in words, by 1,024."""
    for unit, bytes_ in (("MB", 1024**2), ("KB", 1024)):
        if count >= bytes_:
            return f"{count / bytes_:,.3g} {unit}"
    return f"{count:.0f} B"


def _load(scenario: Scenario) -> str:
    history = f", history {size(scenario.request.history)}" if scenario.request.history else ""
    if scenario.load.rate:
        return f"{history}, {scenario.load.rate:g} rollouts begun a second"
    return history + (f", {scenario.load.agents:,} agents" if scenario.load.agents > 1 else "")


def playing(folder: Folder) -> tuple[list[Played], list[Broken]]:
    """Returns every file of rollouts with its figures, and those whose scenario this version cannot read."""
    found: list[Played] = []
    broken: list[Broken] = []
    for file in folder.rollouts:
        try:
            scenario = played(file.content.options)
            floor = least(compile_rollout(scenario), scenario.network.rtt)
        except ValueError as error:
            broken.append(Broken(file.name, str(error)))
            continue
        idle = scenario.idle.sessions if scenario.idle else 0
        lines = headlines(file.content, floor, BASELINE, idle)
        pairs = ((driver, compare(file.content, OURS, driver)) for driver, _ in OTHERS)
        gains = {driver: figure for driver, figure in pairs if figure is not None}
        found.append(Played(file.name, file.content, scenario, floor, lines, gains, remarks(lines, file.content)))
    return found, broken
