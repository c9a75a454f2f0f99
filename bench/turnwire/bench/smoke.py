"""Verifies all drivers, and measures briefly and prints the figures: `python -m turnwire.bench.smoke`.

It shows that everything runs and what it costs on this machine; it asserts no times. Figures travel badly between
machines: compare within one run, and quote ratios. For figures to keep there are the suites.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Final

from rich.console import Console
from rich.table import Table

from turnwire.bench import codec, doors, lanes, turns
from turnwire.bench.doors_tables import summary

LANES: Final = (1, 16, 64)
TOKENS_PER_SECOND: Final = 1000
TOKENS: Final = 300


def _codec_table(figures: dict[str, float]) -> Table:
    table = Table("JSON codec", "figure", "aim", title_justify="left")
    table.add_row("one text delta to JSON", f"{figures['text_delta_encode_us']:.1f} µs", "under 5 µs")
    table.add_row("1 MB history of 2,000 items from JSON", f"{figures['history_decode_ms']:.1f} ms", "under 40 ms")
    table.add_row("the same to JSON", f"{figures['history_encode_ms']:.1f} ms", "")
    return table


def _turns_table(figures: dict[int, float]) -> Table:
    table = Table("server work of a continued turn", "median", "against the shortest")
    least = figures[min(figures)]
    for kilobytes, microseconds in figures.items():
        table.add_row(f"{kilobytes:,} KB of history", f"{microseconds:.0f} µs", f"{microseconds / least:.2f} times")
    return table


def _lanes_table(costs: list[lanes.LaneCost]) -> Table:
    table = Table(
        f"responses at {TOKENS_PER_SECOND} tokens/s", "streams", "server µs/token", "client µs/token", "time / ideal"
    )
    for cost in costs:
        table.add_row(
            str(cost.lanes),
            str(cost.streams),
            f"{cost.server_us:.1f}",
            f"{cost.client_us:.1f}",
            f"{cost.stretch:.2f}",
        )
    return table


def _quiet_table(quiet: lanes.QuietLane) -> Table:
    table = Table("delay of a quiet lane's tokens", "p50", "p99")
    table.add_row("alone", f"{quiet.alone_p50:.1f} ms", f"{quiet.alone_p99:.1f} ms")
    table.add_row(
        "beside a flooding lane of the same stream", f"{quiet.flooded_p50:.1f} ms", f"{quiet.flooded_p99:.1f} ms"
    )
    return table


def _verified(console: Console) -> bool:
    """Whether all drivers give the text and the tool calls of a scenario; says so, or what is wrong."""
    command = (sys.executable, "-m", "turnwire.bench.run", "chat-short", "--verify-only")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    console.print((ended.stdout + ended.stderr).strip(), highlight=False)
    return not ended.returncode


def main() -> int:
    """Verifies, measures briefly and prints. Returns 1 where a driver does not do what the scenario says."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.smoke",
        description="Verifies all drivers, and measures codec, turns, lanes and doors briefly. Asserts no times.",
    )
    parser.parse_args()
    console = Console(width=120)
    console.print("The engine is scripted: a simulation of a model at a set speed. CPU time is of whole processes.\n")
    with console.status("verifying all drivers"):
        verified = _verified(console)
    with console.status("JSON codec"):
        console.print(_codec_table(codec.measure()))
    with console.status("continued turns"):
        console.print(_turns_table(turns.measure(20)))
    with console.status("lanes: one stream against a stream for each response"):
        console.print(_lanes_table(lanes.measure(LANES, TOKENS_PER_SECOND, TOKENS)))
    with console.status("a quiet lane beside a flooding one"):
        console.print(_quiet_table(lanes.measure_quiet_lane()))
    with console.status("the doors, beside the bare libraries"):
        (costs,) = doors.measure(doors.QUICK, lambda what: None)
    console.print("16 responses at once, each at 500 tokens/s:")
    console.print(summary(costs))
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
