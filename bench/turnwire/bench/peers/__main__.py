"""Puts other gateways and ours in front of one upstream, and measures what each adds: `python -m turnwire.bench.peers`.

Above it: people, the Makefile, the report (by the result file, kind `peers`). Below it: the rest of this room.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from turnwire.bench.command import screen
from turnwire.bench.doors_processes import Process, running
from turnwire.bench.measured import Measured, measuring
from turnwire.bench.peers import tables
from turnwire.bench.peers.chains import chain
from turnwire.bench.peers.environments import FOLDER, python_of, version_of
from turnwire.bench.peers.gateways import GATEWAYS
from turnwire.bench.peers.lines import ahead, floors, growths, lines
from turnwire.bench.peers.measuring import Campaign, Outcome, Plan, Told, started
from turnwire.bench.peers.playing import Watch
from turnwire.bench.peers.port import Gateway, Unavailable
from turnwire.server.values import size

_SIZE: Final = size(1, 16 * 1024**2)
_COMMAND: Final = "python -m turnwire.bench.peers"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_COMMAND,
        description=(
            "Puts gateways that serve the Responses API in front of one upstream, and measures what each adds to the "
            "time to first token, its CPU time and memory. The upstream is simulated and answers at once."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="gateways:\n"
        + "\n".join(
            f"  {each.name:12} {each.requirements[0] if each.requirements else 'this project'}; "
            f"chained over {', '.join(each.chained)}"
            for each in GATEWAYS.values()
        )
        + f"\n\nEach is installed once, into {FOLDER}/NAME. One that cannot be had is left out, with its reason.\n"
        "All of it takes about ten minutes.",
    )
    parser.add_argument("--out", type=Path, help="result file, JSON [none]")
    parser.add_argument("--gateways", default=",".join(GATEWAYS), help="names with commas between [all]")
    parser.add_argument("--histories", default="1KiB,100KiB,1MiB", help="sizes [1KiB,100KiB,1MiB]")
    parser.add_argument("--requests", type=int, default=8, help="turns of each kind in each repetition [8]")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions, each with processes of its own [5]")
    parser.add_argument("--chain", type=int, default=0, metavar="N", help="play a chain of N turns, too [none]")
    parser.add_argument("--chain-only", action="store_true", help="play only that")
    return parser


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Installs, checks, measures and shows. Returns 0, 1 where nothing could be measured, or 2 for wrong usage."""
    # So that whoever ends it does not leave gateways behind.
    signal.signal(signal.SIGTERM, _interrupt)
    parser = _parser()
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(options.gateways.split(",")))
    if unknown := [name for name in names if name not in GATEWAYS]:
        parser.error(f"--gateways: no such gateway: {', '.join(unknown)}; there are {', '.join(GATEWAYS)}")
    try:
        histories = sorted({_SIZE(each) for each in options.histories.split(",")})
    except ValueError as error:
        parser.error(f"--histories: {error}")
    if not 2 <= options.repeat <= 100:
        parser.error("--repeat: expected a number from 2 to 100, since one repetition says nothing of the next")
    if not 1 <= options.requests <= 10_000:
        parser.error("--requests: expected a number from 1 to 10000")
    if not 0 <= options.chain <= 10_000:
        parser.error("--chain: expected a number up to 10000")
    if options.chain_only and not options.chain:
        parser.error("--chain-only: how long is it to be? Say --chain N")
    command = f"{_COMMAND} {' '.join(sys.argv[1:] if arguments is None else arguments)}".strip()
    console = screen()
    try:
        with measuring("peers", command, options.out) as measured:
            _measure(measured, console, [GATEWAYS[name] for name in names], histories, options)
    except KeyboardInterrupt:
        console.print("[red]Interrupted.[/]")
        return 1
    _show(console, measured)
    return 0 if measured.figures["lines"] or measured.figures.get("chains") else 1


