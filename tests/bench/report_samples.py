"""Result files with invented figures, for tests of the report: none of it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from turnwire.bench.ablation import ORDER, Figure
from turnwire.bench.doors_cost import Cost
from turnwire.bench.drivers.records import RolloutRecord, RunRecord
from turnwire.bench.measured import Measured, write
from turnwire.bench.metrics.turns import TurnFigures
from turnwire.bench.results import Options, Results, Run

MACHINE: dict[str, object] = {
    "processor": "invented",
    "cores": 2,
    "system": "Linux",
    "python": "3.11",
    "grpc": "1.85",
    "packages": {},
}
DATE = "2026-01-02T03:04:05+00:00"
DRIVERS = {"grpc-append": 0.0, "grpc-create": 0.002, "ws-append": 0.001, "native-append": 0.0, "http-full": 0.3}
"""Seconds that each takes longer, in the invention."""


def measured(kind: str, figures: Mapping[str, object], **more: object) -> Measured:
    command = f"python -m turnwire.bench.{kind} --invented"
    made = Measured(kind, command, MACHINE, DATE, 0.5, 0.75, dict(figures), "complete")
    for name, value in more.items():
        setattr(made, name, value)
    return made


def rollouts(
    overrides: dict[str, str], drivers: dict[str, float] = DRIVERS, repeat: int = 3, scenario: str = "invented"
) -> Results:
    source = 'description = "Invented."\n[speed]\ntokens_per_second = 1000\n[[turn]]\ntext = 101'
    options = Options(f"python -m turnwire.bench.run {scenario}", scenario, source, overrides, [*drivers], repeat, [])
    runs = [Run(n, _run(name, extra, n)) for n in range(repeat) for name, extra in drivers.items()]
    return Results(options, MACHINE, runs, ended="complete", date=DATE)


def _run(driver: str, extra: float, repetition: int) -> RunRecord:
    overhead = 0.004 + extra + repetition * 0.0001
    turn = TurnFigures(0.01 + extra, 0.001, 0.001, 0.002, 0.003, 0.1 + overhead, overhead)
    return RunRecord(
        driver,
        [RolloutRecord(0.1 + overhead, turns=[turn])],
        tokens=100,
        turns=1,
        cpu={"server": 0.01, "client": 0.005},
        memory={"server": 100 * 1024**2, "server_idle": 300 * 1024**2, "server_before": 100 * 1024**2},
        bytes_up=1000,
        bytes_down=2000,
        lateness={"p99": 0.0001},
        load_before=0.5,
    )


def idle_rollouts() -> Results:
    made = rollouts({})
    made.options = Options(
        "python -m turnwire.bench.run idle",
        "idle",
        "[idle]\nsessions = 1000\n[[turn]]\ntext = 101",
        {},
        [*DRIVERS],
        3,
        [],
    )
    return made


def costs() -> list[Cost]:
    doors = {
        "gRPC, one stream": (180.0, 30.0),
        "bare grpc.aio, one stream": (120.0, 25.0),
        "WebSocket, 16 lanes a socket": (120.0, 220.0),
        "WebSocket, a socket each": (125.0, 225.0),
        "WebSocket `turnwire.v1`, one socket": (110.0, 22.0),
        "HTTP and SSE": (130.0, 250.0),
    }
    return [
        Cost(name, lanes, parsed, us / lanes**0.6, 0.0, us / lanes**0.8 / 2, size, 1.0, 1.0 * lanes, 500.0)
        for name, (us, size) in doors.items()
        for lanes in (1, 16, 200)
        for parsed in (False, True)
    ]


def others() -> dict[str, Measured]:
    """Returns one file of each kind but rollouts, by kind."""
    turn = {"median_us": 300.0, "low_us": 290.0, "high_us": 310.0, "ratio": [1.0], "visited": {"validation": 1}}
    steps = tuple((100.0 - 6 * n, 110.0 - 6 * n) for n in range(len(ORDER) + 1))
    figures = [Figure(name, steps, tuple((60.0, 70.0) for _ in ORDER), 0.8) for name in ("tiny", "chat")]
    kept = {"items": 500_000, "counted": 900_000, "beside": 400_000, "process": 1_200_000}
    peers = [
        {
            "gateway": gateway,
            "version": "1",
            "mode": mode,
            "transport": transport,
            "history": history,
            "requests": 30,
            "failed": 0,
            "ttft_ms": [added + 5, added + 4, added + 6],
            "total_ms": [added + 50, added + 45, added + 55],
            "added_ttft_ms": [added, added * 0.9, added * 1.1],
            "cpu_ms": 3.0,
            "memory_mb": 120.0,
        }
        for gateway, transport, growth in (("turnwire", "grpc", 0.0), ("turnwire", "ws", 0.0), ("other", "sse", 10.0))
        for mode in ("full", "chained")
        for history in (1024, 102400, 1048576)
        for added in (1.0 + growth * history / 1048576,)
    ]
    pace = {
        "driver": "grpc-append",
        "tokens_per_second": 4000,
        "burst": 8,
        "tokens": 1000,
        "rate": 0.999,
        "delay_p50_ms": 0.5,
        "delay_p99_ms": 2.0,
        "engine_p99_ms": 0.7,
        "net_p99_ms": 1.3,
    }
    histories = {"1": turn, "100": turn, "1000": turn, "10000": turn}
    memory = {
        "idle": {"shared_connection": 20_000, "own_connection": 48_000, "objects": 6_000},
        "conversations": {"tokens": kept, "chat": kept},
    }
    samples = [[float(n), 10.0 * n, 100e6 + 1000.0 * n] for n in range(20)]
    skipped = {"third": "does not install on Python 3.11"}
    chains = [
        {"gateway": "turnwire", "turns": 200, "messages": 399, "expected": 399},
        {"gateway": "other", "turns": 200, "messages": 199, "expected": 399, "wrong_from": 101},
    ]
    return {
        "turns": measured("turns", {"items": histories, "harmony": histories}),
        "doors": measured("doors", {"costs": [asdict(cost) for cost in costs()]}),
        "pace": measured("pace", {"lines": [pace]}),
        "memory": measured("memory", memory),
        "ablation": measured("ablation", {"order": list(ORDER), "figures": [asdict(figure) for figure in figures]}),
        "peers": measured("peers", {"lines": peers, "skipped": skipped, "chains": chains}),
        "soak": measured("soak", {"samples": samples, "growth_bytes_per_rollout": [100.0, 50.0, 150.0], "flat": True}),
    }


def write_everything(folder: Path) -> None:
    """Writes a folder that has a file of every kind."""
    for kind, content in others().items():
        write(content, folder / f"{kind}.json")
    for tps in ("65", "1000"):
        for rtt in ("0ms", "50ms"):
            write(rollouts({"tps": tps, "rtt": rtt}), folder / f"rollouts-{tps}-{rtt}.json")
    for history in ("1KiB", "100KiB", "1MiB"):
        write(rollouts({"history": history}, scenario="long-history"), folder / f"history-{history}.json")
    write(idle_rollouts(), folder / "idle.json")
