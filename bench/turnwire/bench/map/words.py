"""The map in sentences and tables, all computed from its cells; where gRPC loses stands in the same form as the rest.

Above it: `section`. Below it: the cells and the checks. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from turnwire.bench.map.cells import BASELINE, OURS, STEPS, Cell, Judged, Verdict
from turnwire.bench.map.checks import Check
from turnwire.bench.map.names import WORDS, signed, size, speed_words
from turnwire.bench.map.workload import Profile
from turnwire.bench.report.document import Row, Table

_STEADY: Final = 0.02
"""A prediction that is off by more than this is told in the sentence, too."""


def assumptions(profile: Profile) -> str:
    """Returns what the cells' rollouts are like."""
    return (
        f"A rollout of the map: {size(profile.settings)} of instructions and tools, {profile.tokens} tokens a turn, "
        f"{profile.ttft * 1000:g} ms to the first one, tools that take {profile.pause * 1000:.0f} ms and say "
        f"{size(profile.growth)} after each turn; one agent. A longer time to the first token or slower tools make "
        "every gain smaller, fewer tokens or quicker tools make it larger; `--tokens`, `--ttft`, `--tool-time`, "
        "`--growth` and `--settings` of the map's command change them."
    )


def tally(cells: Sequence[Cell]) -> str:
    """Says in how many cells nothing gains, and what the least change is in the others."""
    counts = [f"{words} in {found}" for n, (words, _) in enumerate(STEPS) if (found := _count(cells, n))]
    unsure = sum(each.unsure for each in cells)
    none = sum(each.step is None and not each.unsure for each in cells)
    known = {name for each in cells for name in each.over_baseline}
    unknown = [words for words, drivers in STEPS if known.isdisjoint(drivers)]
    missing = f" Not measured, so a lesser change may do: {', '.join(unknown)}." if unknown else ""
    suffices = (
        f"The least change that does for certain: {', '.join(counts)}."
        if counts
        else "No change gains 5% for certain anywhere."
    )
    return (
        f"Against {WORDS[BASELINE]}: in **{none}** of {len(cells)} cells nothing gains 5% end to end, in {unsure} it "
        f"is unsure. {suffices}{missing}"
    )


def _count(cells: Sequence[Cell], step: int) -> int:
    return sum(each.step == step for each in cells)


def by_history(cells: Sequence[Cell]) -> list[str]:
    """Says for each history up to which speed nothing matters, and from which on something does."""
    said: list[str] = []
    for history in sorted({each.place.history for each in cells}):
        here = [each for each in cells if each.place.history == history]
        said.append(f"{size(history)} of history: {_quiet(here)}; {_gaining(here)}.")
    return said


def _quiet(cells: Sequence[Cell]) -> str:
    speeds = sorted({each.place.speed for each in cells})
    loud = [each.place.speed for each in cells if each.step is not None or each.unsure]
    quiet = [speed for speed in speeds if speed < min(loud, default=math.inf)]
    if not quiet:
        return f"even at {speed_words(speeds[0])} tokens/s something gains 5%, or may"
    if len(quiet) == len(speeds):
        return f"nothing matters up to {speed_words(speeds[-1])} tokens/s, the fastest of the map"
    return f"up to {speed_words(quiet[-1])} tokens/s nothing matters"


def _gaining(cells: Sequence[Cell]) -> str:
    sure = [each for each in cells if each.step is not None]
    if not sure:
        unsure = sum(each.unsure for each in cells)
        return f"whether anything gains is unsure in {unsure} of {len(cells)} cells" if unsure else "and nothing gains"
    slowest = min(each.place.speed for each in sure)
    most = max(sure, key=lambda each: each.over_baseline[each.best].gain.value)
    gain = most.over_baseline[most.best].gain.value
    return (
        f"from {speed_words(slowest)} tokens/s on something gains, in {len(sure)} of {len(cells)} cells; most gains "
        f"{WORDS[most.best]}, {signed(gain)} {_where(most)}"
    )


def _where(cell: Cell) -> str:
    place = cell.place
    return (
        f"at {speed_words(place.speed)} tokens/s, {place.rtt * 1000:g} ms, {size(place.history)}, {place.turns} turns"
    )


def compared(cells: Sequence[Cell]) -> Table:
    """Returns how append over gRPC fares against each of the others: in how many cells, and from where to where."""
    rows: list[Row] = []
    for other in _others(cells):
        judged = [(each.of_ours[other], each) for each in cells]
        counts = [str(sum(each.verdict is verdict for each, _ in judged)) for verdict in Verdict]
        worst, best = (pick(judged, key=lambda pair: pair[0].gain.value) for pick in (min, max))
        slower = str(sum(each.slower for each, _ in judged))
        rows.append(
            (WORDS[other], *counts, slower, *(f"{_figure(each)} {_where(cell)}" for each, cell in (worst, best)))
        )
    head = (
        "append over gRPC against",
        *(_HEADS[verdict] for verdict in Verdict),
        "slower for certain",
        "worst",
        "best",
    )
    return Table(head, rows, words=True)


