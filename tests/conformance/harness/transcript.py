"""Transcripts as they stand in YAML, checked for misspelt keys.

Above: the player. Below: nothing. The format is described in the README beside this package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from turnwire.server.session.limits import SessionLimits

_STEPS = frozenset(
    {
        "aborted",
        "advance",
        "closed",
        "engine",
        "expect",
        "gauges",
        "go_away",
        "half_close",
        "listed",
        "lose",
        "nothing",
        "pass_started",
        "passes",
        "paused",
        "resumed",
        "send",
        "stored",
        "tool",
        "tool_cancelled",
        "tool_started",
    }
)
_BESIDE = frozenset({"of", "session"})


@dataclass(frozen=True)
class Step:
    """One step: what is done, with what, and beside it whom it concerns."""

    kind: str
    value: Any
    of: str = ""
    """Name of a response; empty means the one named last."""
    session: str = "main"


@dataclass(frozen=True)
class Transcript:
    """One conversation and what both sides must say."""

    id: str
    name: str
    why: str
    steps: tuple[Step, ...]
    limits: SessionLimits = field(default_factory=SessionLimits)
    sessions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Principals by session; sessions that are not here belong to nobody."""
    batch_window: float = 0.0


def load(folder: Path) -> Iterator[Transcript]:
    """Yields all transcripts of a folder, by file and by place in the file."""
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield _transcript(path.stem, document)


def _transcript(stem: str, document: dict[str, Any]) -> Transcript:
    given = dict(document)
    name = given.pop("name")
    steps = tuple(_step(name, raw) for raw in given.pop("steps"))
    loaded = Transcript(
        id=f"{stem}:{name.replace(' ', '_')}",
        name=name,
        why=given.pop("why"),
        steps=steps,
        limits=dataclasses.replace(SessionLimits(), **given.pop("limits", {})),
        sessions=given.pop("sessions", {}),
        batch_window=given.pop("batch_window", 0.0),
    )
    if given:
        msg = f"{loaded.id}: unknown keys {sorted(given)}"
        raise ValueError(msg)
    return loaded


def _step(name: str, raw: Mapping[str, Any]) -> Step:
    kinds = [key for key in raw if key in _STEPS]
    unknown: Sequence[str] = [key for key in raw if key not in _STEPS and key not in _BESIDE]
    if len(kinds) != 1 or unknown:
        msg = f"{name}: a step has exactly one of {sorted(_STEPS)} and may have {sorted(_BESIDE)}, not {sorted(raw)}"
        raise ValueError(msg)
    return Step(kinds[0], raw[kinds[0]], raw.get("of", ""), raw.get("session", "main"))
