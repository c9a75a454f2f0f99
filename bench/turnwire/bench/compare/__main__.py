"""Compares two result files or folders: `python -m turnwire.bench.compare OLD NEW [--noise 5%] [--fail-on-worse]`.

Above it: people, the Makefile and CI. Below it: `pairing`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from turnwire.bench.command import screen
from turnwire.bench.compare.change import NOISE, Change, Verdict
from turnwire.bench.compare.pairing import Compared, Content, compared
from turnwire.bench.folder import read_file, read_folder
from turnwire.bench.intervals import known
from turnwire.bench.measured import ResultsError

_COLOURS = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "dim", Verdict.UNSURE: "yellow"}


def _share(text: str) -> float:
    share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    if not 0 <= share < 1:
        msg = f"expected a share such as 5% or 0.05, found {text}"
        raise argparse.ArgumentTypeError(msg)
    return share


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.compare",
        description="Says which figures became better, which worse, and which changes are noise. Files of folders are "
        "paired by their names.",
    )
    parser.add_argument("old", type=Path, help="result file, or a folder of them")
    parser.add_argument("new", type=Path, help="the same of a later measurement")
    words = "a change below it is none [5%%]"
    parser.add_argument("--noise", type=_share, default=NOISE, metavar="SHARE", help=words)
    parser.add_argument("--anyway", action="store_true", help="compare what was measured by other means, too")
    parser.add_argument("--all", action="store_true", help="show figures that did not change, too")
    parser.add_argument("--fail-on-worse", action="store_true", help="return 1 where a figure became worse")
    return parser


def _contents(path: Path, console: Console) -> dict[str, Content]:
    """Reads a file, or all of a folder, by their names; a file alone has no name, so that it goes with any other."""
    if not path.is_dir():
        return {"": read_file(path)}
    folder = read_folder(path)
    for broken in folder.broken:
        console.print(f"{path / broken.name} could not be read: {broken.reason}", highlight=False)
    rollouts: dict[str, Content] = {found.name: found.content for found in folder.rollouts}
    return rollouts | {found.name: found.content for found in folder.measured}


def _table(name: str, changes: Sequence[Change]) -> Table:
    table = Table(title=name or None, title_justify="left")
    table.add_column("figure")
    for column in ("old", "new", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for change in changes:
        relative = change.relative
        spread = f" ({relative.low:+.1%} to {relative.high:+.1%})" if known(relative) else ""
        figures = (f"{change.old:.4g} {change.unit}", f"{change.new:.4g} {change.unit}")
        words = (f"{relative.value:+.1%}{spread}", change.verdict.value)
        table.add_row(change.name, *figures, *words, style=_COLOURS[change.verdict])
    return table


def _show(console: Console, found: Compared, *, everything: bool) -> None:
    shown = [change for change in found.changes if everything or change.verdict is not Verdict.SAME]
    if shown:
        console.print(_table(found.name, shown))
    for words, names in (("no longer there", found.only_old), ("new", found.only_new)):
        if names:
            console.print(f"{found.name or 'figures'}: {words}: {'; '.join(names)}", highlight=False)


def main() -> int:
    """Compares. Returns 0, 1 where something became worse and that was asked for, or 2 where nothing is compared."""
    given = _parser().parse_args()
    console = screen()
    if given.old.is_dir() != given.new.is_dir():
        found = next((str(each) for each in (given.old, given.new) if not each.exists()), "one of each")
        print(f"OLD and NEW: expected two result files or two folders of them, found {found}", file=sys.stderr)
        return 2
    try:
        old, new = _contents(given.old, console), _contents(given.new, console)
        pairs = [compared(name, old[name], new[name], given.noise) for name in old if name in new]
    except (OSError, ResultsError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for folder, others, path in ((old, new, given.old), (new, old, given.new)):
        if alone := [name for name in folder if name not in others]:
            console.print(f"only in {path}: {', '.join(alone)}", highlight=False)
    refused = False
    changes: list[Change] = []
    for pair in pairs:
        if pair.differences:
            name = f"{pair.name}: " if pair.name else ""
            console.print(f"[yellow]{name}pears and apples:[/] {'; '.join(pair.differences)}", highlight=False)
            if not given.anyway:
                refused = True
                continue
        _show(console, pair, everything=given.all)
        changes += pair.changes
    if refused:
        console.print("Not compared; --anyway does so all the same.")
    if not changes:
        print(f"OLD and NEW: there is nothing to compare in {given.old} and {given.new}", file=sys.stderr)
        return 2
    counts = {verdict: sum(change.verdict is verdict for change in changes) for verdict in Verdict}
    console.print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()), highlight=False)
    return 1 if given.fail_on_worse and counts[Verdict.WORSE] else 0


if __name__ == "__main__":
    sys.exit(main())
