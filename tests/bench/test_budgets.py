"""The budgets: each met, missed and not measured, from files made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from turnwire.bench.budgets.judging import budgets
from turnwire.bench.budgets.line import Line, Verdict, markdown, table
from turnwire.bench.drivers.records import RolloutRecord, RunRecord
from turnwire.bench.folder import read_folder
from turnwire.bench.measured import Measured, write
from turnwire.bench.metrics.turns import TurnFigures
from turnwire.bench.results import Options, Results, Run
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import load, source_of
from turnwire.bench.summary import least

KB = 1024


def lines(folder: Path, id: str) -> list[Line]:
    return [line for line in budgets(read_folder(folder)) if line.id == id]


def verdicts(folder: Path, id: str) -> list[str]:
    return [line.verdict.value for line in lines(folder, id)]


def put(folder: Path, kind: str, figures: Mapping[str, Any]) -> None:
    write(
        Measured(kind, "…", {}, "2026-01-01T00:00:00+00:00", 0.0, 0.0, dict(figures), "complete"),
        folder / f"{kind}.json",
    )


def test_an_empty_folder_has_nothing_measured_and_says_what_measures_it(tmp_path: Path) -> None:
    found = budgets(read_folder(tmp_path))
    assert {line.id for line in found} == {f"P{n}" for n in range(1, 9)}
    assert {line.verdict for line in found} == {Verdict.NOT_MEASURED}
    assert lines(tmp_path, "P8")[0].words == "not measured: run `make bench-peers`"
    assert lines(tmp_path, "P1")[0].words == "not measured: run `make bench`"


def turns(longest: float, ratio: Sequence[float] | None = None) -> dict[str, Any]:
    behind: dict[str, dict[str, Any]] = {
        "1": {"median_us": 200.0, "low_us": 190.0, "high_us": 210.0, "visited": {}},
        "10240": {"median_us": longest, "low_us": longest - 9, "high_us": longest + 9, "visited": {}},
    }
    if ratio is not None:
        behind["10240"]["ratio"] = list(ratio)
    return {"items": behind, "harmony": behind}


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        (turns(220), ["met", "met"]),
        (turns(260), ["missed", "met"]),
        (turns(1100), ["missed", "missed"]),
        (turns(260, [1.1, 1.05, 1.15]), ["met", "met"]),
        (turns(200, [1.3, 1.25, 1.4]), ["missed", "met"]),
    ],
    ids=["flat", "grows", "slow", "flat-within-runs", "grows-within-runs"],
)
def test_p1_a_turn_is_flat_and_brief(tmp_path: Path, figures: dict[str, Any], expected: list[str]) -> None:
    put(tmp_path, "turns", figures)
    assert verdicts(tmp_path, "P1") == expected


def test_a_verdict_says_when_the_interval_goes_beyond_the_budget(tmp_path: Path) -> None:
    put(tmp_path, "turns", turns(220, [1.19, 1.1, 1.3]))
    assert lines(tmp_path, "P1")[0].words == "met, but the interval goes beyond the budget"
    assert lines(tmp_path, "P1")[1].words == "met"


FLOOR = least(compile_rollout(load("codex-fix")), load("codex-fix").network.rtt)


def record(driver: str, took: float) -> RunRecord:
    turn = TurnFigures(0.1, 0.001, 0.001, 0.002, 0.003, 0.2, 0.002)
    made = RunRecord(driver, [RolloutRecord(took, turns=[turn])], tokens=10, turns=1)
    made.cpu, made.memory, made.lateness = {"server": 0.1, "client": 0.1}, {"server": 1}, {"p99": 0.0}
    return made


def rollouts(folder: Path, took: Mapping[str, float], **more: Any) -> None:
    given: dict[str, Any] = {"overrides": {}, "flags": [], "source": source_of("codex-fix"), **more}
    options = Options("…", "codex-fix", given["source"], given["overrides"], list(took), 3, given["flags"])
    runs = [Run(n, record(driver, FLOOR * share)) for n in range(3) for driver, share in took.items()]
    write(Results(options, {"cores": 2}, runs, ended="complete"), folder / "codex.json")


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        ({"grpc-append": 1.02, "http-full": 1.8}, ["met", "met"]),
        ({"grpc-append": 1.04, "http-full": 1.1}, ["missed", "missed"]),
        ({"grpc-append": 1.02}, ["not measured", "met"]),
        ({"http-full": 1.02}, ["not measured", "not measured"]),
    ],
    ids=["far-ahead", "behind", "no-http", "no-grpc"],
)
def test_p2_a_rollout_against_http_and_the_floor(tmp_path: Path, took: dict[str, float], expected: list[str]) -> None:
    rollouts(tmp_path, took)
    assert verdicts(tmp_path, "P2") == expected


def test_p2_shows_new_connections_beside_kept_ones(tmp_path: Path) -> None:
    rollouts(tmp_path, {"grpc-append": 1.0, "http-full": 1.25, "http-full-new": 2.0})
    figure = lines(tmp_path, "P2")[0].figure
    assert figure.startswith("grpc-append: 20.0 (20.0 to 20.0)% than over kept")
    assert figure.endswith("than new connections each turn 50.0 (50.0 to 50.0)%")


@pytest.mark.parametrize(
    "more",
    [{"overrides": {"rtt": "0ms"}}, {"flags": ["--known"]}, {"source": "[[turn]]\ntext = 5"}],
    ids=["another-network", "another-server", "another-scenario"],
)
def test_p2_counts_only_the_scenario_as_it_is_shipped(tmp_path: Path, more: dict[str, Any]) -> None:
    rollouts(tmp_path, {"grpc-append": 1.02, "http-full": 1.8}, **more)
    assert verdicts(tmp_path, "P2") == ["not measured", "not measured"]


def test_p2_shows_the_same_rollout_over_a_narrow_network_beside_it(tmp_path: Path) -> None:
    rollouts(tmp_path, {"grpc-append": 1.0, "http-full": 1.25}, overrides={"bandwidth_mbit": "20"})
    *measured, narrow = lines(tmp_path, "P2")
    assert [line.verdict for line in measured] == [Verdict.NOT_MEASURED, Verdict.NOT_MEASURED]
    assert (narrow.what, narrow.verdict) == ("the same over RTT 50 ms, 20 Mbit/s", Verdict.NO_BUDGET)
    assert narrow.figure == "grpc-append: 20.0 (20.0 to 20.0)% faster than over kept connections"


@pytest.mark.parametrize(("chat", "expected"), [(40.0, "met"), (60.0, "missed")], ids=["halved", "hardly"])
def test_p3_the_first_token_with_everything_cached_by_the_model_that_gains_least(
    tmp_path: Path, chat: float, expected: str
) -> None:
    models = [
        {"model": name, "steps": [[100.0, 110.0], [last, 90.0]], "alone": [[100.0, 110.0]], "spread": 1.0}
        for name, last in (("tiny", 10.0), ("chat", chat))
    ]
    put(tmp_path, "ablation", {"order": ["all of them"], "figures": models})
    assert verdicts(tmp_path, "P3") == [expected]


def pace(rate: float, net: float, speed: float = 1000, burst: int = 1, driver: str = "grpc-append") -> dict[str, Any]:
    figures = {"delay_p50_ms": 0.1, "delay_p99_ms": net + 1, "engine_p99_ms": 1.0, "net_p99_ms": net}
    return {"driver": driver, "tokens_per_second": speed, "burst": burst, "tokens": 500, "rate": rate, **figures}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([pace(1.0, 4.0), pace(0.999, 3.0, 4000, 8)], ["met", "met", "met", "met"]),
        ([pace(0.9, 6.0), pace(0.95, 9.0, 4000, 8)], ["missed", "missed", "missed", "missed"]),
        ([pace(1.0, 4.0)], ["met", "met", "not measured", "not measured"]),
        ([pace(1.0, 4.0, driver="ws-create")], ["not measured"] * 4),
        ([pace(1.0, 9.0, driver="grpc-create"), pace(1.0, 1.0)], ["met", "met", "not measured", "not measured"]),
    ],
    ids=["held", "lost", "no-bursts", "no-grpc", "append-counts-first"],
)
def test_p4_pace_sustained_and_in_bursts(tmp_path: Path, given: list[dict[str, Any]], expected: list[str]) -> None:
    put(tmp_path, "pace", {"lines": given})
    assert verdicts(tmp_path, "P4") == expected


def cost(
    door: str, server: float, client: float = 1.0, down: float = 1.0, lanes: int = 200, **more: Any
) -> dict[str, Any]:
    figures = {"front_us": 0.0, "stretch": 1.0, "turn_ms": 1.0, "turn_us": 1.0, "parsed": True, **more}
    return {"door": door, "lanes": lanes, "server_us": server, "client_us": client, "bytes_down": down, **figures}


def doors(grpc_server: float, grpc_client: float) -> list[dict[str, Any]]:
    return [
        cost("gRPC, one stream", grpc_server, grpc_client),
        cost("WebSocket, a socket each", 26.0, 12.0),
        # A client that does not parse is no match for one that does.
        cost("WebSocket, a socket each", 26.0, 1.0, parsed=False),
        cost("WebSocket, 16 lanes a socket", 16.0, 4.0),
        cost("WebSocket, one socket", 11.0, 3.0),
        cost("core alone", 6.0, 0.0, parsed=False),
    ]


@pytest.mark.parametrize(
    ("server", "client", "expected"),
    [
        (15.0, 2.9, ["met", "met", "met", "met"]),
        (17.0, 4.3, ["missed", "missed", "missed", "missed"]),
        (16.2, 4.1, ["missed", "missed", "met", "met"]),
    ],
    ids=["ahead", "behind", "even-within-noise"],
)
@pytest.mark.parametrize("rounds", [False, True], ids=["medians-only", "rounds"])
def test_p5_cpu_a_token_net_of_the_core(
    tmp_path: Path, server: float, client: float, expected: list[str], rounds: bool
) -> None:
    costs = doors(server, client)
    put(tmp_path, "doors", {"costs": costs, **({"rounds": [costs, costs]} if rounds else {})})
    assert verdicts(tmp_path, "P5") == [*expected, "no budget", "no budget"]


def test_p5_tells_the_ratio_with_the_core_beside_the_one_net_of_it(tmp_path: Path) -> None:
    put(tmp_path, "doors", {"costs": doors(16.0, 3.0)})
    assert [line.figure for line in lines(tmp_path, "P5")[:2]] == ["0.50 times; 0.62 with the core", "0.25 times"]


def test_p5_is_not_measured_net_of_a_core_that_was_not_measured(tmp_path: Path) -> None:
    put(tmp_path, "doors", {"costs": [each for each in doors(16.0, 3.0) if each["door"] != "core alone"]})
    assert verdicts(tmp_path, "P5")[:2] == ["not measured", "met"]


@pytest.mark.parametrize(
    ("batched", "alone", "expected"),
    [(30.0, 49.0, ["met", "met"]), (32.0, 51.0, ["missed", "missed"])],
    ids=["few-bytes", "many-bytes"],
)
def test_p6_bytes_a_token(tmp_path: Path, batched: float, alone: float, expected: list[str]) -> None:
    costs = [
        cost("gRPC, one stream", 1, down=batched),
        cost("WebSocket, 16 lanes a socket", 1, down=250),
        cost("WebSocket, 16 lanes, deflate", 1, down=17, parsed=False),
        cost("gRPC, one stream", 1, down=alone, lanes=1),
        cost("WebSocket, 16 lanes a socket", 1, down=250, lanes=1),
    ]
    put(tmp_path, "doors", {"costs": costs})
    assert verdicts(tmp_path, "P6") == expected
    assert lines(tmp_path, "P6")[0].figure.endswith("against 250, 17 with deflate")


@pytest.mark.parametrize(
    ("own", "objects", "beside", "expected"),
    [
        (50 * KB, 8 * KB, 1024 * KB, ["met", "met", "met"]),
        (50 * KB + 1, 8 * KB + 1, 1024 * KB + 1, ["missed", "missed", "missed"]),
    ],
    ids=["at-the-budget", "over-it"],
)
def test_p7_memory(tmp_path: Path, own: int, objects: int, beside: int, expected: list[str]) -> None:
    idle = {"shared_connection": 40 * KB, "own_connection": own, "objects": objects}
    kept = {"items": 400 * KB, "counted": 400 * KB + beside, "process": 1}
    conversations = {"tokens": {**kept, "beside": beside}, "chat": {**kept, "beside": 1}}
    put(tmp_path, "memory", {"idle": idle, "conversations": conversations})
    assert verdicts(tmp_path, "P7") == expected


def peer(
    gateway: str, history: int, added: Sequence[float], mode: str = "chained", transport: str = "sse"
) -> dict[str, Any]:
    names = {"gateway": gateway, "version": "1", "mode": mode, "transport": transport, "history": history}
    figures = {"ttft_ms": [9.0], "total_ms": [9.0], "added_ttft_ms": list(added), "cpu_ms": 1.0, "memory_mb": 1.0}
    return {**names, "requests": 5, "failed": 0, **figures}


@pytest.mark.parametrize(
    ("longest", "other", "expected"),
    [(1.9, 2.5, ["met", "met"]), (1.9, 1.8, ["missed", "met"]), (2.1, 2.5, ["met", "missed"])],
    ids=["ahead", "behind-at-one-size", "grows"],
)
def test_p8_ahead_of_every_gateway_at_every_size(
    tmp_path: Path, longest: float, other: float, expected: list[str]
) -> None:
    given = [
        peer("turnwire", KB, [1.0], transport="grpc"),
        peer("turnwire", KB, [9.0]),
        peer("turnwire", KB**2, [longest], transport="grpc"),
        peer("other", KB, [1.5]),
        peer("other", KB**2, [other]),
        peer("other", KB**2, [0.1], mode="full"),
    ]
    put(tmp_path, "peers", {"lines": given, "skipped": {}})
    assert verdicts(tmp_path, "P8") == expected
    assert "1 MB: " in lines(tmp_path, "P8")[0].figure


def test_p8_is_unsure_where_intervals_overlap_and_not_measured_without_any_other(tmp_path: Path) -> None:
    ours = peer("turnwire", KB, [1.0, 0.5, 2.0])
    put(tmp_path, "peers", {"lines": [ours, peer("other", KB, [1.5, 1.4, 1.6])], "skipped": {}})
    assert lines(tmp_path, "P8")[0].words == "met, but the interval goes beyond the budget"
    put(tmp_path, "peers", {"lines": [ours], "skipped": {"other": "cannot be had"}})
    assert verdicts(tmp_path, "P8") == ["not measured", "met"]


def test_the_table_is_shown_in_markdown_and_on_terminals(tmp_path: Path) -> None:
    put(tmp_path, "turns", turns(220))
    found = budgets(read_folder(tmp_path))
    text = markdown(found)
    assert "| P1 | the same, at the median | under 1 ms |" in text
    assert text.count("\n") == len(found) + 2
    console = Console(width=200, record=True, file=None)
    with console.capture() as shown:
        console.print(table(found))
    assert "make bench-peers" in shown.get()
