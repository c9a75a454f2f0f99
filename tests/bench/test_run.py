"""The command line: what it sets, and what it refuses before anything is started."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest

from turnwire.bench.overrides import overridden, played
from turnwire.bench.results import Options
from turnwire.bench.run import main
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import ScenarioError, load, source_of
from turnwire.bench.scenario.values import Load, Network, Speed


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    try:
        code: object = main()
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    return capsys.readouterr().err


def test_the_command_line_sets_values_over_the_scenario() -> None:
    scenario = load("codex-fix")
    changed = overridden(
        scenario,
        {"rtt": 0.02, "bandwidth_mbit": 10.0, "tls": True, "tps": math.inf, "ttft": 0.0, "history": 5, "agents": 4},
    )
    assert changed.network == Network(0.02, 10e6, slow_start=False, tls=True)
    assert changed.speed == Speed(0.0, math.inf, 1)
    assert changed.request == replace(scenario.request, history=5)
    assert changed.load == Load(4, 4, 0.0)
    assert overridden(scenario, {"rtt": None, "tls": False}) == scenario


def test_a_rate_takes_the_place_of_agents() -> None:
    assert overridden(load("fleet"), {"rate": 2.5, "rollouts": 10}).load == Load(10, 1, 2.5)


def test_a_shortened_rollout_has_the_first_turns_and_the_one_that_closes_it() -> None:
    scenario = load("codex-fix")
    shortened = overridden(scenario, {"turns": 8})
    assert shortened.turns == (*scenario.turns[:7], scenario.turns[-1])
    assert compile_rollout(shortened).turns[-1].calls == ()
    assert overridden(scenario, {"turns": 1000}) == scenario
    assert overridden(scenario, {"turns": 1}).turns == scenario.turns[-1:]


def test_a_rollout_that_forks_is_not_cut_before_its_fork() -> None:
    scenario = load("subagents")
    assert scenario.fork is not None
    assert len(overridden(scenario, {"turns": scenario.fork.after + 1}).turns) == scenario.fork.after + 1
    with pytest.raises(ScenarioError, match="before the fork, found 4"):
        overridden(scenario, {"turns": scenario.fork.after})


def test_a_result_file_says_what_was_played() -> None:
    overrides = {"rtt": "20ms", "tps": "4000", "history": "1KiB", "tls": "True", "agents": "3"}
    asked = Options("…", "fleet", source_of("fleet"), overrides, [], 1, [])
    expected = {"rtt": 0.02, "tps": 4000.0, "history": 1024, "tls": True, "agents": 3}
    assert played(asked) == overridden(load("fleet"), expected)
    with pytest.raises(ValueError, match="found gravity"):
        played(replace(asked, overrides={"gravity": "9.8"}))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("codex-fox",), "no such scenario; there are"),
        (("codex-fix", "--drivers", "grpc-create,carrier-pigeon"), "no such driver: carrier-pigeon"),
        (("codex-fix", "--rtt", "soon"), "--rtt: expected a duration"),
        (("codex-fix", "--repeat", "0"), "--repeat: expected a number from 1"),
        (("codex-fix", "--rtt", "0ms", "--slow-start"), "--slow-start: there is no window"),
        (("codex-fix", "--agents", "4", "--rollouts", "2"), "--rollouts: expected at least one"),
        (("codex-fix", "--rate", "2", "--agents", "2"), "--rate: expected"),
        (("codex-fix", "--baseline", "nobody"), "--baseline: no such driver"),
        (("codex-fix", "--drivers", "grpc-node", "--rate", "2"), "grpc-node is left out: Node plays closed loops only"),
        (("idle", "--drivers", "null"), "null is left out: there is no server whose idle sessions"),
        (("idle", "--drivers", "grpc-node"), "grpc-node is left out: Node's client has no sessions that are idle"),
    ],
)
def test_wrong_usage_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refusal(monkeypatch, capsys, *arguments)


def test_a_file_of_another_measurement_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    path = f"{tmp_path}/r.json"
    with open(path, "w", encoding="utf-8") as file:
        file.write("{}")
    assert "r.json" in refusal(monkeypatch, capsys, "codex-fix", "--out", path)
