"""From samples to the lines of the report. Nothing here measures anything.

Above it: the command. Below it: `metrics.statistics`. What a gateway adds is its time less the upstream's own for the
same conversation in the same form and the same repetition, so that what slowed down both is no difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from turnwire.bench.metrics.statistics import Interval, bootstrap, median, paired_bootstrap
from turnwire.bench.peers.port import DIRECT, Cell

OURS: Final = "turnwire"


@dataclass(slots=True)
class Block:
    """The turns of one cell in one repetition."""

    cell: Cell
    repetition: int
    ttft: list[float] = field(default_factory=list[float])
    """Seconds, of turns that went well; as are the others."""
    total: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])
    """Why turns failed."""
    memory: int = 0
    """Resident bytes behind the last turn."""
    form: str = ""
    """How the upstream was asked."""


def _ms(figure: Interval) -> list[float]:
    return [round(value * 1000, 4) for value in (figure.value, figure.low, figure.high)]


def _pairs(blocks: Sequence[Block], others: Mapping[int, Block]) -> list[tuple[float, float]]:
    """Returns the medians of two cells, for repetitions in which both have some."""
    return [
        (median(block.ttft), median(others[block.repetition].ttft))
        for block in blocks
        if block.ttft and block.repetition in others and others[block.repetition].ttft
    ]


def _by_cell(blocks: Iterable[Block]) -> dict[Cell, list[Block]]:
    found: dict[Cell, list[Block]] = defaultdict(list)
    for block in blocks:
        found[block.cell].append(block)
    return found


def _times(blocks: Sequence[Block]) -> dict[str, Any]:
    cell = blocks[0].cell
    failures = [each for block in blocks for each in block.failures]
    line: dict[str, Any] = {
        "gateway": cell.gateway,
        "mode": cell.mode,
        "transport": cell.transport,
        "history": cell.history,
        "requests": sum(len(block.ttft) for block in blocks) + len(failures),
        "failed": len(failures),
    }
    if failures:
        line["failures"] = sorted(set(failures))
    if any(block.ttft for block in blocks):
        line["ttft_ms"] = _ms(bootstrap([block.ttft for block in blocks]))
        line["total_ms"] = _ms(bootstrap([block.total for block in blocks]))
    return line


def floors(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Returns a line for each form and history of the upstream without a gateway."""
    return [_times(own) for cell, own in sorted(_by_cell(blocks).items()) if cell.mode == "direct"]


def lines(blocks: Iterable[Block], versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns a line for each gateway, mode, transport and history, those of a gateway in the order of `versions`.

    A line whose turns all failed has no times.
    """
    cells = _by_cell(blocks)
    order = {name: n for n, name in enumerate(versions)}
    made: list[dict[str, Any]] = []
    for cell in sorted((each for each in cells if each.mode != "direct"), key=lambda each: (order[each.gateway], each)):
        own = cells[cell]
        line = _times(own) | {"version": versions[cell.gateway]}
        form = next((block.form for block in own if block.form), "")
        if form:
            line["asks"] = form
        spent = [each for block in own for each in block.cpu]
        if spent:
            line["cpu_ms"] = round(sum(spent) / len(spent) * 1000, 4)
        line["memory_mb"] = round(max(block.memory for block in own) / 1e6, 1)
        floor = cells.get(Cell(DIRECT[form], "direct", "sse", cell.history), []) if form else []
        if pairs := _pairs(own, {block.repetition: block for block in floor}):
            line["added_ttft_ms"] = _ms(paired_bootstrap(pairs, lambda mine, least: mine - least))
        made.append(line)
    return made


def growths(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Returns, for each gateway, mode and transport, by how much more it adds to the largest history than to the
    smallest: its own growth, since the upstream's is taken off."""
    cells = _by_cell(blocks)
    added: dict[tuple[str, str, str], dict[int, dict[int, float]]] = defaultdict(dict)
    for cell, own in cells.items():
        form = next((block.form for block in own if block.form), "")
        if cell.mode == "direct" or not form:
            continue
        floor = {b.repetition: b for b in cells.get(Cell(DIRECT[form], "direct", "sse", cell.history), [])}
        added[cell.gateway, cell.mode, cell.transport][cell.history] = {
            block.repetition: median(block.ttft) - median(floor[block.repetition].ttft)
            for block in own
            if block.ttft and block.repetition in floor and floor[block.repetition].ttft
        }
    made: list[dict[str, Any]] = []
    for (gateway, mode, transport), by_size in added.items():
        least, most = min(by_size), max(by_size)
        pairs = [(by_size[most][n], by_size[least][n]) for n in by_size[least] if n in by_size[most]]
        if least < most and pairs:
            grown = paired_bootstrap(pairs, lambda large, small: large - small)
            made.append(
                {"gateway": gateway, "mode": mode, "transport": transport, "from": least, "to": most}
                | {"growth_ms": _ms(grown)}
            )
    return made


def ahead(made: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compares our chained turns with the quickest other gateway's, size by size and over every transport of ours.

    `ahead` is whether the interval of what we add lies wholly below the other's; `level` where the two overlap.
    """
    found: list[dict[str, Any]] = []
    chained = [line for line in made if line["mode"] == "chained" and "added_ttft_ms" in line]
    for line in chained:
        others = [each for each in chained if each["gateway"] != OURS and each["history"] == line["history"]]
        if line["gateway"] != OURS or not others:
            continue
        best = min(others, key=lambda each: each["added_ttft_ms"][0])
        mine, theirs = line["added_ttft_ms"], best["added_ttft_ms"]
        verdict = "ahead" if mine[2] < theirs[1] else "behind" if theirs[2] < mine[1] else "level"
        found.append(
            {"transport": line["transport"], "history": line["history"], "added_ttft_ms": mine, "verdict": verdict}
            | {"best": f"{best['gateway']} {best['transport']}", "best_added_ttft_ms": theirs}
        )
    return found
