"""Two measurements against each other: what a change is called, which files go together, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnwire.bench.compare.__main__ import main
from turnwire.bench.compare.change import Figure, Verdict, changed
from turnwire.bench.compare.figures import of_measured, of_rollouts
from turnwire.bench.compare.pairing import compared, differences
from turnwire.bench.drivers.records import RolloutRecord, RunRecord
from turnwire.bench.measured import Measured, write
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.metrics.turns import TurnFigures
from turnwire.bench.results import Options, Results, Run


def figure(*runs: float, **more: Any) -> Figure:
    return Figure("time", "s", runs, **more)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (figure(10, 10.1, 9.9), figure(12, 12.1, 11.9), Verdict.WORSE),
        (figure(10, 10.1, 9.9), figure(8, 8.1, 7.9), Verdict.BETTER),
        (figure(10, 10.1, 9.9), figure(10.2, 10.1, 10.0), Verdict.SAME),
        (figure(10, 10.1, 9.9), figure(9, 10.5, 14), Verdict.UNSURE),
        (figure(10), figure(12), Verdict.UNSURE),
        (figure(10, more_is_better=True, exact=True), figure(12, more_is_better=True, exact=True), Verdict.BETTER),
        (figure(10, exact=True), figure(12, exact=True), Verdict.WORSE),
        (figure(10, exact=True), figure(10.4, exact=True), Verdict.SAME),
    ],
    ids=["worse", "better", "same", "scattered", "one-run", "more-is-better", "counted", "counted-within-noise"],
)
def test_a_change_is_called_by_its_whole_interval(old: Figure, new: Figure, verdict: Verdict) -> None:
    assert changed(old, new).verdict is verdict


def test_the_noise_decides_from_where_on_a_change_is_one() -> None:
    old, new = figure(10, 10, 10), figure(11, 11, 11)
    assert changed(old, new, 0.05).verdict is Verdict.WORSE
    assert changed(old, new, 0.2).verdict is Verdict.SAME
    relative = changed(old, new).relative
    assert [relative.value, relative.low, relative.high] == pytest.approx([0.1, 0.1, 0.1])


def test_of_intervals_alone_the_change_is_as_wide_as_both_allow() -> None:
    old, new = (Figure("time", "s", interval=Interval(value, value - 1, value + 1)) for value in (10.0, 12.0))
    change = changed(old, new)
    assert [change.relative.low, change.relative.high] == pytest.approx([11 / 11 - 1, 13 / 9 - 1])
    assert change.verdict is Verdict.UNSURE


def test_there_is_no_change_from_nothing() -> None:
    with pytest.raises(ValueError, match="time: there is no change from 0"):
        changed(figure(0.0), figure(1.0))


OPTIONS = Options("…", "small", "[[turn]]\ntext = 5", {}, ["grpc-append", "http-full"], 3, [])
MACHINE = {"cores": 2, "packages": {"turnwire": "0.1.0", "grpcio": "1.85"}}


def rollouts(took: Mapping[str, float], **more: Any) -> Results:
    runs: list[Run] = []
    for repetition in range(3):
        for driver, seconds in took.items():
            turn = TurnFigures(0.1, 0.001, 0.001, 0.002, 0.003, 0.2, 0.002)
            record = RunRecord(driver, [RolloutRecord(seconds + repetition / 100, turns=[turn])], tokens=10, turns=1)
            record.cpu, record.memory = {"server": 0.1, "client": 0.1}, {"server": 1024**2}
            record.bytes_up = record.bytes_down = 500
            runs.append(Run(repetition, record))
    options = replace(OPTIONS, **{name: value for name, value in more.items() if name != "machine"})
    return Results(options, more.get("machine", MACHINE), runs, ended="complete")


def test_rollouts_are_compared_by_driver_and_run() -> None:
    found = compared("x", rollouts({"grpc-append": 5.0, "http-full": 6.0}), rollouts({"grpc-append": 8.0}), 0.05)
    by_name = {change.name: change.verdict for change in found.changes}
    assert by_name["grpc-append: end to end"] is Verdict.WORSE
    assert by_name["grpc-append: bytes up a turn"] is Verdict.SAME
    assert "http-full: end to end" in found.only_old
    assert not found.only_new


def test_a_run_in_which_everything_failed_has_no_figures() -> None:
    failed = rollouts({"grpc-append": 5.0})
    for run in failed.runs:
        run.record.rollouts[0].failure = "broken"
    assert of_rollouts(failed) == []


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (rollouts({}, overrides={"rtt": "0ms"}), "overrides: {} against {'rtt': '0ms'}"),
        (rollouts({}, source="[[turn]]\ntext = 6"), "source: another text of the scenario"),
        (rollouts({}, flags=["--known"]), "flags: [] against ['--known']"),
        (rollouts({}, machine={**MACHINE, "cores": 4}), "cores: 2 against 4"),
        (
            rollouts({}, machine={"cores": 2, "packages": {"turnwire": "0.1.0", "grpcio": "1.9"}}),
            "grpcio: 1.85 against 1.9",
        ),
        (Measured("turns", "…", MACHINE, "", 0.0), "one is of kind rollouts, the other of kind turns"),
    ],
    ids=["network", "scenario", "flags", "machine", "library", "kind"],
)
def test_pears_and_apples_are_told_by_what_differs(new: Results | Measured, said: str) -> None:
    assert differences(rollouts({}), new) == [said]


def test_another_version_of_the_project_itself_is_what_is_compared() -> None:
    newer = {"cores": 2, "packages": {"turnwire": "0.2.0", "grpcio": "1.85"}}
    assert differences(rollouts({}), rollouts({}, machine=newer)) == []


def measured(kind: str, figures: Mapping[str, Any], command: str = "python -m turnwire.bench.x --out a") -> Measured:
    return Measured(kind, command, MACHINE, "", 0.0, 0.0, dict(figures), "complete")


def cost(**more: Any) -> dict[str, Any]:
    figures = {"front_us": 0.0, "client_us": 3.0, "bytes_down": 25.0, "stretch": 1.0, "turn_ms": 1.0, "turn_us": 1.0}
    return {"door": "gRPC", "lanes": 200, "parsed": True, "server_us": 8.0, **figures, **more}


TURN: dict[str, Any] = {"median_us": 200.0, "low_us": 190.0, "high_us": 210.0, "visited": {}}
KEPT: dict[str, Any] = {"items": 1, "counted": 2, "beside": 3, "process": 4}


@pytest.mark.parametrize(
    ("kind", "figures", "names"),
    [
        ("turns", {"items": {"1": TURN}, "harmony": {}}, ["turn behind 1 KB, items"]),
        (
            "doors",
            {"costs": [cost()], "rounds": [[cost()], [cost(server_us=9.0)]]},
            [f"gRPC, 200 lanes, parsed: {what} a token" for what in ("server CPU", "client CPU", "bytes")],
        ),
        ("doors", {"costs": [cost(client_us=0.0, parsed=False)]}, ["gRPC, 200 lanes: server CPU a token"]),
        (
            "memory",
            {
                "idle": {"shared_connection": 1, "own_connection": 2, "objects": 3},
                "conversations": {"chat": KEPT},
            },
            [
                "idle session on a shared connection",
                "idle session with its own connection",
                "a session's own objects",
                "chat: beside the items",
                "chat: process",
            ],
        ),
        (
            "ablation",
            {"order": ["all"], "figures": [{"model": "m", "steps": [[9, 9], [1, 2]], "alone": [[9, 9]], "spread": 0}]},
            [f"m, + {step}: {what}" for step in ("everything off", "all") for what in ("TTFT", "turn")],
        ),
    ],
    ids=["turns", "doors-by-round", "doors-core", "memory", "ablation"],
)
def test_every_kind_has_figures_by_lasting_names(kind: str, figures: Mapping[str, Any], names: list[str]) -> None:
    found = of_measured(measured(kind, figures))
    assert [each.name for each in found] == names
    assert all(each.value >= 0 for each in found)


def test_figures_of_another_shape_are_refused_by_their_kind() -> None:
    with pytest.raises(ValueError, match="figures of kind turns"):
        of_measured(measured("turns", {"items": 5}))


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["compare", *map(str, arguments)])
    return main()


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old", tmp_path / "new"
    write(rollouts({"grpc-append": 5.0}), old / "codex.json")
    write(rollouts({"grpc-append": 8.0}), new / "codex.json")
    write(measured("turns", {}), old / "turns.json")
    return old, new


def test_folders_are_compared_file_by_file_and_what_stands_alone_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folders: tuple[Path, Path]
) -> None:
    assert call(monkeypatch, *folders) == 0
    out = capsys.readouterr().out
    assert "1 worse" in out
    assert "turns.json" in out
    assert call(monkeypatch, *folders, "--fail-on-worse") == 1
    assert call(monkeypatch, *folders, "--fail-on-worse", "--noise", "70%") == 0


def test_files_of_any_names_are_compared(
    monkeypatch: pytest.MonkeyPatch, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    other = (folders[1] / "codex.json").rename(tmp_path / "later.json")
    assert call(monkeypatch, folders[0] / "codex.json", other, "--fail-on-worse") == 1


def test_pears_and_apples_are_compared_only_anyway(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folders: tuple[Path, Path]
) -> None:
    old, new = (folder / "codex.json" for folder in folders)
    write(rollouts({"grpc-append": 8.0}, machine={**MACHINE, "cores": 4}), new)
    assert call(monkeypatch, old, new) == 2
    assert "cores: 2 against 4" in capsys.readouterr().out
    assert call(monkeypatch, old, new, "--anyway") == 0


@pytest.mark.parametrize("what", ["nowhere", "file-and-folder", "no-results"])
def test_what_cannot_be_compared_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folders: tuple[Path, Path],
    tmp_path: Path,
    what: str,
) -> None:
    old, _ = folders
    (tmp_path / "else.json").write_text("{}")
    arguments = {
        "nowhere": (old / "codex.json", tmp_path / "none.json"),
        "file-and-folder": (old, old / "codex.json"),
        "no-results": (tmp_path / "else.json", old / "codex.json"),
    }[what]
    assert call(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err
