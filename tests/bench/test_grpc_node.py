"""What Node tells of rollouts, as records; and what is said where Node or its packages are not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnwire.bench.drivers import node_packages
from turnwire.bench.drivers.grpc_node import Played, PlayedTurn, judged, refusal
from turnwire.bench.drivers.registry import left_out
from turnwire.bench.scenario.compiling import PlannedCall, PlannedTurn, Rollout
from turnwire.bench.scenario.reading import load
from turnwire.bench.scenario.values import Load

LOOK = PlannedCall("look", "{}", 0.25, "found")
TURNS = (
    PlannedTurn("I look.", (LOOK,), "", tokens=3, inference=0.5, first_token=0.25, pause=0.25),
    PlannedTurn("Done.", (), "", tokens=1, inference=0.25, first_token=0.25, pause=0.0),
)
FIRST = PlayedTurn(0, 10.0, [10.5, 10.75, 11.0], 11.0, "I look.", [("c1", "look", "{}")], (0.125, 0.125, 0.5, 0.0625))
PLANNED = Rollout("", "", (), (), "", TURNS)
LAST = PlayedTurn(1, 11.5, [12.0], 12.0, "Done.", [], None)


def test_what_node_tells_becomes_the_figures_that_all_drivers_have() -> None:
    record = judged(Played(2.0, 0.001, [FIRST, LAST], [0.002], ""), PLANNED, 0.125)
    first, last = record.turns
    assert (record.took, record.start_lag, record.lags, record.failure) == (2.0, 0.001, [0.002], "")
    assert (first.ttft, first.took, first.tpot, first.overhead, first.client) == (0.5, 1.0, 0.25, 0.375, 0.25)
    assert (first.pre_inference, first.inference_measured, first.post_inference) == (0.25, 0.5, 0.0625)
    assert (last.ttft, last.pre_inference) == (0.5, None)


@pytest.mark.parametrize(
    ("number", "other", "said"),
    [
        (1, {"text": "Gone."}, "turn 2: text: expected 'Done.', found 'Gone.'"),
        (0, {"calls": []}, "turn 1: tool calls: expected "),
    ],
    ids=["text", "calls"],
)
def test_a_turn_that_differs_fails_the_rollout_and_has_no_figures(
    number: int, other: dict[str, Any], said: str
) -> None:
    turns = [FIRST, LAST]
    turns[number] = msgspec.structs.replace(turns[number], **other)
    record = judged(Played(2.0, 0.0, turns, [], ""), PLANNED, 0.0)
    assert record.failure.startswith(said)
    assert len(record.turns) == number


def test_what_node_itself_says_of_a_failure_is_kept() -> None:
    assert judged(Played(2.0, 0.0, [FIRST], [], "the stream ended"), PLANNED, 0.0).failure == "the stream ended"


def test_packages_that_are_not_installed_are_named_with_the_command_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "python -m turnwire.bench.drivers.node_packages" in node_packages.missing(tmp_path)
    for name in ("package.json", "package-lock.json"):
        with (tmp_path / "installed.json").open("a", encoding="utf-8") as stamp:
            stamp.write((node_packages.SOURCE / name).read_text(encoding="utf-8"))
    assert node_packages.missing(tmp_path) == ""


def test_without_node_the_driver_is_left_out_and_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert left_out(["grpc-create", "grpc-node"], load("codex-fix")) == {"grpc-node": "there is no node on the PATH"}
    with pytest.raises(RuntimeError, match="node and npm are needed"):
        node_packages.install(tmp_path / "packages")
    assert not (tmp_path / "packages").exists()


def test_rollouts_at_random_and_idle_sessions_are_refused_before_anything_is_started() -> None:
    scenario = load("codex-fix")
    assert "closed loops only" in refusal(replace(scenario, load=Load(4, 1, 2.0)))
    assert "idle" in refusal(load("idle"))
