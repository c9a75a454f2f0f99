"""Runs every measurement briefly and prints the figures: `python -m turnwire.bench.smoke`.

It shows that everything runs and what it costs on this machine; it asserts no times. Figures travel badly between
machines: compare within one run, and quote ratios.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict
from typing import Any, Final

import google.protobuf
import grpc
from rich.console import Console
from rich.table import Table

from turnwire.bench import codec, doors, lanes, turns

LANES: Final = (1, 16, 64, 200)
TOKENS_PER_SECOND: Final = 1000
TOKENS: Final = 500


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "protobuf": google.protobuf.__version__,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "machine": platform.machine(),
    }


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


def main() -> int:
    """Measures, prints, and writes the figures as JSON to the file named by the first argument, if any."""
    console = Console()
    result: dict[str, Any] = {"machine": _machine()}
    console.print("The engine is scripted: a simulation of a model at a set speed. CPU time is of whole processes.\n")
    with console.status("JSON codec"):
        result["codec"] = codec.measure()
    console.print(_codec_table(result["codec"]))
    with console.status("continued turns"):
        turn_figures = turns.measure(100)
    result["turn_us_by_kb"] = turn_figures
    console.print(_turns_table(turn_figures))
    with console.status("lanes: one stream against a stream for each response"):
        costs = lanes.measure(LANES, TOKENS_PER_SECOND, TOKENS)
    result["lanes"] = [asdict(cost) for cost in costs]
    console.print(_lanes_table(costs))
    with console.status("a quiet lane beside a flooding one"):
        quiet = lanes.measure_quiet_lane()
    result["quiet_lane_ms"] = asdict(quiet)
    console.print(_quiet_table(quiet))
    with console.status("the doors, beside the bare libraries"):
        costs_of_doors = doors.quick()
    result["doors"] = [asdict(cost) for cost in costs_of_doors]
    console.print("16 responses at once, each at 500 tokens/s:")
    console.print(doors.summary(costs_of_doors))
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
        console.print(f"written to {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
