"""Which files go together, whether they may be compared, and what became of their figures. Pure.

Above it: the command. Below it: `figures` and `change`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwire.bench.compare.change import Change, changed
from turnwire.bench.compare.figures import of_measured, of_rollouts
from turnwire.bench.measured import Measured
from turnwire.bench.results import Results
from turnwire.bench.suite.standing import arguments

Content = Results | Measured


@dataclass(slots=True)
class Compared:
    """Two files."""

    name: str
    differences: list[str] = field(default_factory=list[str])
    """Why they are pears and apples; empty where they are of one kind."""
    changes: list[Change] = field(default_factory=list[Change])
    only_old: list[str] = field(default_factory=list[str])
    """Figures that are gone."""
    only_new: list[str] = field(default_factory=list[str])


def differences(old: Content, new: Content) -> list[str]:
    """Returns in words what else differs between two measurements than the project's own version."""
    if old.kind != new.kind:
        return [f"one is of kind {old.kind}, the other of kind {new.kind}"]
    found: list[str] = []
    if isinstance(old, Results) and isinstance(new, Results):
        for what in ("scenario", "source", "overrides", "flags"):
            before, after = getattr(old.options, what), getattr(new.options, what)
            if before != after:
                told = "another text of the scenario" if what == "source" else f"{before} against {after}"
                found.append(f"{what}: {told}")
    elif isinstance(old, Measured) and isinstance(new, Measured):
        before, after = (" ".join(arguments(each.command)) for each in (old, new))
        if before != after:
            found.append(f"options: {before} against {after}")
    for what, before, after in _facts(old.machine, new.machine):
        found.append(f"{what}: {before} against {after}")
    return found


def _facts(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """Returns what differs of two machines, versions included, but for the project's own."""
    flat = [{**facts, **facts.get("packages", {})} for facts in (old, new)]
    names = dict.fromkeys(name for facts in flat for name in facts)
    skipped = {"packages", "turnwire", "commit"}
    return [
        (name, flat[0].get(name), flat[1].get(name))
        for name in names
        if name not in skipped and flat[0].get(name) != flat[1].get(name)
    ]


def compared(name: str, old: Content, new: Content, noise: float) -> Compared:
    """Compares all figures that both files have and that were not 0.

    Raises:
        ValueError: Figures have another shape than those of their kind.
    """
    made = Compared(name, differences(old, new))
    before, after = ({figure.name: figure for figure in _figures(each)} for each in (old, new))
    made.only_old = [each for each in before if each not in after]
    made.only_new = [each for each in after if each not in before]
    made.changes = [
        changed(before[each], after[each], noise) for each in before if each in after and before[each].value > 0
    ]
    return made


def _figures(content: Content) -> Sequence[Any]:
    return of_rollouts(content) if isinstance(content, Results) else of_measured(content)
