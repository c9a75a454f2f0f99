"""Whether a door keeps up with a fast model: how late each token of one response comes, beside the engine's own error.

One response at 1,000 tokens a second, and one at 4,000 in bursts of eight, over each door and over none: the driver
`null`, which has the same engine and core in its own process, so that what its tokens are late is the engine's timer's
error and the core's. Server and client are processes of their own and nothing lies between them. In each repetition,
with a server of its own, the drivers take turns. Run with `python -m turnwire.bench.pace --out FILE`.

Above it: people and the suites. Below it: `campaign`, `stand`, the drivers, and `metrics.pace`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from turnwire.bench.campaign import Stopped, order, play
from turnwire.bench.drivers.records import RunRecord
from turnwire.bench.drivers.registry import DRIVERS
from turnwire.bench.measured import Measured, measuring
from turnwire.bench.metrics.pace import Pace, pace, promised, token_arrivals
from turnwire.bench.metrics.statistics import median, paired_bootstrap
from turnwire.bench.scenario.compiling import Rollout, compile_rollout
from turnwire.bench.scenario.reading import load, read
from turnwire.bench.scenario.values import Scenario
from turnwire.bench.stand import standing
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.engine.scripted.script import compile_turn

ENGINE: Final = "null"
"""Whom the engine's own error is taken from."""
DOORS: Final = (ENGINE, "grpc-append", "native-append", "ws-append", "http-chained")

Shape = tuple[float, int]
"""Tokens per second, and how many come at once."""

_BURST: Final = load("burst").speed
SHAPES: Final[tuple[Shape, ...]] = ((1000.0, 1), (_BURST.tokens_per_second, _BURST.burst))
"""Sustained, and in bursts as the scenario `burst` has them."""


def scenario(shape: Shape, tokens: int) -> Scenario:
    """Returns two turns: a short one, with which connections are warmed up, and the one that is looked at."""
    speed, burst = shape
    source = f"""
        [speed]
        ttft = "50ms"
        tokens_per_second = {speed:g}
        burst = {burst}
        [limits]
        max_seconds = {math.ceil(10 * tokens / speed) + 30}
        [[turn]]
        text = 20
        [[turn]]
        text = {tokens}
    """
    return read(source, "pace.toml")


def token_ends(rollout: Rollout) -> list[int]:
    """Returns of each token of the last turn how many characters its text has up to there."""
    ends: list[int] = []
    there = 0
    for chunk in compile_turn(load_scenario(rollout.script, "the scenario, compiled").turns[-1]).chunks:
        there += len(getattr(chunk, "text", ""))
        ends += [there] * chunk.tokens
    return ends


def observed(record: RunRecord, rollout: Rollout, shape: Shape) -> Pace:
    """Returns how the last turn of a run arrived.

    Raises:
        Stopped: The run did not come to its end.
    """
    failures = [record.failure, *(each.failure for each in record.rollouts)]
    if found := next((failure for failure in failures if failure), ""):
        raise Stopped(f"{record.driver}: {found}")
    [played] = record.rollouts
    if not played.pieces:
        raise Stopped(f"{record.driver}: this driver does not tell when each piece of text came")
    arrivals = token_arrivals(played.pieces[-1], token_ends(rollout))
    return pace(arrivals, promised(len(arrivals), *shape))


def line(driver: str, shape: Shape, tokens: int, door: Sequence[Pace], alone: Sequence[Pace]) -> dict[str, Any]:
    """Returns the figures of a driver, medians over its repetitions; `alone` is the engine's in the same ones."""
    net = paired_bootstrap(
        [(one.delay_p99, other.delay_p99) for one, other in zip(door, alone, strict=True)],
        lambda one, other: one - other,
    )
    figures: dict[str, Any] = {
        "driver": driver,
        "tokens_per_second": shape[0],
        "burst": shape[1],
        "tokens": tokens,
        "repetitions": len(door),
        "rate": median([each.rate for each in door]),
        "delay_p50_ms": median([each.delay_p50 for each in door]) * 1000,
        "delay_p99_ms": median([each.delay_p99 for each in door]) * 1000,
        "engine_p99_ms": median([each.delay_p99 for each in alone]) * 1000,
        "net_p99_ms": net.value * 1000,
    }
    if len(door) > 1:
        figures |= {"net_p99_low_ms": net.low * 1000, "net_p99_high_ms": net.high * 1000}
    return figures


