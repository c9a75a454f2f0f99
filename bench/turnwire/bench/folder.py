"""A folder of result files, read whole: each found by its content and not by its name; what is broken is told.

Above it: the report, the budgets, the map and the comparison. Below it: the two shapes of result files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from turnwire.bench.measured import FORMAT, Measured, ResultsError, read
from turnwire.bench.results import Results, load

T = TypeVar("T", Results, Measured)

ROLLOUTS: Final = "rollouts"
KINDS: Final = ("turns", "doors", "pace", "memory", "ablation", "peers", "soak")
"""Of measurements beside rollouts."""


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A file that could be read."""

    name: str
    content: T


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that could not."""

    name: str
    reason: str


@dataclass(slots=True)
class Folder:
    """What lies in a folder, each in the order of the files' names."""

    rollouts: list[Found[Results]] = field(default_factory=list[Found[Results]])
    measured: list[Found[Measured]] = field(default_factory=list[Found[Measured]])
    broken: list[Broken] = field(default_factory=list[Broken])

    def of(self, kind: str) -> Sequence[Found[Measured]]:
        """Returns the measurements of a kind that came to their end, the latest first."""
        complete = [each for each in self.measured if each.content.kind == kind and each.content.ended == "complete"]
        return sorted(complete, key=lambda each: each.content.date, reverse=True)


class _Kind(msgspec.Struct):
    kind: str


def read_folder(path: Path) -> Folder:
    """Reads every JSON file of a folder, not of those inside it; hidden ones are left out.

    Raises:
        OSError: There is no such folder.
    """
    folder = Folder()
    for file in sorted(each for each in path.iterdir() if each.suffix == ".json" and not each.name.startswith(".")):
        try:
            _take(file, folder)
        except ResultsError as error:
            folder.broken.append(Broken(file.name, str(error).removeprefix(f"{file}: ")))
    return folder


def unusable(error: OSError) -> str:
    """Says of a folder or file that cannot be read or written which one it is, why, and where results come from."""
    return f"{error.filename}: {error.strerror}. Measurements such as `make bench` write result files."


def _take(file: Path, folder: Folder) -> None:
    content = read_file(file)
    if isinstance(content, Results):
        folder.rollouts.append(Found(file.name, content))
    else:
        folder.measured.append(Found(file.name, content))


def read_file(path: Path) -> Results | Measured:
    """Reads a result file of any kind.

    Raises:
        ResultsError: It cannot be read, or is none.
    """
    try:
        kind = msgspec.json.decode(path.read_bytes(), type=_Kind).kind
    except (OSError, msgspec.DecodeError) as error:
        raise ResultsError(f"{path}: {error}") from error
    if kind == ROLLOUTS:
        return load(path)
    if kind in KINDS:
        return read(path, Measured, FORMAT)
    raise ResultsError(f"{path}: expected one of {', '.join((ROLLOUTS, *KINDS))}, found a file of kind {kind}")
