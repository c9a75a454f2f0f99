"""What a measurement leaves behind: one JSON file that explains itself, by command, date, machine, versions and load.

Above it: every measurement, the suites that run them, and the report. Below it: JSON. Rollouts, which are resumed run
by run, have a shape of their own in `results`; everything around it is the same.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import msgspec

T = TypeVar("T")

FORMAT: Final = 1
"""1: the first."""
COMPLETE: Final = "complete"
_PACKAGES: Final = ("turnwire", "grpcio", "protobuf", "aiohttp", "uvloop", "msgspec")


class ResultsError(ValueError):
    """A result file cannot be used, or is one of something else."""


@dataclass(slots=True)
class Measured:
    """One measurement's file."""

    kind: str
    """What was measured; it says what `figures` looks like."""
    command: str
    """What has to be typed to measure it again."""
    machine: dict[str, Any]
    """See `machine`."""
    date: str
    """When it began, by RFC 3339."""
    load_before: float
    """The machine's load average over a minute."""
    load_after: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    """By the words of the module that measured."""
    ended: str = "not yet"
    """`complete`, or why not."""
    format: int = FORMAT


def machine() -> dict[str, Any]:
    """Returns what figures depend on: processor, system and versions."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "grpc": grpc.__version__,
        "packages": {name: version(name) for name in _PACKAGES},
    }


def today() -> str:
    """Returns the moment, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def measuring(kind: str, command: str, path: Path | None) -> Generator[Measured, None, None]:
    """Measures for the length of the block, which fills `figures`; then writes the file, if one is named.

    A block that raises leaves a file, too, with its reason and what figures there are.

    Raises:
        OSError: The file cannot be written.
    """
    measured = Measured(kind, command, machine(), today(), os.getloadavg()[0])
    try:
        yield measured
        measured.ended = COMPLETE
    except BaseException as error:
        measured.ended = f"{type(error).__name__}: {error}".rstrip(": ")
        raise
    finally:
        measured.load_after = os.getloadavg()[0]
        if path is not None:
            write(measured, path)


def write(content: object, path: Path) -> None:
    """Writes a file, whole or not at all; makes its folder where it is missing.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
    beside.replace(path)


def read(path: Path, kind: type[T], expected: int) -> T:
    """Reads a file of one shape, `Measured` or `results.Results`.

    Raises:
        ResultsError: It cannot be read, or is no result file of the format expected.
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ResultsError(f"{path}: {error}") from error
    found = getattr(content, "format", None)
    if found != expected:
        raise ResultsError(f"{path}: expected format {expected}, found {found}")
    return content
