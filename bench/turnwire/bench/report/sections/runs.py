"""Every file of rollouts with all its figures, what has to be said beside them, and how all was measured.

Above it: `building`. Below it: rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwire.bench.drivers.registry import DRIVERS
from turnwire.bench.folder import Broken
from turnwire.bench.measured import COMPLETE
from turnwire.bench.report.document import Block, Folded, Made, Section, Table, Words
from turnwire.bench.report.playing import BASELINE, Played
from turnwire.bench.report.wording import interval, number, percent, percents, source_of_runs
from turnwire.bench.summary import Headline

HEAD = (
    "driver",
    "end to end, s",
    "above floor",
    f"faster than {BASELINE}",
    "TTFT, ms",
    "turn overhead, ms",
    "overhead p99, ms",
    "server CPU, µs/token",
    "client CPU, µs/token",
    "server CPU, ms/turn",
    "KB up/turn",
    "KB down/turn",
    "server MB",
    "failed",
)


def section(rollouts: Sequence[Played], broken: Sequence[Broken], left_out: Sequence[Broken]) -> Section:
    """Returns the appendix."""
    blocks: list[Block] = [Words(_METHOD)]
    known = dict.fromkeys(line.driver for played in rollouts for line in played.lines)
    titles = [(name, DRIVERS[name].title) for name in known if name in DRIVERS]
    if titles:
        blocks.append(Table(("driver", "what it is"), titles, words=True))
    if broken:
        blocks += [
            Words("### Files that could not be read"),
            Table(("file", "reason"), [(each.name, each.reason) for each in broken], words=True),
        ]
    if left_out:
        blocks += [
            Words("### Files that were left out"),
            Table(("file", "reason"), [(each.name, each.reason) for each in left_out], words=True),
        ]
    if rollouts:
        blocks.append(Words("### All rollouts"))
    for played in rollouts:
        inside: list[Block] = []
        if played.lines:
            inside.append(Table(HEAD, [_row(line) for line in played.lines]))
        if said := [*_state(played), *played.remarks]:
            inside.append(Words("\n".join(f"- {each}" for each in said)))
        blocks.append(Folded(f"{played.file}: {played.setting}", [*inside, Made([source_of_runs(played)])]))
    return Section("appendix", "How it was measured, and all figures", blocks)


def _state(played: Played) -> list[str]:
    failed = [run for run in played.results.runs if run.record.failure]
    said = [f"{run.record.driver}, repetition {run.repetition + 1}: {run.record.failure}" for run in failed]
    said += [f"{driver} was not measured: {reason}" for driver, reason in played.results.skipped.items()]
    if played.results.ended != COMPLETE:
        said.append(f"The measurement did not come to its end: {played.results.ended}")
    return said


def _row(line: Headline) -> tuple[str, ...]:
    return (
        line.driver,
        interval(line.end_to_end),
        "" if math.isinf(line.above_floor) else percent(line.above_floor),
        "" if line.faster is None else percents(line.faster),
        number(line.ttft.value * 1000),
        interval(line.overhead, 1000),
        number(line.overhead_p99 * 1000),
        number(line.server_per_token * 1e6),
        number(line.client_per_token * 1e6),
        number(line.server_per_turn * 1000),
        number(line.up_per_turn / 1024),
        number(line.down_per_turn / 1024),
        number(line.server_memory / 1024**2),
        f"{line.failed}/{line.rollouts}",
    )


_METHOD = """\
- The model is simulated, at a set speed; the server, its engine and the scenario are the same for every driver, and
  every driver was verified first: same text, same tool calls.
- Drivers take turns within a repetition, each repetition with a server of its own. Intervals are of 95%, by bootstrap
  over whole repetitions; comparisons are paired by repetition.
- Client, network and server share one machine: compare within a run, not between machines.
- The network is a user-space proxy that delays and limits bytes without reordering them. Unless a setting says *slow
  start*, it shows no TCP slow start over a long path, which would slow down whoever sends more, or connects anew.
- Drivers are written in Python unless their name says otherwise. A Python gRPC client pays more for each message than
  those of other languages do.
"""
