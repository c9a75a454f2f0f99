"""From result files of rollouts to the map of each kind of network, or why there is none. Pure.

Above it: `section` and the command. Below it: what was observed, the model and the cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from turnwire.bench.map.cells import BASELINE, STEPS, Cell, Grid, cells
from turnwire.bench.map.checks import Check, check, check_savings
from turnwire.bench.map.model import Model, TooLittle, fit
from turnwire.bench.map.observed import Played, Way, observe
from turnwire.bench.map.workload import Profile
from turnwire.bench.results import Results


@dataclass(frozen=True, slots=True)
class Map:
    """The map of one kind of network."""

    model: Model
    profile: Profile
    grid: Grid
    cells: Sequence[Cell]
    checks: Sequence[Check]
    errors: dict[str, float]
    """By how many seconds a turn each driver's saving against the baseline is off at most, where it was checked."""
    fitted: Sequence[Played]
    held_out: Sequence[Played]


@dataclass(frozen=True, slots=True)
class NoMap:
    """Why there is none."""

    way: Way | None
    """None where no file is of any use."""
    reason: str


def maps(results: Sequence[Results], profile: Profile, grid: Grid) -> list[Map | NoMap]:
    """Returns a map for each kind of network of which there are files to fit, the plain one first."""
    observed = [each for each in map(observe, results) if isinstance(each, Played)]
    ways: dict[Way, list[Played]] = defaultdict(list)
    for each in observed:
        ways[each.way].append(each)
    made = [
        _map(way, ways[way], observed, profile, grid)
        for way in sorted(ways, key=lambda way: (way.slow_start, way.tls, way.bandwidth))
        if any(each.fitted for each in ways[way])
    ]
    return made or [NoMap(None, "there are no rollouts of long-history at its own speed, which the fit needs")]


def _map(way: Way, files: Sequence[Played], counted: Sequence[Played], profile: Profile, grid: Grid) -> Map | NoMap:
    fitted = [each for each in files if each.fitted]
    held_out = [each for each in files if not each.fitted]
    if (way.bandwidth or way.slow_start) and len({each.steps[0].settings for each in counted}) < 2:
        return NoMap(way, "bytes of one scenario only do not tell frames from instructions and tools")
    try:
        model = fit(fitted, counted)
    except TooLittle as error:
        return NoMap(way, str(error))
    choices = [name for _, drivers in STEPS for name in drivers]
    if BASELINE not in model.costs or not any(name in model.costs for name in choices):
        return NoMap(way, f"expected {BASELINE} and one of {', '.join(choices)} in files that suffice for a fit")
    errors = {
        name: max(each.error for each in savings)
        for name in model.costs
        if name != BASELINE and (savings := check_savings(model, held_out, name, BASELINE))
    }
    made = cells(model, held_out, profile, grid)
    return Map(model, profile, grid, made, check(model, held_out), errors, fitted, held_out)
