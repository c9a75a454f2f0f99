"""Memory: idle sessions, long conversations, and whether it stays flat (P7).

Above it: `building`. Below it: measurements of kinds `memory` and `soak`, rollouts beside idle sessions, and the plots.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.bench.intervals import taken
from turnwire.bench.report.document import Block, Made, Picture, Section, Table, Words
from turnwire.bench.report.figures import Measurements, Memory, Soak
from turnwire.bench.report.playing import Played
from turnwire.bench.report.plots import bars
from turnwire.bench.report.plots.growth import draw as draw_growth
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import interval, number, source, source_of_runs

ANCHOR, TITLE = "memory", "Memory"
_KB, _MB = 1024, 1024**2
_MEMORY = "python -m turnwire.bench.memory --out bench-results/memory.json"
_IDLE = "python -m turnwire.bench.run idle --out bench-results/idle.json"
_SOAK = "python -m turnwire.bench.soak --out bench-results/soak.json"


def section(measured: Measurements, rollouts: Sequence[Played]) -> Section:
    """Returns the section."""
    quiet = [played for played in rollouts if any(line.idle is not None for line in played.lines)]
    memory, soak = measured.of(Memory), measured.of(Soak)
    if memory is None and soak is None and not quiet:
        return not_measured(ANCHOR, TITLE, f"{_MEMORY}`, `{_IDLE}` and `{_SOAK}")
    return Section(ANCHOR, TITLE, [*_kept(measured), *_idle(quiet), *_soak(measured)])


def _kept(measured: Measurements) -> list[Block]:
    read = measured.of(Memory)
    if read is None:
        return [Words(f"### Sessions and conversations\n\nNot measured: run `{_MEMORY}`.")]
    idle, kept = read.figures.idle, read.figures.conversations
    sessions = (
        ("a connection each", idle.own_connection),
        ("one connection for all", idle.shared_connection),
        ("of it, own objects", idle.objects),
    )
    parts = (("a copy of the items", "wait"), ("kept beside it", "grpc"))
    panels = [
        bars.Panel(
            "An idle session",
            "KB for each",
            [bars.Bar(name, [value / _KB], f"{number(value / _KB)} KB") for name, value in sessions],
            limit=(50.0, "budget: 50 KB"),
        ),
        bars.Panel(
            "A conversation of 100,000 tokens",
            "MB for each, counted by object",
            [
                bars.Bar(
                    name, [each.items / _MB, each.beside / _MB], f"{number(each.beside / _MB)} MB beside the items"
                )
                for name, each in kept.items()
            ],
            parts,
        ),
    ]
    title = "Memory of an idle session and of a long conversation"
    rows = [
        (name, *(number(value / _MB) for value in (each.items, each.counted, each.beside, each.process)))
        for name, each in kept.items()
    ]
    return [
        Words("### Sessions and conversations"),
        Picture("memory-kept", bars.draw("memory-kept", title, panels), title),
        Table(("idle session", "KB"), [(name, number(value / _KB)) for name, value in sessions]),
        Table(("100,000 tokens, MB", "items", "counted", "beside the items", "process grows by"), rows),
        Made([source(read.found)]),
    ]


def _idle(rollouts: Sequence[Played]) -> list[Block]:
    if not rollouts:
        return [Words(f"### Idle sessions by driver\n\nNot measured: run `{_IDLE}`.")]
    blocks: list[Block] = []
    for number_, played in enumerate(rollouts):
        count = played.scenario.idle.sessions if played.scenario.idle else 0
        idle = [(line.driver, line.idle / _KB) for line in played.lines if line.idle is not None]
        figures = [bars.Bar(driver, [kb], f"{number(kb)} KB") for driver, kb in idle]
        name, title = f"memory-idle-{number_}", f"Server's memory for each of {count:,} idle sessions by driver"
        panel = bars.Panel("", "KB for each", figures, limit=(50.0, "budget: 50 KB"))
        blocks += [
            Words(f"### {count:,} idle sessions by driver"),
            Picture(name, bars.draw(name, title, [panel]), title),
            Table(("driver", "KB for each idle session"), [(driver, number(kb)) for driver, kb in idle]),
            Made([source_of_runs(played)]),
        ]
    return blocks


def _soak(measured: Measurements) -> list[Block]:
    read = measured.of(Soak)
    if read is None:
        return [Words(f"### Soak\n\nNot measured: run `{_SOAK}`.")]
    figures = read.figures
    growth = taken(figures.growth_bytes_per_rollout)
    title = "Server's resident memory over many rollouts"
    return [
        Words(
            f"### Soak\n\nAfter {figures.samples[-1][1]:,.0f} rollouts in {figures.samples[-1][0]:,.0f} s memory is "
            f"{'flat' if figures.flat else '**not flat**'}: {interval(growth)} bytes more for each rollout."
        ),
        Picture("memory-soak", draw_growth("memory-soak", title, figures.samples), title),
        Made([source(read.found)]),
    ]
