"""Runs a suite: `python -m turnwire.bench.suite bench`; then says which budgets are met, and writes the report.

Above it: people and the Makefile. Below it: `running`, the budgets and the report.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from turnwire.bench.budgets.judging import budgets
from turnwire.bench.budgets.line import table
from turnwire.bench.command import screen
from turnwire.bench.folder import read_folder
from turnwire.bench.suite.running import Running, ended, play
from turnwire.bench.suite.steps import SUITES, Step

_INTERRUPTED = 130
"""By the custom of shells."""


def _parser() -> argparse.ArgumentParser:
    suites = "\n".join(
        f"  {name:6} about {suite.seconds / 60:2.0f} min: {suite.about}" for name, suite in SUITES.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.suite",
        description="Measures in a row, each step by a command of its own. What a folder has already of the same "
        "commands, machine and versions is not measured again. At the end it says which budgets are met, and writes "
        "the report.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"suites:\n{suites}",
    )
    parser.add_argument("suite", choices=SUITES, help="which")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), metavar="FOLDER", help="[bench-results]")
    parser.add_argument("--only", action="append", metavar="STEP", help="only this step. Repeatable")
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    parser.add_argument("--list", action="store_true", help="show the steps with their commands, and measure nothing")
    return parser


def main() -> int:
    """Runs. Returns 0, 1 where a step or the report failed, 2 for wrong usage, 130 when interrupted."""
    parser = _parser()
    given = parser.parse_args()
    steps: list[Step] = [step for step in SUITES[given.suite].steps if not given.only or step.name in given.only]
    if unknown := set(given.only or ()) - {step.name for step in steps}:
        parser.error(f"--only: no such step: {', '.join(sorted(unknown))}")
    # A file or a pipe has no width of its own, and the budgets need some.
    console = screen()
    if given.list:
        for step in steps:
            command = " ".join((step.module, *step.arguments))
            console.print(f"{step.name}: about {step.seconds:.0f} s: {command}", highlight=False, soft_wrap=True)
        return 0
    signal.signal(signal.SIGTERM, ended)
    try:
        failures = Running(console, given.out, again=given.again).run(steps)
        console.rule("budgets", align="left")
        console.print(table(budgets(read_folder(given.out))))
        report = play((sys.executable, "-m", "turnwire.bench.report", str(given.out)))
    except KeyboardInterrupt:
        console.print("Interrupted. What is complete stays; run it again to go on.")
        return _INTERRUPTED
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    for failure in failures:
        console.print(f"[red]{failure.step} failed:[/] {failure.reason}", highlight=False)
    return 1 if failures or report else 0


if __name__ == "__main__":
    sys.exit(main())