def _measure(
    measured: Measured,
    console: Console,
    gateways: Sequence[Gateway],
    histories: Sequence[int],
    options: argparse.Namespace,
) -> None:
    outcome = Outcome()
    versions: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def told(what: str) -> None:
            progress.update(task, advance=1, description=what)

        pythons = _installed(gateways, versions, outcome, told)
        there = {each.name: each for each in gateways if each.name in pythons}
        plan = Plan(there, pythons, histories, options.requests, options.repeat)
        cells = len(plan.cells())
        chains = len(there) if options.chain else 0
        rounds = 0 if options.chain_only else cells * (1 + options.repeat) + len(there) * options.repeat
        progress.update(task, total=len(gateways) + rounds + chains)
        upstream_command = (sys.executable, "-m", "turnwire.bench.fakes.upstream")
        with running(upstream_command, ("upstream",)) as upstream:
            try:
                if not options.chain_only:
                    campaign = Campaign(plan, upstream, told, outcome)
                    uvloop.run(campaign.run())
                if options.chain:
                    measured.figures["chains"] = uvloop.run(_chains(plan, upstream, options.chain, outcome, told))
            finally:
                measured.figures |= figures_of(outcome, versions, gateways)


def _installed(gateways: Sequence[Gateway], versions: dict[str, str], outcome: Outcome, told: Told) -> dict[str, Path]:
    """Returns the interpreters of those that can be had; notes the versions, and why the others cannot."""
    pythons: dict[str, Path] = {}
    for gateway in gateways:
        told(f"installing {gateway.name}")
        try:
            pythons[gateway.name] = python_of(gateway)
            versions[gateway.name] = version_of(gateway, pythons[gateway.name])
        except Unavailable as error:
            pythons.pop(gateway.name, None)
            outcome.skipped[gateway.name] = str(error)
    return pythons


def figures_of(outcome: Outcome, versions: Mapping[str, str], gateways: Sequence[Gateway]) -> dict[str, Any]:
    """Returns what the result file has, see `docs/benchmarks-peers.md`."""
    everything = lines(outcome.blocks, versions)
    # Readers of the file want figures of every line; what has none is told among what is left out.
    made = [each for each in everything if each["mode"] != "unseen" and "added_ttft_ms" in each]
    without = {
        f"{each['gateway']} ({each['mode']} over {each['transport']}, {each['history']} bytes)": (
            f"{each['failed']} of {each['requests']} turns failed: {'; '.join(each.get('failures', ()))}"
        )
        for each in everything
        if "added_ttft_ms" not in each
    }
    described = {
        each.name: {"version": versions[each.name], "stores": each.stores, "idle_mb": round(idle / 1e6, 1)}
        for each in gateways
        if (idle := outcome.idle.get(each.name)) is not None
    }
    return {
        "lines": made,
        "skipped": outcome.skipped | without,
        "unseen": [each for each in everything if each["mode"] == "unseen"],
        "floors": floors(outcome.blocks),
        "growths": growths(outcome.blocks),
        "ahead": ahead(made),
        "gateways": described,
    }


async def _chains(plan: Plan, upstream: Process, turns: int, outcome: Outcome, told: Told) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    url = upstream.addresses["upstream"]
    watch = Watch(url)
    await watch.open()
    try:
        wanted = [each for each in plan.gateways.values() if each.name not in outcome.skipped]
        async with started(wanted, plan.pythons, url) as (answering, failed):
            outcome.skipped.update(failed)
            for name, each in answering.items():
                # The way that is the gateway's own: the last one named.
                transport = each.gateway.chained[-1]
                client = each.client(transport)
                try:
                    await client.open()
                    found.append({"gateway": name, "transport": transport, **await chain(client, watch, turns)})
                finally:
                    await client.close()
                told(f"chained {turns} turns through {name}")
    finally:
        await watch.close()
    return found


def _show(console: Console, measured: Measured) -> None:
    figures = measured.figures
    if figures["lines"]:
        console.print("p50 and its interval of 95%; added is less the upstream's own, asked in the same form")
        for table in tables.figures([*figures["unseen"], *figures["lines"]], figures["floors"]):
            console.print(table)
    for sentence in tables.verdicts(figures["ahead"], figures["growths"]) + tables.chains(figures.get("chains", [])):
        console.print(f"- {sentence}", highlight=False, markup=False)
    for name, reason in figures["skipped"].items():
        console.print(f"- left out: {name}: {reason}", highlight=False, markup=False)
    for line in figures["lines"]:
        for reason in line.get("failures", ()):
            console.print(
                f"- failed: {line['gateway']}, {line['mode']} over {line['transport']}: {reason}",
                highlight=False,
                markup=False,
            )


if __name__ == "__main__":
    sys.exit(main())
