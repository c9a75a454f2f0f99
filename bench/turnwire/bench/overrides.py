"""What may be set in place of a scenario's own values, by the names that the command line and result files have.

Above it: `run`, which takes them from the command line, and whoever reads a result file and asks what was played.
Below it: the scenario's values and the readers of numbers with units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from turnwire.bench.results import Options
from turnwire.bench.scenario.reading import MAX_LANES, ScenarioError, read
from turnwire.bench.scenario.values import Load, Scenario, Turn
from turnwire.server.toml.tables import Problem
from turnwire.server.values import duration, integer, rate, size

_number: Final = integer(1, 100_000)
READERS: Final[dict[str, tuple[Callable[[object], Any], str]]] = {
    "rtt": (duration(0.0, 10.0), "round trip, such as 50ms"),
    "bandwidth_mbit": (rate, "megabits per second each way"),
    "slow_start": (bool, "model the window of TCP"),
    "tls": (bool, "encrypt"),
    "ttft": (duration(0.0, 3600.0), "time to first token of the simulated model"),
    "tps": (rate, "tokens per second of it, or unlimited"),
    "burst": (_number, "tokens at once"),
    "history": (size(0, 16 * 1024**2), "history at the start, such as 1MiB"),
    "agents": (integer(1, MAX_LANES), "rollouts played at once"),
    "rate": (rate, "rollouts begun per second, at random, in place of agents"),
    "rollouts": (_number, "rollouts of a run"),
    "turns": (_number, "turns of a rollout, where it has more: the first ones, and the one that closes it"),
    "max_seconds": (duration(1.0, 86_400.0), "stop a run after so long"),
}
"""By name: what reads a value, raising ValueError, and the words for it. A switch has `bool`."""


def overridden(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """Returns a scenario with some values set differently; None keeps what was.

    Raises:
        ScenarioError: So few turns end before the rollout forks.
    """
    given = {key: value for key, value in values.items() if value is not None and value is not False}

    def pick(**names: str) -> dict[str, Any]:
        return {field: given[name] for field, name in names.items() if name in given}

    network = pick(rtt="rtt", slow_start="slow_start", tls="tls")
    if "bandwidth_mbit" in given:
        network["bandwidth"] = given["bandwidth_mbit"] * 1e6
    return replace(
        scenario,
        network=replace(scenario.network, **network),
        speed=replace(scenario.speed, **pick(ttft="ttft", tokens_per_second="tps", burst="burst")),
        request=replace(scenario.request, **pick(history="history")),
        load=_load(scenario.load, given),
        turns=_turns(scenario, given.get("turns", len(scenario.turns))),
        max_seconds=given.get("max_seconds", scenario.max_seconds),
    )


def _turns(scenario: Scenario, count: int) -> tuple[Turn, ...]:
    """Returns the first turns and the last one, so many in all."""
    turns = scenario.turns
    if scenario.fork is not None and count <= scenario.fork.after:
        words = f"expected more than the {scenario.fork.after} before the fork, found {count}"
        raise ScenarioError([Problem("--turns", 0, "", words)])
    return turns if count >= len(turns) else (*turns[: count - 1], turns[-1])


def played(options: Options) -> Scenario:
    """Returns the scenario that a result file's runs played: the one it holds, with what was set in its place.

    Raises:
        ScenarioError: The file's scenario is none that this version reads.
        ValueError: What was set is nothing that this version knows.
    """
    values: dict[str, Any] = {}
    for name, text in options.overrides.items():
        if name not in READERS:
            msg = f"expected one of {', '.join(READERS)}, found {name}"
            raise ValueError(msg)
        values[name] = READERS[name][0](text)
    return overridden(read(options.source, f"{options.scenario}.toml"), values)


def _load(load: Load, given: Mapping[str, Any]) -> Load:
    if "rate" in given:
        return Load(given.get("rollouts", load.rollouts), 1, given["rate"])
    if "agents" in given:
        return Load(given.get("rollouts", given["agents"]), given["agents"], 0.0)
    return replace(load, rollouts=given.get("rollouts", load.rollouts))
