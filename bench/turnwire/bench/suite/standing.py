"""How a step stands: measured already, to be gone on with, or to be measured anew. Pure but for `head`.

Above it: `running`. Below it: the beginnings of result files.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from turnwire.bench.measured import COMPLETE
from turnwire.bench.suite.steps import Step


class _Options(msgspec.Struct):
    command: str


class Head(msgspec.Struct):
    """What any result file says of itself."""

    machine: dict[str, Any]
    ended: str
    command: str = ""
    options: _Options | None = None
    """Of rollouts, which have the command there."""

    @property
    def typed(self) -> str:
        """The command that measured it."""
        return self.command if self.options is None else self.options.command


def head(path: Path) -> Head | None:
    """Reads what a file says of itself; None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Head)
    except (OSError, msgspec.DecodeError):
        return None


class Standing(enum.Enum):
    """What there is of a step."""

    DONE = "measured already"
    BEGUN = "goes on"
    """Rollouts of the same measurement, which are resumed run by run."""
    ANEW = ""
    """Nothing, or nothing of use."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What there is of a step, and why a file that is there is of no use."""

    standing: Standing
    reason: str = ""


def arguments(command: str) -> Sequence[str]:
    """Returns the module and the options of a command, without the file that it writes."""
    words = shlex.split(command)
    words = words[words.index("-m") + 1 :] if "-m" in words else words
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and word != "--out" and not word.startswith("--out="):
            kept.append(word)
        skip = word == "--out"
    return kept


def judge(found: Head | None, step: Step, machine: Mapping[str, Any]) -> Judged:
    """Returns how a step stands, by what its file says of itself.

    Rollouts of more drivers and repetitions than the step's are good for it, too; where there are fewer, what is
    missing is measured and what is there stays.
    """
    if found is None:
        return Judged(Standing.ANEW)
    there, wanted = _parted(arguments(found.typed)), _parted([f"turnwire.bench.{step.module}", *step.arguments])
    if there.rest != wanted.rest:
        return Judged(Standing.ANEW, "it was measured with other options")
    if found.machine != machine:
        return Judged(Standing.ANEW, "it was measured on another machine or with other versions")
    if found.options is None:
        return Judged(Standing.DONE if found.ended == COMPLETE else Standing.ANEW)
    enough = there.drivers >= wanted.drivers and there.repeat >= wanted.repeat
    return Judged(Standing.DONE if found.ended == COMPLETE and enough else Standing.BEGUN)


@dataclass(frozen=True, slots=True)
class _Parted:
    """A command's options, those apart that say how much is measured and not what."""

    rest: list[str]
    drivers: frozenset[str]
    repeat: int


def _parted(words: Sequence[str]) -> _Parted:
    rest: list[str] = []
    much = {"--drivers": "", "--repeat": "0"}
    names = iter(words)
    for word in names:
        if word in much:
            much[word] = next(names, "")
        else:
            rest.append(word)
    repeat = much["--repeat"]
    return _Parted(rest, frozenset(much["--drivers"].split(",")), int(repeat) if repeat.isdecimal() else 0)


def left(steps: Sequence[Step], planned: float, took: float) -> float:
    """Returns about how many seconds the steps take that are left.

    Args:
        steps: Those that are left.
        planned: What the steps that were measured should have taken; 0 where none was.
        took: What they took.
    """
    return sum(step.seconds for step in steps) * (took / planned if planned else 1.0)
