"""Whether a server's memory stays flat: sessions come and go over every transport, and some of them badly.

A real server in a process of its own; clients of three transports in this one. Each rollout is a session or a request
of its own: most end well, some are cancelled, some break off in the middle. The server's memory is sampled while they
run, and `growth` says how much of it each rollout left behind. Run with `python -m turnwire.bench.soak`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from turnwire.bench.command import bar, screen, stoppable, typed
from turnwire.bench.doors_processes import Process, running
from turnwire.bench.measured import measuring
from turnwire.bench.memory import private_bytes
from turnwire.bench.metrics.statistics import Interval, bootstrap
from turnwire.client import connect

SECONDS: Final = 120.0
"""How long rollouts come and go."""
AT_ONCE: Final = 16
"""Rollouts at the same time."""
WARM_UP: Final = 0.5
"""The share of the time that is left out: caches fill, and the allocator finds its size. That takes about 11,000
rollouts, over which 7 MB come; a minute on two cores that do nothing else."""
BOUND: Final = 64.0
"""Bytes that a rollout may leave behind: less than its id would be in any table, so below it nothing is kept."""

_KNOWN: Final = ("--known", "64")
"""What the server remembers by design is small, so that it is full long before the warm-up ends."""
_SAMPLES: Final = 100
_BLOCKS: Final = 8
_MODEL: Final = "scripted"
_GO: Final = "Say something. " * 20
_SCENARIO: Final = """
[speed]
ttft_ms = 1
tokens_per_second = 4000