def measure(
    measured: Measured, drivers: Sequence[str], repeat: int, tokens: int, told: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measures, and keeps in `measured` what each whole repetition has brought; returns the lines.

    Raises:
        Stopped: A run did not come to its end.
        RuntimeError: A server did not start.
    """
    scenarios = {shape: scenario(shape, tokens) for shape in SHAPES}
    rollouts = {shape: compile_rollout(each) for shape, each in scenarios.items()}
    found: dict[tuple[str, Shape], list[Pace]] = {(name, shape): [] for shape in SHAPES for name in drivers}
    lines: list[dict[str, Any]] = []
    for repetition in range(repeat):
        for shape, played in scenarios.items():
            with standing(rollouts[shape].script, played.network, bridge=False) as stand:
                at = stand.server.addresses
                for name in order(drivers, repetition):
                    job = replace(stand.job(name, played, repetition), grpc=at["grpc"], http=at["http"], pieces=True)
                    found[name, shape].append(observed(play(job), rollouts[shape], shape))
                    told(f"{name} at {shape[0]:g} tokens/s, repetition {repetition + 1}")
        lines = [line(name, shape, tokens, each, found[ENGINE, shape]) for (name, shape), each in found.items()]
        measured.figures["lines"] = lines
    return lines


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Returns the lines for people."""
    made = Table("driver", "tokens/s", "at once", "rate", "delay p50, ms", "p99, ms", "of it the engine's", "net, ms")
    for each in lines:
        net = f"{each['net_p99_ms']:.2f}"
        if "net_p99_low_ms" in each:
            net += f" ({each['net_p99_low_ms']:.2f} to {each['net_p99_high_ms']:.2f})"
        made.add_row(
            each["driver"],
            f"{each['tokens_per_second']:g}",
            str(each["burst"]),
            f"{each['rate']:.4f}",
            f"{each['delay_p50_ms']:.2f}",
            f"{each['delay_p99_ms']:.2f}",
            f"{each['engine_p99_ms']:.2f}",
            net,
        )
    return made


def main() -> int:
    """Measures and prints. Returns 0, or 1 where a run did not come to its end."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.pace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="result file, JSON")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, each with servers of its own [3]")
    parser.add_argument("--tokens", type=int, default=4000, help="of each response [4000]")
    parser.add_argument("--drivers", default=",".join(DOORS), help=f"names with commas between [{','.join(DOORS)}]")
    given = parser.parse_args()
    drivers = list(dict.fromkeys((ENGINE, *given.drivers.split(","))))
    if unknown := [name for name in drivers if name not in DRIVERS]:
        parser.error(f"--drivers: no such driver: {', '.join(unknown)}; there are {', '.join(DRIVERS)}")
    if not 1 <= given.repeat <= 1000:
        parser.error("--repeat: expected a number from 1 to 1000")
    if not 100 <= given.tokens <= 100_000:
        parser.error("--tokens: expected a number from 100 to 100000")
    console = Console(width=120)
    command = " ".join(["python -m turnwire.bench.pace", *sys.argv[1:]])
    try:
        with (
            Progress(console=console, transient=True) as progress,
            measuring("pace", command, given.out) as measured,
        ):
            task = progress.add_task("starting", total=given.repeat * len(SHAPES) * len(drivers))
            lines = measure(
                measured,
                drivers,
                given.repeat,
                given.tokens,
                lambda what: progress.update(task, advance=1, description=what),
            )
    except (Stopped, RuntimeError) as error:
        console.print(f"[red]The measurement did not come to its end:[/] {error}", highlight=False)
        return 1
    console.print(table(lines))
    console.print(f"load average {measured.load_before:.1f} before, {measured.load_after:.1f} after")
    return 0


if __name__ == "__main__":
    sys.exit(main())