_HEADS: Final = {
    Verdict.GAINS: "gains 5%",
    Verdict.NEITHER: "neither",
    Verdict.LOSES: "loses 5%",
    Verdict.UNSURE: "unsure",
}


def losing(cells: Sequence[Cell]) -> list[str]:
    """Says where append over gRPC loses 5%, and where it is slower for certain by less."""
    said: list[str] = []
    for other in _others(cells):
        lost = [each for each in cells if each.of_ours[other].verdict is Verdict.LOSES]
        slower = [each for each in cells if each.of_ours[other].slower and each not in lost]
        if lost:
            worst = min(lost, key=lambda each: each.of_ours[other].gain.value)
            said.append(
                f"gRPC **loses more than 5%** against {WORDS[other]} in {_cells(len(lost))}, most "
                f"{_figure(worst.of_ours[other])} {_where(worst)}."
            )
        if slower:
            worst = min(slower, key=lambda each: each.of_ours[other].gain.value)
            said.append(
                f"gRPC **is slower for certain**, by less than 5% or not surely by more, than {WORDS[other]} in "
                f"{_cells(len(slower))}, most {_figure(worst.of_ours[other])} {_where(worst)}."
            )
    if not any(each.of_ours for each in cells):
        return [f"Whether gRPC loses is not known: {OURS} was not measured where the fit needs it."]
    return said or ["gRPC is slower for certain in no cell, against none of them."]


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def _others(cells: Sequence[Cell]) -> list[str]:
    return list(cells[0].of_ours) if cells else []


def figures(cells: Sequence[Cell], turns: int) -> Table:
    """Returns the most that anything gains over stateless HTTP with its interval, for one number of turns."""
    here = [each for each in cells if each.place.turns == turns]
    speeds = sorted({each.place.speed for each in here})
    found = {(each.place.history, each.place.rtt, each.place.speed): each for each in here}
    rows: list[Row] = []
    for history in sorted({each.place.history for each in here}):
        for rtt in sorted({each.place.rtt for each in here}):
            entries = [_entry(found[history, rtt, speed]) for speed in speeds]
            rows.append((f"{size(history)}, {rtt * 1000:g} ms", *entries))
    return Table(
        (f"{turns} turns: history, RTT", *(f"{speed_words(speed)} tokens/s" for speed in speeds)), rows, words=True
    )


def _entry(cell: Cell) -> str:
    what = STEPS[cell.step][0] if cell.step is not None else "unsure" if cell.unsure else "none"
    return f"{what}: {_figure(cell.over_baseline[cell.best])}"


def _figure(judged: Judged) -> str:
    if not math.isfinite(judged.low):
        return f"{signed(judged.gain.value)} (one run, no interval)"
    return f"{signed(judged.gain.value)} ({signed(judged.low)} to {signed(judged.high)})"


def checked(checks: Sequence[Check]) -> Table:
    """Returns how far off the prediction was in what was measured and not fitted."""
    names = list(dict.fromkeys(each.name for each in checks))
    drivers = list(dict.fromkeys(each.driver for each in checks))
    found = {(each.name, each.driver): each for each in checks}
    rows = [
        (
            name,
            *(
                f"{each.predicted:.2f} for {each.measured:.2f} s ({signed(each.error)})" if each else ""
                for each in (found.get((name, driver)) for driver in drivers)
            ),
        )
        for name in names
    ]
    return Table(("predicted for measured", *drivers), rows, words=True)


def trust(checks: Sequence[Check], savings: Mapping[str, float]) -> str:
    """Says how far the map is to be trusted; `savings` are the largest errors by driver, in seconds a turn."""
    if not checks:
        return (
            "**Nothing was measured beside the fit, so the prediction is not checked and every cell is unsure.** "
            "Rollouts of any other scenario, or of long-history at another speed, over the same kind of network check "
            "it."
        )
    worst = max(checks, key=lambda each: abs(each.error))
    told = ", ".join(f"{WORDS.get(name, name)} {error * 1000:.1f}" for name, error in savings.items())
    off = "more than 2%: read the times with care" if abs(worst.error) > _STEADY else "within 2%"
    return (
        f"Held against {len({each.name for each in checks})} measurements that were not fitted, end-to-end times are "
        f"off by {signed(worst.error)} at most ({worst.driver}, {worst.name}), {off}. What is saved against "
        f"{WORDS[BASELINE]} is off by at most, in ms a turn: {told}. Every interval of the map is wider by that at "
        "either end, so no gain that is smaller than the error counts."
    )
