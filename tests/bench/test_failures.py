"""What a measurement does when something goes wrong: it stops with the reason, keeps what it has, and measures nothing
that was not right."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from turnwire.bench import campaign, run, stand
from turnwire.bench.campaign import Stopped, Told, measure, verify
from turnwire.bench.drivers.records import Job, RolloutRecord, RunRecord
from turnwire.bench.metrics.turns import TurnFigures
from turnwire.bench.results import Options, Results, Run, load, resume
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import read
from turnwire.bench.scenario.values import Network, Scenario
from turnwire.bench.stand import Stand

SOURCE = """
[limits]
max_seconds = 2

[[turn]]
text = 5

[[turn]]
text = 6
"""
SCENARIO = read(SOURCE, "small.toml")
TURN = TurnFigures(0.1, 0.01, 0.01, 0.01, 0.01, 0.5, 0.002)
OPTIONS = Options("run small", "small", SOURCE, {}, ["grpc-create", "http-full"], 1, [])


def silent(what: str) -> None:
    """Hears of a step."""


def signal_before_the_second_run(monkeypatch: pytest.MonkeyPatch, number: signal.Signals, driver: str) -> None:
    """Sends the server a signal when a driver's run begins, and lets it go on once that is over."""
    play = campaign.play

    def played(job: Job) -> RunRecord:
        if job.driver != driver:
            return play(job)
        server = job.processes["server"]
        watched = os.pidfd_open(server)
        try:
            os.kill(server, number)
            if number is signal.SIGKILL:
                assert select.select([watched], [], [], 20)[0], "the server was killed"
            record = play(job)
            if number is signal.SIGSTOP:
                os.kill(server, signal.SIGCONT)
            return record
        finally:
            os.close(watched)

    monkeypatch.setattr(campaign, "play", played)


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGKILL, "died during the run: server"), (signal.SIGSTOP, "stopped after 2 s, the scenario's limit")],
    ids=["dies", "stalls"],
)
def test_a_server_that_fails_during_a_run_stops_all_and_leaves_what_there_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    signal_before_the_second_run(monkeypatch, number, "http-full")
    path = tmp_path / "r.json"
    results = Results(OPTIONS, {})
    with pytest.raises(Stopped, match=f"^http-full, repetition 1: {reason}$"):
        measure(results, SCENARIO, path, silent)
    kept = load(path)
    assert [(each.record.driver, each.record.failure) for each in kept.runs] == [
        ("grpc-create", ""),
        ("http-full", reason),
    ]
    assert len(kept.runs[0].record.rollouts[0].turns) == 2
    # What failed is measured again, the rest is not.
    again = resume(path, OPTIONS, {})
    assert (again.has(0, "grpc-create"), again.has(0, "http-full")) == (True, False)


def test_a_server_that_does_not_start_is_told_in_its_own_words() -> None:
    results = Results(Options("run small", "small", SOURCE, {}, ["http-full"], 1, ["--no-such-flag"]), {})
    with pytest.raises(Stopped, match=r"(?s)did not start: .*no-such-flag"):
        measure(results, SCENARIO, None, silent)
    assert results.runs == []


def test_a_driver_that_crashes_is_told_by_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    record = campaign.play(Job("ws-create", SCENARIO, 0, "", "", "", "", "", {}))
    assert (record.driver, record.failure) == ("ws-create", "the driver's process failed: 1")


def test_each_driver_that_hears_something_else_is_named_with_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    other = compile_rollout(read(SOURCE.replace("text = 6", "text = 4"), "other.toml"))

    @contextmanager
    def elsewhere(
        script: str, network: Network, *, bridge: bool, flags: Sequence[str] = ()
    ) -> Generator[Stand, None, None]:
        with stand.standing(other.script, network, bridge=bridge, flags=flags) as running:
            yield running

    monkeypatch.setattr(campaign, "standing", elsewhere)
    steps: list[str] = []
    wrong = verify(SCENARIO, ["ws-create", "null", "grpc-create"], [], steps.append)
    # The driver without a door plays what it was told itself.
    assert list(wrong) == ["ws-create", "grpc-create"]
    for difference in wrong.values():
        assert difference.startswith("turn 2: text: expected ")
    assert sorted(steps) == ["verify grpc-create", "verify null", "verify ws-create"]


def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    scenario = tmp_path / "small.toml"
    scenario.write_text(SOURCE)
    path = tmp_path / "r.json"
    drivers = ",".join(OPTIONS.drivers)
    monkeypatch.setattr(sys, "argv", ["run", str(scenario), "--drivers", drivers, "--repeat", "2", "--out", str(path)])
    return path


def verified(wrong: dict[str, str]) -> object:
    def check(scenario: Scenario, drivers: Sequence[str], flags: Sequence[str], told: Told) -> dict[str, str]:
        return wrong

    return check


def test_a_failed_verification_shows_the_difference_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = arguments(monkeypatch, tmp_path)
    monkeypatch.setattr(run, "verify", verified({"http-full": "turn 1: text: expected 'a', found 'b'"}))

    def never(results: Results, scenario: Scenario, path: Path | None, told: Told) -> None:
        pytest.fail("it was measured")

    monkeypatch.setattr(run, "measure", never)
    assert run.main() == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "http-full does not do what the scenario says: turn 1: text: expected 'a', found 'b'" in said
    assert "Nothing was measured." in said
    assert not path.exists()


def test_a_measurement_that_stops_shows_what_there_is_and_why_it_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = arguments(monkeypatch, tmp_path)
    monkeypatch.setattr(run, "verify", verified({}))

    def half(results: Results, scenario: Scenario, path: Path | None, told: Told) -> None:
        good = RunRecord(
            "grpc-create",
            [RolloutRecord(took=1.0, turns=[TURN])],
            cpu={"server": 0.1, "client": 0.1},
            memory={"server": 1},
            lateness={"p99": 0.0},
        )
        results.runs += [Run(0, good), Run(0, RunRecord("http-full", failure="it stalled"))]
        raise Stopped("http-full, repetition 1: it stalled")

    monkeypatch.setattr(run, "measure", half)
    assert run.main() == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "The measurement did not come to its end: http-full, repetition 1: it stalled" in said
    assert "grpc-create: one run only" in said
    kept = load(path)
    assert kept.ended == "http-full, repetition 1: it stalled"
    assert len(kept.of("grpc-create")) == 1
