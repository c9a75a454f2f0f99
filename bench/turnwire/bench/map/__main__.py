"""Writes the map of a folder of result files: `python -m turnwire.bench.map FOLDER [--out DIR]`.

Above it: people and the Makefile. Below it: `section`, and the report's Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from turnwire.bench.folder import read_folder, unusable
from turnwire.bench.map.cells import Grid
from turnwire.bench.map.section import TITLE, default_profile, map_section
from turnwire.bench.map.workload import Profile
from turnwire.bench.report.document import Document
from turnwire.bench.report.markdown import markdown
from turnwire.server.values import duration, integer, rate, size

T = TypeVar("T")


def _read(reader: Callable[[object], T]) -> Callable[[str], T]:
    """Makes argparse say what the reader says."""

    def read(text: str) -> T:
        try:
            return reader(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _several(reader: Callable[[object], T]) -> Callable[[str], tuple[T, ...]]:
    return lambda text: tuple(dict.fromkeys(_read(reader)(each) for each in text.split(",")))


def _parser(profile: Profile, grid: Grid) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.map",
        description=(
            "Writes where a transport or a shape gains more than 5% end to end, and where none does: map.md with its "
            "pictures beside it. From files of long-history at several histories and round trips it fits what a turn "
            "costs, predicts other rollouts, and holds the prediction against all other files of rollouts."
        ),
    )
    parser.add_argument("folder", type=Path, help="where result files (JSON) lie, such as bench-results")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the map goes [FOLDER]")
    bytes_, seconds, count = size(0, 16 * 1024**2), duration(0.0, 3600.0), integer(1, 10_000)
    rollouts = parser.add_argument_group("what rollouts are like; codex-fix's averages where nothing is said")
    for name, reader, default, words in (
        ("tokens", count, profile.tokens, "tokens of each turn"),
        ("ttft", seconds, profile.ttft, f"time to the first of them, such as 200ms [{profile.ttft * 1000:g}ms]"),
        ("tool-time", seconds, profile.pause, f"of tools after each turn [{profile.pause * 1000:.0f}ms]"),
        ("growth", bytes_, profile.growth, "what tools say after each turn, such as 4KiB"),
        ("settings", bytes_, profile.settings, "instructions and tools, such as 32KiB"),
    ):
        shown = "" if "[" in words else f" [{default:,}]"
        rollouts.add_argument(f"--{name}", type=_read(reader), default=default, help=words + shown)
    cells = parser.add_argument_group("which cells, with commas between")
    for name, parsed, standard, words in (
        ("speeds", _several(rate), grid.speeds, "tokens per second [65,250,1000,4000]"),
        ("rtts", _several(seconds), grid.rtts, "round trips [0ms,20ms,50ms,100ms]"),
        ("histories", _several(bytes_), grid.histories, "at the start [1KiB,100KiB,1MiB]"),
        ("turns", _several(integer(2, 1000)), grid.turns, "of a rollout [5,30,100]"),
    ):
        cells.add_argument(f"--{name}", type=parsed, default=standard, help=words)
    return parser


def main() -> int:
    """Writes, and says what. Returns 0, or 2 for wrong usage, no such folder or one that cannot be written to."""
    known = default_profile()
    given = _parser(known, Grid()).parse_args()
    profile = Profile(given.settings, known.message, given.growth, given.tokens, given.tool_time, given.ttft)
    grid = Grid(given.speeds, given.rtts, given.histories, given.turns)
    try:
        folder = read_folder(given.folder)
        section = map_section([each.content for each in folder.rollouts], profile, grid)
        document = Document(TITLE, [section])
        out: Path = given.out or given.folder
        out.mkdir(parents=True, exist_ok=True)
        for picture in document.pictures():
            (out / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        path = out / "map.md"
        path.write_text(markdown(document), encoding="utf-8")
    except OSError as error:
        print(unusable(error), file=sys.stderr)
        return 2
    for broken in folder.broken:
        print(f"{broken.name} could not be read: {broken.reason}", file=sys.stderr)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
