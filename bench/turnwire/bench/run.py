"""Measures rollouts over every transport and shape: `python -m turnwire.bench.run codex-fix --rtt 50ms --out FILE`.

Above it: people and the Makefile. Below it: `campaign`, which measures, and `summary`, whose figures are shown.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from turnwire.bench.campaign import Stopped, measure, verify
from turnwire.bench.command import screen
from turnwire.bench.drivers.registry import DRIVERS, left_out
from turnwire.bench.measured import ResultsError, machine
from turnwire.bench.overrides import READERS, overridden
from turnwire.bench.results import Options, Results, resume, save
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import ScenarioError, load, shipped, source_of
from turnwire.bench.scenario.values import Scenario
from turnwire.bench.summary import headlines, least, remarks
from turnwire.bench.tables import costs, stages, times, title


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.run",
        description="Measures rollouts over every transport and shape. The model is simulated.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="scenarios:\n"
        + "\n".join(f"  {name:14} {load(name).description}" for name in shipped())
        + "\n\ndrivers:\n"
        + "\n".join(f"  {entry.name:14} {entry.title}" for entry in DRIVERS.values()),
    )
    parser.add_argument("scenario", help="a shipped one, or FILE.toml")
    parser.add_argument("--drivers", default=",".join(DRIVERS), help="names with commas between [all]")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions, each with a server of its own [5]")
    parser.add_argument("--baseline", default="http-full", help="whom the others are compared with [http-full]")
    parser.add_argument("--out", type=Path, help="result file, JSON; what it has already is not measured again")
    parser.add_argument("--server-flag", action="append", default=[], help="one more flag of the server. Repeatable")
    parser.add_argument("--verify-only", action="store_true", help="check that all drivers work, and measure nothing")
    for name, (reader, words) in READERS.items():
        option = f"--{name.replace('_', '-')}"
        if reader is bool:
            parser.add_argument(option, action="store_true", help=words)
        else:
            parser.add_argument(option, help=f"{words} [the scenario's]")
    return parser


def _values(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, (reader, _) in READERS.items():
        text = getattr(options, name)
        try:
            values[name] = None if text is None else reader(text)
        except ValueError as error:
            parser.error(f"--{name.replace('_', '-')}: {error}")
    if values["slow_start"] and values["rtt"] == 0:
        parser.error("--slow-start: there is no window to wait for where --rtt is 0")
    if values["agents"] and values["rollouts"] and values["rollouts"] < values["agents"]:
        parser.error("--rollouts: expected at least one for each agent")
    if values["rate"] is not None and (values["agents"] or values["rate"] == float("inf")):
        parser.error("--rate: expected a number above 0, and no --agents beside it")
    return values


def _drivers(parser: argparse.ArgumentParser, text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in DRIVERS]:
        parser.error(f"--drivers: no such driver: {', '.join(unknown)}; there are {', '.join(DRIVERS)}")
    return names


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Verifies, measures and shows. Returns 0, 1 where something failed, or 2 for wrong usage."""
    # So that whoever ends it does not leave servers behind; in the background of a shell, too, where SIGINT is ignored.
    signal.signal(signal.SIGTERM, _interrupt)
    parser = _parser()
    options = parser.parse_args()
    values = _values(parser, options)
    names = _drivers(parser, options.drivers)
    if options.baseline not in DRIVERS:
        parser.error(f"--baseline: no such driver: {options.baseline}")
    if not 1 <= options.repeat <= 1000:
        parser.error("--repeat: expected a number from 1 to 1000")
    try:
        scenario = overridden(load(options.scenario), values)
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    skipped = left_out(names, scenario)
    if len(skipped) == len(names):
        parser.error("; ".join(f"{name} is left out: {reason}" for name, reason in skipped.items()))
    names = [name for name in names if name not in skipped]
    asked = Options(
        command=f"python -m turnwire.bench.run {' '.join(sys.argv[1:])}",
        scenario=scenario.name,
        source=source_of(options.scenario),
        overrides={name: str(getattr(options, name)) for name in READERS if getattr(options, name)},
        drivers=names,
        repeat=options.repeat,
        flags=options.server_flag,
    )
    try:
        results = Results(asked, machine()) if options.out is None else resume(options.out, asked, machine())
    except ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    results.skipped = skipped
    return _run(results, scenario, options)


def _run(results: Results, scenario: Scenario, options: argparse.Namespace) -> int:
    console = screen()
    names = results.options.drivers
    missing = sum(not results.has(n, name) for n in range(results.options.repeat) for name in names)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=len(names) + (0 if options.verify_only else missing))

        def told(what: str) -> None:
            progress.update(task, advance=1, description=what)

        try:
            wrong = verify(scenario, names, results.options.flags, told)
            if not wrong and not options.verify_only:
                measure(results, scenario, options.out, told)
            results.ended = "complete"
        except (Stopped, RuntimeError) as error:
            wrong = {}
            results.ended = str(error)
        except KeyboardInterrupt:
            wrong = {}
            results.ended = "interrupted"
    for name, difference in wrong.items():
        console.print(f"[red]{name} does not do what the scenario says:[/] {difference}", highlight=False)
    if wrong:
        console.print("Nothing was measured.")
        return 1
    if options.verify_only:
        console.print(f"All of {len(names)} drivers gave the text and the tool calls of {scenario.name}.")
        for name, reason in results.skipped.items():
            console.print(f"{name} is left out: {reason}.", highlight=False)
        return 0 if results.ended == "complete" else 1
    if options.out is not None:
        save(results, options.out)
    _show(console, results, scenario, options.baseline)
    return 0 if results.ended == "complete" else 1


def _show(console: Console, results: Results, scenario: Scenario, baseline: str) -> None:
    floor = least(compile_rollout(scenario), scenario.network.rtt)
    lines = headlines(results, floor, baseline, scenario.idle.sessions if scenario.idle else 0)
    if lines:
        console.print(title(scenario, floor), highlight=False)
        console.print(times(lines, baseline))
        console.print(costs(lines))
        console.print("Median parts of a turn; what is not told is part of all else:")
        console.print(stages(lines))
    for remark in remarks(lines, results):
        console.print(f"- {remark}", highlight=False)
    if results.ended != "complete":
        console.print(f"[red]The measurement did not come to its end:[/] {results.ended}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
