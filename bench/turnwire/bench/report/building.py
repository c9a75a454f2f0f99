"""Puts the report together: the short answer, the budgets, the map, then a section for each kind of measurement.

Above it: the command, and the suites. Below it: the sections. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.bench.budgets.judging import budgets
from turnwire.bench.folder import Folder
from turnwire.bench.map.section import map_section
from turnwire.bench.report import answer
from turnwire.bench.report.document import Block, Document, Section, Table, Words
from turnwire.bench.report.figures import Doors, Measurements, measurements
from turnwire.bench.report.playing import Played, playing
from turnwire.bench.report.sections import (
    ablation,
    budget,
    endtoend,
    memory,
    overhead,
    pace,
    peers,
    runs,
    stages,
    tokens,
    turns,
)
from turnwire.bench.report.sections.missing import not_measured

TITLE = "gRPC, WebSocket or HTTP for an agent API: what was measured"


def build(folder: Folder) -> Document:
    """Returns the report of a folder. The same folder gives the same report."""
    rollouts, unread = playing(folder)
    rollouts.sort(key=_place)
    # Beside idle sessions it is memory that is looked at, and not time.
    talking = [played for played in rollouts if played.scenario.idle is None]
    measured = measurements(folder)
    return Document(
        TITLE,
        [
            _answer(talking, measured),
            budget.section(budgets(folder)),
            map_section([file.content for file in folder.rollouts]),
            endtoend.section(talking),
            overhead.section(rollouts),
            stages.section(rollouts),
            tokens.section(measured),
            turns.section(measured),
            pace.section(measured),
            ablation.section(measured),
            memory.section(measured, rollouts),
            peers.section(measured),
            runs.section(rollouts, [*folder.broken, *unread, *measured.broken], measured.left_out),
        ],
    )


def _place(played: Played) -> tuple[str, int, float, float, str]:
    scenario = played.scenario
    return scenario.name, scenario.request.history, scenario.speed.tokens_per_second, scenario.network.rtt, played.file


def _answer(rollouts: Sequence[Played], measured: Measurements) -> Section:
    doors = measured.of(Doors)
    said = [
        *answer.played_as_shipped(rollouts),
        *answer.tally(rollouts),
        *answer.losses(rollouts),
        *answer.shape(rollouts),
    ]
    rows = [] if doors is None else answer.per_token(tokens.chosen(doors.figures.costs, parsed=True))
    blocks: list[Block] = []
    if said:
        blocks.append(Words("\n".join(f"- {each}" for each in said)))
    if rows:
        words = (
            "What a streamed token costs over gRPC, as a multiple of what it costs over the other: below 1 gRPC wins."
        )
        blocks += [Words(words), Table(rows[0], rows[1:])]
    anchor, title = "answer", "The short answer"
    return Section(anchor, title, blocks) if blocks else not_measured(anchor, title, "make bench")
