"""One run of one driver in a process of its own: `python -m turnwire.bench.drivers.play`, for the runner.

Above it: the runner, which writes a `Job` to its standard input and reads a `RunRecord` from its standard output, both
msgpack. Below it: the driver, `rollouts`, and the kernel's counters.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from turnwire.bench.doors_processes import Process
from turnwire.bench.drivers.port import Driver, Failed, Target
from turnwire.bench.drivers.records import Job, RolloutRecord, RunRecord
from turnwire.bench.drivers.registry import DRIVERS
from turnwire.bench.drivers.rollouts import Player
from turnwire.bench.drivers.whole import Whole
from turnwire.bench.network.alarm import Alarm
from turnwire.bench.scenario.compiling import Rollout, compile_rollout
from turnwire.bench.scenario.values import Idle, Load, Scenario

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_AT_ONCE: Final = 50
"""Idle sessions that are opened at the same time."""
_CLOSING: Final = 10.0
"""Seconds for closing."""


def resident(pid: int) -> int:
    """Returns the resident bytes of a process (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def peak(pid: int) -> int:
    """Returns the most resident bytes that a process ever had (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


async def _passed(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    told: dict[str, Any] = json.loads(await reader.read())
    writer.close()
    await writer.wait_closed()
    return told


def _total(told: Mapping[str, Any], key: str) -> int:
    return sum(counts[key] for counts in told["targets"].values())


def _cpu(processes: Mapping[str, int]) -> dict[str, float]:
    return {name: Process(pid, {}).cpu() for name, pid in processes.items()}


class _Here:
    """A driver of this process, played by it."""

    def __init__(self, driver: Driver, rollout: Rollout, round_trip: float, alarm: Alarm, *, pieces: bool) -> None:
        self._driver = driver
        self._rollout = rollout
        self._round_trip = round_trip
        self._alarm = alarm
        self._pieces = pieces
        self._player: Player | None = None
        self.pid = os.getpid()

    async def start(self, scenario: Scenario) -> None:
        load, fork = scenario.load, scenario.fork
        await self._driver.open((load.rollouts if load.rate else load.agents) * (fork.lanes if fork else 1))
        # The first turn once, so that no figure has a first time of anything in it.
        once = replace(self._rollout, turns=self._rollout.turns[:1])
        first = Player(self._driver, once, None, 0.0, self._alarm)
        await first.play(self._driver.conversation("warm-up"), RolloutRecord(), "warm-up")
        self._player = Player(self._driver, self._rollout, fork, self._round_trip, self._alarm, pieces=self._pieces)

    async def play(self, load: Load, seed: int) -> None:
        assert self._player is not None
        if load.rate:
            await self._player.open_loop(load, seed)
        else:
            await self._player.closed_loop(load)

    async def collect(self) -> list[RolloutRecord]:
        return [] if self._player is None else self._player.records

    async def close(self) -> None:
        await self._driver.close()


async def run(job: Job) -> RunRecord:
    """Runs a job; whatever fails is told in the record. Cancelling it is safe."""
    scenario = job.scenario
    rollout = compile_rollout(scenario)
    alarm = Alarm()
    entry = DRIVERS[job.driver]
    driver = entry.build(_target(job), rollout)
    round_trip = 0.0 if entry.direct else scenario.network.rtt
    whole = driver if isinstance(driver, Whole) else _Here(driver, rollout, round_trip, alarm, pieces=job.pieces)
    quiet: list[Driver] = []
    record = RunRecord(job.driver, load_before=os.getloadavg()[0])
    try:
        async with asyncio.timeout(scenario.max_seconds):
            if scenario.idle is not None:
                await _stand_idle(job, rollout, scenario.idle, record, quiet)
            await _measure(job, whole, rollout, record)
    except TimeoutError:
        record.failure = f"stopped after {scenario.max_seconds:g} s, the scenario's limit"
    except Exception as error:
        record.failure = f"{type(error).__name__}: {error}"
    finally:
        alarm.close()
        closing = [whole.close(), *(each.close() for each in quiet)]
        # A server that is gone, or hangs, must not keep the record from being told.
        await asyncio.wait([asyncio.ensure_future(each) for each in closing], timeout=_CLOSING)
        # aiohttp's connections are closed one turn of the loop after their session, as its documentation says.
        await asyncio.sleep(0)
    return record


def _target(job: Job) -> Target:
    return Target(job.grpc, job.http, job.bridge, job.ca)


async def _stand_idle(job: Job, rollout: Rollout, idle: Idle, record: RunRecord, quiet: list[Driver]) -> None:
    """Opens sessions that do nothing, each a connection of its own, and notes the server's memory before and after."""
    server = job.processes["server"]
    record.memory["server_before"] = resident(server)
    while len(quiet) < idle.sessions:
        built = [
            DRIVERS[job.driver].build(_target(job), rollout) for _ in range(min(_AT_ONCE, idle.sessions - len(quiet)))
        ]
        opened = [driver for driver in built if not isinstance(driver, Whole)]
        if not opened:
            raise Failed(f"{job.driver} has no sessions that could be idle")
        # Noted before they are open, so that all are closed whatever happens.
        quiet += opened
        await asyncio.gather(*(driver.open(1) for driver in opened))
    await asyncio.sleep(idle.time)
    record.memory["server_idle"] = resident(server)


async def _measure(job: Job, whole: Whole, rollout: Rollout, record: RunRecord) -> None:
    scenario = job.scenario
    await whole.start(scenario)
    processes = job.processes | {"client": whole.pid}
    before, cpu, began = await _passed(job.stats), _cpu(processes), time.perf_counter()
    try:
        await whole.play(scenario.load, job.seed)
        record.cpu = {name: now - cpu[name] for name, now in _cpu(processes).items()}
    finally:
        record.wall = time.perf_counter() - began
        record.rollouts = await whole.collect()
        well = sum(1 for rollout_record in record.rollouts if not rollout_record.failure)
        fork = scenario.fork
        lanes = fork.lanes if fork else 1
        shared = fork.after if fork else 0
        planned = [*rollout.turns[:shared], *(rollout.turns[shared:] * lanes)]
        record.turns = well * len(planned)
        record.tokens = well * sum(turn.tokens for turn in planned)
    record.memory |= {name: resident(pid) for name, pid in processes.items()}
    record.memory |= {"server_peak": peak(job.processes["server"])}
    told = await _passed(job.stats)
    record.bytes_up = _total(told, "up") - _total(before, "up")
    record.bytes_down = _total(told, "down") - _total(before, "down")
    record.connections = _total(told, "connections") - _total(before, "connections")
    record.lateness = told["lateness"]


def main() -> None:
    """Runs the job on standard input."""
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    sys.stdout.buffer.write(msgspec.msgpack.encode(uvloop.run(run(job))))


if __name__ == "__main__":
    main()