[[turn]]
text = { tokens = 60 }
"""
_PATIENCE: Final = 30.0
"""Seconds that a rollout may take; it takes a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The server at one moment."""

    seconds: float
    """Since the beginning."""
    rollouts: int
    """That have ended, however they did."""
    resident: int
    """Bytes that belong to the server alone."""


def growth(samples: Sequence[Sample], warm_up: float = WARM_UP, blocks: int = _BLOCKS) -> Interval:
    """Returns the bytes that a rollout leaves behind: the slope of memory over rollouts, with its 95% interval.

    Slopes are taken between all samples of one block and all of another, the median of them (Theil and Sen), so that a
    step of the allocator counts once; the interval is a bootstrap over pairs of blocks far from each other.

    Args:
        samples: In the order they were taken.
        warm_up: The share of the samples that is left out at the beginning.
        blocks: Into how many blocks of samples the rest is cut; an even number.

    Raises:
        ValueError: There are fewer samples than blocks after the warm-up.
    """
    kept = samples[int(len(samples) * warm_up) :]
    if len(kept) < blocks:
        msg = f"expected at least {blocks} samples after the warm-up, found {len(kept)}"
        raise ValueError(msg)
    size = len(kept) // blocks
    cut = [kept[number * size : (number + 1) * size] for number in range(blocks)]
    half = blocks // 2
    # Each block with the one half of the time later: neighbours would differ by noise alone.
    pairs = [_slopes(cut[number], cut[number + half]) for number in range(half)]
    return bootstrap(pairs)


def _slopes(early: Sequence[Sample], late: Sequence[Sample]) -> list[float]:
    return [
        (after.resident - before.resident) / (after.rollouts - before.rollouts)
        for before in early
        for after in late
        if after.rollouts > before.rollouts
    ]


def flat(grown: Interval, bound: float = BOUND) -> bool:
    """Whether nothing says that memory grows: what rollouts leave behind may be too little to be kept by them.

    A wide interval is no proof of flatness either; it narrows with the length of the soak.
    """
    return grown.low <= bound


class _Rollouts:
    """Plays rollouts against one server, each on a connection or a request of its own."""

    def __init__(self, server: Process, seed: int) -> None:
        self.ended = 0
        self.failed = 0
        self.kinds: dict[str, int] = {}
        self._address = server.addresses["grpc"]
        self._url = f"{server.addresses['http']}/v1/responses"
        self._choice = random.Random(seed)
        self._number = count()
        self._ways: tuple[tuple[str, Callable[[str], Any]], ...] = (
            ("grpc", self._grpc),
            ("websocket", self._websocket),
            ("http", self._http),
        )

    async def until(self, moment: float) -> None:
        """Plays one after the other until a moment of the performance counter."""
        while time.perf_counter() < moment:
            name, way = self._choice.choice(self._ways)
            # Half of them end as they should.
            fate = self._choice.choice(("whole", "whole", "cancelled", "broken"))
            try:
                async with asyncio.timeout(_PATIENCE):
                    await way(fate)
            except (OSError, TimeoutError, aiohttp.ClientError):
                self.failed += 1
            self.kinds[f"{name} {fate}"] = self.kinds.get(f"{name} {fate}", 0) + 1
            self.ended += 1

    async def _grpc(self, fate: str) -> None:
        async with connect(self._address) as session:
            first = await session.create(model=_MODEL, input=_GO, store=False, lane=f"lane{next(self._number)}")
            if fate == "broken":
                return
            if fate == "cancelled":
                await first.cancel()
            await first.until_done()
            if fate == "whole":
                stream = await session.create(model=_MODEL, input=_GO, store=False, previous_response_id=first.id)
                await stream.until_done()

    async def _websocket(self, fate: str) -> None:
        async with aiohttp.ClientSession() as http:
            socket = await http.ws_connect(self._url)
            await socket.send_json({"type": "response.create", "model": _MODEL, "input": _GO, "store": False})
            while True:
                message = await socket.receive()
                if message.type is not aiohttp.WSMsgType.TEXT or '"type":"response.completed"' in message.data[:60]:
                    await socket.close()
                    return
                if fate == "broken" or (fate == "cancelled" and '"type":"response.output_text.delta"' in message.data):
                    # Its connection goes with the client, without a closing frame, as with one that dies.
                    return

    async def _http(self, fate: str) -> None:
        body = {"model": _MODEL, "input": _GO, "stream": fate != "whole", "store": False}
        async with aiohttp.ClientSession() as http, http.post(self._url, json=body) as answer:
            if fate == "whole":
                await answer.read()
                return
            await answer.content.readany()
            # What was not read is cut off with the connection.
            answer.close()


@contextmanager
def _serving() -> Generator[Process, None, None]:
    listen = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "off", "--log-level", "error")
    with tempfile.TemporaryDirectory(prefix="turnwire-soak-") as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(_SCENARIO, encoding="utf-8")
        command = (sys.executable, "-m", "turnwire.client.cli", "serve", *listen, *_KNOWN, "--scenario", str(path))
        with running(command, ("grpc", "http")) as process:
            yield process


async def _soak(seconds: float, figures: dict[str, Any], told: Callable[[str], object]) -> None:
    samples: list[Sample] = []
    with _serving() as server:
        began = time.perf_counter()
        rollouts = _Rollouts(server, 0)
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(rollouts.until(began + seconds))
            for number in range(_SAMPLES):
                await asyncio.sleep(max(0.0, began + (number + 1) * seconds / _SAMPLES - time.perf_counter()))
                samples.append(Sample(time.perf_counter() - began, rollouts.ended, private_bytes(server.pid)))
                told(f"{rollouts.ended:,} rollouts, {samples[-1].resident / 1024**2:.0f} MB")
                figures["samples"] = [[each.seconds, each.rollouts, each.resident] for each in samples]
    grown = growth(samples)
    figures.update(
        growth_bytes_per_rollout=[grown.value, grown.low, grown.high],
        flat=flat(grown),
        bound=BOUND,
        failed=rollouts.failed,
        kinds=rollouts.kinds,
    )


def verdict(figures: dict[str, Any]) -> str:
    """Says in words what the figures mean."""
    value, low, high = figures["growth_bytes_per_rollout"]
    seconds, rollouts, resident = figures["samples"][-1]
    what = "stays flat" if figures["flat"] else "GROWS"
    return (
        f"Memory {what}: {value:,.0f} bytes a rollout ({low:,.0f} to {high:,.0f}) over {rollouts:,} rollouts in"
        f" {seconds:.0f} s, {figures['failed']} of them failed; {resident / 1024**2:.0f} MB at the end."
    )


def main() -> int:
    """Soaks a server, prints the verdict, and writes the file that is named. Returns 1 where memory grows."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.soak",
        description="Lets sessions come and go over gRPC, WebSocket and HTTP, some cancelled and some broken off, and "
        "tells whether the server's memory stays flat (Linux). Ends after the time that is set.",
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"how long, 5 to 86400 [{SECONDS:g}]")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    given = parser.parse_args()
    if not 5 <= given.seconds <= 86_400:
        parser.error("--seconds: expected 5 to 86400")
    stoppable()
    with measuring("soak", typed("soak"), given.out) as measured, bar(_SAMPLES, "starting") as told:
        uvloop.run(_soak(given.seconds, measured.figures, told))
    screen().print(verdict(measured.figures), highlight=False)
    print(f"load {measured.load_before:.1f} before, {measured.load_after:.1f} after, on {os.cpu_count()} cores")
    return 0 if measured.figures["flat"] else 1


if __name__ == "__main__":
    sys.exit(main())
