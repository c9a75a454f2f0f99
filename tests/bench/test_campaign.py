"""Runs, their file, and the lines made of them; nothing is played."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from turnwire.bench.campaign import order, together
from turnwire.bench.drivers.port import IDS, LOGPROBS, TEXT_LOGPROBS, Called, Turn
from turnwire.bench.drivers.records import RolloutRecord, RunRecord
from turnwire.bench.drivers.rollouts import differences, starts
from turnwire.bench.measured import ResultsError
from turnwire.bench.metrics.turns import TurnFigures, gaps_between
from turnwire.bench.results import Options, Results, Run, load, resume, save
from turnwire.bench.scenario.compiling import PlannedCall, PlannedTurn, compile_rollout
from turnwire.bench.scenario.reading import load as load_scenario
from turnwire.bench.scenario.reading import read
from turnwire.bench.scenario.values import Load
from turnwire.bench.summary import headlines, least, remarks
from turnwire.bench.tables import costs, stages, times

OPTIONS = Options("run small", "small", "[[turn]]\ntext = 5", {}, ["grpc-create", "http-full"], 2, [])


def turn(overhead: float) -> TurnFigures:
    return TurnFigures(0.1, 0.01, 0.01, 0.01, 0.01, 0.5, overhead, pre_inference=0.0005, post_inference=0.0005)


def record(driver: str, took: float, **more: object) -> RunRecord:
    made = RunRecord(
        driver,
        rollouts=[RolloutRecord(took=took, turns=[turn(0.002), turn(0.004)], lags=[0.0001])],
        tokens=1000,
        turns=2,
        cpu={"server": 0.02, "bridge": 0.01, "client": 0.05},
        memory={"server": 1000},
        bytes_up=2048,
        bytes_down=4096,
        lateness={"p99": 0.0001},
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def results(*runs: tuple[int, RunRecord]) -> Results:
    return Results(OPTIONS, {"cores": 2}, [Run(*run) for run in runs])


FULL = results(
    (0, record("grpc-create", 6.0)),
    (0, record("http-full", 10.0)),
    (1, record("http-full", 20.0)),
    (1, record("grpc-create", 12.0)),
)


def test_each_driver_is_first_in_turn() -> None:
    assert [order(["a", "b", "c"], n) for n in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_drivers_share_a_server_but_where_memory_is_weighed() -> None:
    names = ["grpc-create", "http-full"]
    assert together(names, load_scenario("codex-fix")) == [names]
    assert together([], load_scenario("codex-fix")) == []
    assert together(names, load_scenario("idle")) == [["grpc-create"], ["http-full"]]


def test_a_line_has_the_figures_of_all_runs() -> None:
    [grpc, http] = headlines(FULL, floor_seconds=8.0, baseline="http-full")
    assert (grpc.driver, grpc.runs, grpc.rollouts, grpc.failed) == ("grpc-create", 2, 2, 0)
    assert grpc.end_to_end.value == 9.0
    assert grpc.above_floor == pytest.approx(0.125)
    assert grpc.faster is not None
    assert grpc.faster.value == pytest.approx(0.4)
    assert http.faster is None
    assert grpc.overhead.value == pytest.approx(0.003)
    # 30 ms CPU in each of two runs, over 2,000 tokens and 4 turns.
    assert grpc.server_per_token == pytest.approx(30e-6)
    assert grpc.server_per_turn == pytest.approx(0.015)
    assert grpc.client_per_token == pytest.approx(50e-6)
    assert grpc.parts.api == pytest.approx(0.001)
    assert grpc.parts.rest == pytest.approx(0.002)
    assert (grpc.up_per_turn, grpc.down_per_turn) == (1024, 2048)


def test_tables_fit_a_terminal_with_every_figure_whole() -> None:
    console = Console(width=118, record=True, file=StringIO())
    lines = headlines(FULL, floor_seconds=8.0, baseline="http-full")
    console.print(times(lines, "http-full"))
    console.print(costs(lines))
    console.print(stages(lines))
    shown = console.export_text()
    assert "…" not in shown
    for figure in (
        "9.00 (6.00 to 12.00)",
        "12.5%",
        "40.0 (40.0 to 40.0)",
        "3.0 (3.0 to 3.0)",
        "0/2",
        "15.0",
        "1.0",
        "1.00",
        "not told",
    ):
        assert figure in shown


def test_the_floor_counts_forked_lanes_once() -> None:
    source = (
        '[speed]\nttft = "10ms"\n[fork]\nafter = 1\nlanes = 4\n[[turn]]\ntext = 1\nthink = "1s"\n[[turn]]\ntext = 1'
    )
    assert least(compile_rollout(read(source, "s.toml")), 0.05) == pytest.approx(1.0 + 2 * 0.01 + 2 * 0.05)


def test_what_has_no_network_has_no_distance_and_no_share_and_says_so() -> None:
    alone = [(n, record("null", 5.0, bytes_up=0, bytes_down=0)) for n in (0, 1)]
    found = results(*alone, *((run.repetition, run.record) for run in FULL.runs))
    found = replace(found, options=replace(OPTIONS, drivers=["http-full", "null"]))
    lines = headlines(found, floor_seconds=8.0, baseline="http-full")
    assert [(line.driver, line.direct, line.faster, math.isinf(line.above_floor)) for line in lines] == [
        ("http-full", False, None, False),
        ("null", True, None, True),
    ]
    assert [said for said in remarks(lines, found) if said.startswith("null: no server and no network")]


def test_runs_that_failed_have_no_figures_and_rollouts_that_failed_are_counted() -> None:
    broken = record("grpc-create", 1.0)
    broken.rollouts.append(RolloutRecord(took=0.1, failure="lost"))
    lines = headlines(results((0, broken), (1, record("grpc-create", 9.0, failure="died"))), 1.0, "http-full")
    assert [(line.runs, line.rollouts, line.failed, line.end_to_end.value) for line in lines] == [(1, 2, 1, 1.0)]
    said = remarks(lines, results((0, broken)))
    assert "grpc-create: 1 of 2 rollouts failed." in said
    assert "grpc-create: one run only, so there is no interval." in said


def test_noise_and_lateness_are_told() -> None:
    noisy = results(
        (0, record("http-full", 1.0, load_before=5.0, lateness={"p99": 0.004})),
        (1, record("http-full", 2.0)),
    )
    for run in noisy.runs:
        run.record.rollouts[0].lags = [0.01]
        run.record.rollouts[0].start_lag = 0.01
    said = " ".join(remarks(headlines(noisy, 1.0, "http-full"), noisy))
    for words in ("a load of 0.0 to 5.0", "unsure by more than 5%", "10.0 ms late at p99", "up to 4.0 ms late"):
        assert words in said


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    save(FULL, tmp_path / "r.json")
    assert load(tmp_path / "r.json") == FULL
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_what_was_measured_is_not_measured_again_and_what_failed_is(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    save(results((0, record("grpc-create", 6.0)), (1, record("grpc-create", 6.0, failure="died"))), path)
    resumed = resume(path, OPTIONS, {"cores": 2})
    assert resumed.has(0, "grpc-create")
    assert not resumed.has(1, "grpc-create")
    assert not resumed.has(0, "http-full")
    assert len(resumed.runs) == 1


def test_nothing_is_there_before_the_first_time(tmp_path: Path) -> None:
    assert resume(tmp_path / "new.json", OPTIONS, {}).runs == []


def test_other_measurements_and_machines_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    save(FULL, path)
    with pytest.raises(ResultsError, match="another machine or versions"):
        resume(path, OPTIONS, {"cores": 64})
    other = Options("", "small", "[[turn]]\ntext = 6", {}, [], 1, [])
    with pytest.raises(ResultsError, match="another scenario"):
        resume(path, other, {"cores": 2})


@pytest.mark.parametrize("text", ["", "{}", "[1"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"r\.json"):
        load(path)


def test_rollouts_begin_at_random_but_at_the_rate_that_was_set() -> None:
    moments = starts(Load(101, 1, 20.0), seed=3)
    assert len(moments) == 101
    assert moments[0] == 0.0
    assert moments[-1] == pytest.approx(100 / 20.0)
    assert moments == starts(Load(101, 1, 20.0), seed=3) != starts(Load(101, 1, 20.0), seed=4)
    gaps = gaps_between(moments)
    assert max(gaps) > 3 / 20.0 > min(gaps) >= 0
    assert starts(Load(1, 1, 20.0), seed=3) == [0.0]


def test_differences_are_told_shortly() -> None:
    planned = PlannedTurn("a" * 500, (PlannedCall("look", "{}", 0.0, "out"),), "", 1, 0.0, 0.0, 0.0)
    same = Turn(text=["a" * 200, "a" * 300], calls=[Called("call_1", "look", "{}")])
    assert differences(same, planned) == []
    [text, calls] = differences(Turn(text=["b"]), planned)
    assert text.endswith("(500 characters), found 'b'")
    assert "found '[]'" in calls


def test_token_ids_and_log_probabilities_are_counted_where_they_were_asked_for() -> None:
    planned = PlannedTurn("a", (), "", 9, 0.0, 0.0, 0.0, text_tokens=4)
    right = {IDS: 9, LOGPROBS: 9, TEXT_LOGPROBS: 4}
    assert differences(Turn(text=["a"], counts=right), planned) == []
    assert differences(Turn(text=["a"], counts=right | {IDS: 0, TEXT_LOGPROBS: 9}), planned) == [
        "token ids: expected 9, found 0",
        "log-probabilities of text: expected 4, found 9",
    ]
