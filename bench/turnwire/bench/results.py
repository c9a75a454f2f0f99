"""Result files: what was asked, on which machine, and every run; a view of it is a table, the file is the product.

Above it: `campaign`, `summary` and the report. Below it: `measured`. A file explains itself: it holds the scenario's
text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from turnwire.bench.drivers.records import RunRecord
from turnwire.bench.measured import ResultsError, read, today, write

FORMAT: Final = 2
"""1: the first. 2: turns say what their parts are: inference, network, client, and the server's stages where told."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: with it everything can be run again."""

    command: str
    scenario: str
    """Its name."""
    source: str
    """Its file's text."""
    overrides: dict[str, str]
    """What the command line set instead, by the names of its options."""
    drivers: list[str]
    repeat: int
    flags: list[str]
    """More flags of the server."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one driver."""

    repetition: int
    record: RunRecord


@dataclass(slots=True)
class Results:
    """A whole file."""

    options: Options
    machine: dict[str, Any]
    runs: list[Run] = field(default_factory=list[Run])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Drivers that were asked for and could not play here, and why."""
    ended: str = "not yet"
    """`complete`, or why not."""
    kind: str = "rollouts"
    """Tells the file from those of other measurements; see `measured.Measured`."""
    date: str = field(default_factory=today)
    """When it began, by RFC 3339."""
    format: int = FORMAT

    def has(self, repetition: int, driver: str) -> bool:
        """Whether a run is there that came to its end."""
        return any(
            run.repetition == repetition and run.record.driver == driver and not run.record.failure for run in self.runs
        )

    def of(self, driver: str) -> list[RunRecord]:
        """Returns a driver's runs that came to their end, by repetition."""
        runs = sorted((run for run in self.runs if run.record.driver == driver), key=lambda run: run.repetition)
        return [run.record for run in runs if not run.record.failure]


def load(path: Path) -> Results:
    """Reads a file.

    Raises:
        ResultsError: It cannot be read, or is no result file of this format.
    """
    return read(path, Results, FORMAT)


def save(results: Results, path: Path) -> None:
    """Writes a file, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    write(results, path)


def resume(path: Path, options: Options, facts: dict[str, Any]) -> Results:
    """Returns what a file has of the same measurement, or nothing yet where there is no file.

    More repetitions and more drivers than before are the same measurement; another scenario, machine or version is not.

    Raises:
        ResultsError: The file is of another measurement, which would be mixed up with this one.
    """
    if not path.exists():
        return Results(options, facts)
    found = load(path)
    for what, there, here in (
        ("scenario", found.options.source, options.source),
        ("options", found.options.overrides, options.overrides),
        ("server flags", found.options.flags, options.flags),
        ("machine or versions", found.machine, facts),
    ):
        if there != here:
            raise ResultsError(f"{path} was measured with another {what}: remove it, or write to another file")
    kept = [run for run in found.runs if not run.record.failure]
    return Results(options, facts, kept, date=found.date)
