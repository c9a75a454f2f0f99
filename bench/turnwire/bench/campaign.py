"""Runs a measurement: verifies every driver, then measures them in turns, and keeps each run as soon as it is there.

Above it: `run`, the command. Below it: `stand`, the drivers' processes, and the result file.

A repetition has a server of its own, since much of what differs between runs differs between processes (the hash seed,
where things lie in memory); within it the drivers take turns, beginning with another one each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec

from turnwire.bench.drivers.records import Job, RunRecord
from turnwire.bench.drivers.registry import DRIVERS
from turnwire.bench.results import Results, Run, save
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.values import Load, Network, Scenario, Speed, Turn
from turnwire.bench.stand import standing

Told = Callable[[str], None]
"""Takes one step done, with its name."""

_OVER: float = 60.0
"""Seconds beyond the scenario's limit after which a driver's process is taken for dead."""


class Stopped(RuntimeError):
    """The measurement cannot go on; what there was is kept."""


def order(drivers: Sequence[str], repetition: int) -> list[str]:
    """Returns the drivers in the order of a repetition: each is first, and last, equally often."""
    first = repetition % len(drivers)
    return [*drivers[first:], *drivers[:first]]


def hurried(scenario: Scenario) -> Scenario:
    """Returns the scenario as it is played to verify: once, with a model, tools and a network that take no time."""

    def quick(turn: Turn) -> Turn:
        return replace(turn, think=0.0, calls=tuple(replace(call, time=0.0) for call in turn.calls))

    return replace(
        scenario,
        speed=Speed(0.0, inf, 1),
        network=Network(0.0, 0.0, slow_start=False, tls=scenario.network.tls),
        load=Load(1, 1, 0.0),
        turns=tuple(quick(turn) for turn in scenario.turns),
        idle=None,
    )


def play(job: Job) -> RunRecord:
    """Runs a driver in a process of its own; whatever fails is in the record."""
    command = [sys.executable, "-m", "turnwire.bench.drivers.play"]
    limit = job.scenario.max_seconds + _OVER
    try:
        ended = subprocess.run(
            command, input=msgspec.msgpack.encode(job), capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return RunRecord(job.driver, failure=f"the driver's process hung for {limit:g} s and was ended")
    if ended.returncode:
        words = ended.stderr.decode(errors="replace").strip().splitlines()
        return RunRecord(job.driver, failure=f"the driver's process failed: {words[-1] if words else ended.returncode}")
    return msgspec.msgpack.decode(ended.stdout, type=RunRecord)


def verify(scenario: Scenario, drivers: Sequence[str], flags: Sequence[str], told: Told) -> dict[str, str]:
    """Plays the rollout once with each driver; returns what is wrong by driver, nothing where text and tool calls are
    those of the scenario. Nothing is timed, so as many drivers as there are cores are at it at once.

    Raises:
        RuntimeError: A process did not start.
    """
    quick = hurried(scenario)
    wrong: dict[str, str] = {}
    bridge = any(DRIVERS[name].bridged for name in drivers)
    with standing(compile_rollout(quick).script, quick.network, bridge=bridge, flags=flags) as stand:
        pool = ThreadPoolExecutor(os.cpu_count())
        playing = {pool.submit(play, stand.job(name, quick, 0)): name for name in drivers}
        try:
            for done in as_completed(playing):
                record = done.result()
                failures = [record.failure, *(rollout.failure for rollout in record.rollouts)]
                if found := next((failure for failure in failures if failure), ""):
                    wrong[record.driver] = found
                told(f"verify {record.driver}")
        finally:
            # Whoever is interrupted does not wait for the rest, which fails as soon as the server is gone.
            pool.shutdown(wait=False, cancel_futures=True)
    return {name: wrong[name] for name in drivers if name in wrong}


def measure(results: Results, scenario: Scenario, path: Path | None, told: Told) -> None:
    """Measures what is not there yet, and writes the file after each run.

    Raises:
        Stopped: A process died or did not start, or a run did not come to its end.
        OSError: The file cannot be written.
    """
    options = results.options
    bridge = any(DRIVERS[name].bridged for name in options.drivers)
    script = compile_rollout(scenario).script
    for repetition in range(options.repeat):
        missing = [name for name in order(options.drivers, repetition) if not results.has(repetition, name)]
        for names in together(missing, scenario):
            try:
                with standing(script, scenario.network, bridge=bridge, flags=options.flags) as stand:
                    for name in names:
                        record = play(stand.job(name, scenario, repetition))
                        dead = stand.dead()
                        if dead:
                            record.failure = f"died during the run: {dead}"
                        results.runs.append(Run(repetition, record))
                        if path is not None:
                            save(results, path)
                        told(f"{name}, repetition {repetition + 1}")
                        if record.failure:
                            raise Stopped(f"{name}, repetition {repetition + 1}: {record.failure}")
            except Stopped:
                raise
            except RuntimeError as error:
                raise Stopped(str(error)) from error


def together(drivers: Sequence[str], scenario: Scenario) -> list[list[str]]:
    """Returns which drivers share a server.

    All do, but where idle sessions are weighed each has its own: memory that others' sessions left behind would be used
    again and not be seen.
    """
    if scenario.idle is not None:
        return [[name] for name in drivers]
    return [list(drivers)] if drivers else []
