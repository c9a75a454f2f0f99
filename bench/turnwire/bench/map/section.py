"""The report's section on what matters: the maps with their words, pictures, checks and commands.

Above it: the report, and `python -m turnwire.bench.map`. Below it: `reading`, `picture`, `words`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwire.bench.map.cells import MATTERS, Cell, Grid
from turnwire.bench.map.names import SHORT, size
from turnwire.bench.map.observed import Played
from turnwire.bench.map.picture import draw_against, draw_steps
from turnwire.bench.map.reading import Map, NoMap, maps
from turnwire.bench.map.words import assumptions, by_history, checked, compared, figures, losing, tally, trust
from turnwire.bench.map.workload import Profile, profile_of
from turnwire.bench.report.document import Block, Folded, Made, Picture, Section, Source, Words
from turnwire.bench.report.wording import machine
from turnwire.bench.results import Results
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import load

ANCHOR: Final = "does-it-matter"
TITLE: Final = "Does it matter?"
PROFILE: Final = "codex-fix"
"""The scenario whose averages the map's rollouts have, where nothing else is said."""


def default_profile() -> Profile:
    """Returns the averages of the scenario `PROFILE`."""
    return profile_of(compile_rollout(load(PROFILE)))


def map_section(results: Sequence[Results], profile: Profile | None = None, grid: Grid | None = None) -> Section:
    """Returns the section; where files are missing it says which, and how to measure them. Pure.

    Args:
        results: All files of rollouts; those that are of no use to the map are left out by themselves.
        profile: What the map's rollouts are like; `default_profile` where it is None.
        grid: Its cells.
    """
    profile = profile or default_profile()
    blocks: list[Block] = [Words(_method(profile))]
    for place, each in enumerate(maps(results, profile, grid or Grid())):
        blocks += _no_map(each) if isinstance(each, NoMap) else _map(each, f"map-{place}" if place else "map")
    return Section(ANCHOR, TITLE, blocks)


def _method(profile: Profile) -> str:
    return (
        "Model speed, turns, history and round trip are four dimensions, too many to measure whole. What a turn costs "
        "beyond inference and one round trip does not depend on the model's speed, so it is measured at several "
        "histories and round trips, fitted as a + b · history + c · RTT for each driver, and rollouts of any kind are "
        "predicted from it. The prediction is held against rollouts that were measured and not fitted, and its error "
        f"is added to every interval. A cell is coloured only where the whole interval lies beyond {MATTERS:.0%}. "
        f"{assumptions(profile)}"
    )


def _no_map(missing: NoMap) -> list[Block]:
    about = f"### {_first_upper(missing.way.words)}\n\n" if missing.way else ""
    how = "python -m turnwire.bench.run long-history --history 1MiB --rtt 20ms --out bench-results/map-1MiB-20ms.json"
    return [
        Words(
            f"{about}No map: {missing.reason}. It takes files of two histories and two round trips at least, such as "
            f"`{how}`, and one of another scenario to check the prediction."
        )
    ]


def _map(made: Map, name: str) -> list[Block]:
    cells = made.cells
    middle = sorted({each.place.turns for each in cells})
    turns = middle[len(middle) // 2]
    here = [each for each in cells if each.place.turns == turns]
    words = made.model.way.words
    steps = f"The least change that gains more than 5% over stateless HTTP, and the most that any gains: {words}"
    against = f"By how much append over gRPC is faster end to end than each of the others, {turns} turns: {words}"
    judged = [tally(cells), *by_history(cells), *losing(cells)] if made.checks else []
    said = [*judged, trust(made.checks, made.errors), *_beyond(made)]
    blocks: list[Block] = [
        Words(f"### {_first_upper(words)}\n\n" + "\n".join(f"- {each}" for each in said)),
        Picture(name, draw_steps(name, steps, cells), steps),
    ]
    if cells[0].of_ours:
        others = [(other, SHORT[other]) for other in cells[0].of_ours]
        blocks += [
            Picture(f"{name}-grpc", draw_against(f"{name}-grpc", against, here, others), against),
            compared(cells),
        ]
    tables: list[Block] = [figures(cells, count) for count in middle]
    if made.checks:
        tables.append(checked(made.checks))
    blocks.append(Folded("All figures with their intervals, and the prediction beside what was measured", tables))
    blocks.append(Made([_source(each) for each in (*made.fitted, *made.held_out)]))
    return blocks


def _beyond(made: Map) -> list[str]:
    """Says where cells lie beyond what was fitted."""
    model = made.model

    def longest(cell: Cell) -> int:
        place = cell.place
        return made.profile.steps(place.speed, place.turns, place.history)[-1].whole

    most, farthest = max(map(longest, made.cells)), max(each.place.rtt for each in made.cells)
    said: list[str] = []
    if model.way.slow_start:
        said.append(
            "TCP's window is a model of what Linux does by default: it is halved for each time-out of quiet, so a slow "
            "model closes it and whatever is sent again pays round trips to open it. Where "
            "`net.ipv4.tcp_slow_start_after_idle` is off, less is lost. Connections that are kept have carried a turn "
            "before the first."
        )
    if most > model.longest:
        said.append(
            f"Conversations of the map grow to {size(most)}; what is beyond {size(round(model.longest))} follows "
            "from the fit and was not measured."
        )
    if farthest > model.farthest:
        said.append(f"Round trips beyond {model.farthest * 1000:g} ms follow from the fit and were not measured.")
    return said


def _source(each: Played) -> Source:
    results = each.results
    loads = [run.record.load_before for run in results.runs]
    load = f"{min(loads):.1f} to {max(loads):.1f} before the runs" if loads else "not told"
    part = "fitted" if each.fitted else "held against the prediction"
    return Source(f"{each.name} ({part})", results.options.command, results.date, machine(results.machine), load)


def _first_upper(words: str) -> str:
    return words[:1].upper() + words[1:]
