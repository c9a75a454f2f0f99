"""The figures of a result file that can be compared, each by a name that stays the same from version to version. Pure.

Above it: `pairing`. Below it: the shapes of result files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from turnwire.bench.compare.change import Figure
from turnwire.bench.doors_cost import Cost
from turnwire.bench.drivers.records import RunRecord
from turnwire.bench.intervals import taken
from turnwire.bench.measured import Measured
from turnwire.bench.metrics.statistics import Interval, median
from turnwire.bench.report.figures import SHAPES, Ablation, Doors, Memory, Pace, Peers, Soak, Turns
from turnwire.bench.results import Results


def of_rollouts(results: Results) -> list[Figure]:
    """Returns the figures of each driver that has runs that ended well."""
    return [figure for driver in results.options.drivers for figure in _driver(driver, results.of(driver))]


_PER_RUN: Final[tuple[tuple[str, str, Callable[[RunRecord], float]], ...]] = (
    ("end to end", "s", lambda run: median([each.took for each in run.rollouts if not each.failure])),
    ("TTFT", "ms", lambda run: median([turn.ttft * 1e3 for each in run.rollouts for turn in each.turns])),
    (
        "overhead of a turn",
        "ms",
        lambda run: median([turn.overhead * 1e3 for each in run.rollouts for turn in each.turns]),
    ),
    ("server CPU a turn", "ms", lambda run: (run.cpu["server"] + run.cpu.get("bridge", 0.0)) / run.turns * 1e3),
    ("client CPU a token", "µs", lambda run: run.cpu["client"] / run.tokens * 1e6),
    ("bytes up a turn", "B", lambda run: run.bytes_up / run.turns),
    ("bytes down a turn", "B", lambda run: run.bytes_down / run.turns),
    ("server memory", "MB", lambda run: run.memory["server"] / 1024**2),
)


def _driver(driver: str, runs: Sequence[RunRecord]) -> Iterator[Figure]:
    whole = [run for run in runs if run.turns and run.tokens and any(not each.failure for each in run.rollouts)]
    if not whole:
        return
    for name, unit, figure in _PER_RUN:
        values = tuple(figure(run) for run in whole)
        yield Figure(f"{driver}: {name}", unit, values, exact=unit == "B")


def of_measured(measured: Measured) -> list[Figure]:
    """Returns the figures of a measurement.

    Raises:
        ValueError: They have another shape than those of its kind.
    """
    shape = SHAPES.get(measured.kind)
    if shape is None:
        return []
    try:
        figures: object = msgspec.convert(measured.figures, type=shape, strict=False)
        return list(_measured(figures, measured.figures))
    except msgspec.ValidationError as error:
        msg = f"figures of kind {measured.kind}: {error}"
        raise ValueError(msg) from error


def _measured(figures: object, raw: Mapping[str, Any]) -> Iterator[Figure]:
    match figures:
        case Turns():
            yield from _turns(figures)
        case Doors():
            rounds = raw.get("rounds")
            yield from _doors([figures.costs] if rounds is None else msgspec.convert(rounds, list[list[Cost]]))
        case Pace():
            yield from _pace(figures)
        case Memory():
            yield from _memory(figures)
        case Ablation():
            yield from _ablation(figures)
        case Peers():
            yield from _peers(figures)
        case Soak():
            yield Figure("growth a rollout", "B", interval=taken(figures.growth_bytes_per_rollout))
        case _:
            return


def _turns(figures: Turns) -> Iterator[Figure]:
    for words, lines in (("items", figures.items), ("harmony", figures.harmony)):
        for kilobytes, line in lines.items():
            interval = Interval(line.median_us, line.low_us, line.high_us)
            yield Figure(f"turn behind {kilobytes} KB, {words}", "µs", interval=interval)


def _doors(rounds: Sequence[Sequence[Cost]]) -> Iterator[Figure]:
    grouped: dict[tuple[str, int, bool], list[Cost]] = {}
    for costs in rounds:
        for cost in costs:
            grouped.setdefault((cost.door, cost.lanes, cost.parsed), []).append(cost)
    for (door, lanes, parsed), costs in grouped.items():
        name = f"{door}, {lanes} lanes{', parsed' if parsed else ''}"
        yield Figure(f"{name}: server CPU a token", "µs", tuple(cost.server_us for cost in costs))
        if costs[0].client_us:
            yield Figure(f"{name}: client CPU a token", "µs", tuple(cost.client_us for cost in costs))
            yield Figure(f"{name}: bytes a token", "B", tuple(cost.bytes_down for cost in costs), exact=True)


def _pace(figures: Pace) -> Iterator[Figure]:
    for line in figures.lines:
        name = f"{line.driver} at {line.tokens_per_second:g} tokens/s by {line.burst}"
        yield Figure(f"{name}: rate", "", (line.rate,), more_is_better=True)
        yield Figure(f"{name}: delay at p99", "ms", (line.delay_p99_ms,))


def _memory(figures: Memory) -> Iterator[Figure]:
    idle = figures.idle
    sizes = {
        "idle session on a shared connection": idle.shared_connection,
        "idle session with its own connection": idle.own_connection,
        "a session's own objects": idle.objects,
    }
    sizes |= {f"{name}: beside the items": kept.beside for name, kept in figures.conversations.items()}
    sizes |= {f"{name}: process": kept.process for name, kept in figures.conversations.items()}
    for name, size in sizes.items():
        yield Figure(name, "B", (size,), exact=True)


def _ablation(figures: Ablation) -> Iterator[Figure]:
    for figure in figures.figures:
        for name, (first, whole) in zip(("everything off", *figures.order), figure.steps, strict=True):
            yield Figure(f"{figure.model}, + {name}: TTFT", "ms", (first,))
            yield Figure(f"{figure.model}, + {name}: turn", "ms", (whole,))


def _peers(figures: Peers) -> Iterator[Figure]:
    for line in figures.lines:
        name = f"{line.gateway}, {line.mode} over {line.transport}, {line.history:g} bytes"
        for what, spread in (("TTFT", line.ttft_ms), ("total", line.total_ms), ("added TTFT", line.added_ttft_ms)):
            yield Figure(f"{name}: {what}", "ms", interval=taken(spread))
        if line.cpu_ms is not None:
            yield Figure(f"{name}: CPU a request", "ms", (line.cpu_ms,))
