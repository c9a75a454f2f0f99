"""Suites: what they are made of, what is measured again, and that one step's failure is told and stops no other."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from turnwire.bench.drivers.registry import DRIVERS
from turnwire.bench.measured import Measured, machine, write
from turnwire.bench.results import Options, Results
from turnwire.bench.scenario.reading import load
from turnwire.bench.suite.running import Ended, Failure, Running, ended, play
from turnwire.bench.suite.standing import Head, Standing, arguments, head, judge, left
from turnwire.bench.suite.steps import SUITES, Step

STEP = Step("turns", "turns", ("--runs", "5"), 30.0)
RUN = Step("codex", "run", ("codex-fix",), 60.0)
FACTS = {"cores": 2}
COMMAND = "python -m turnwire.bench.turns --runs 5 --out elsewhere/turns.json"

ALL = [pytest.param(step, id=f"{name}-{step.name}") for name, suite in SUITES.items() for step in suite.steps]


@pytest.mark.parametrize("step", ALL)
def test_a_step_of_rollouts_names_drivers_and_a_scenario_that_there_are(step: Step) -> None:
    if step.module != "run":
        return
    given = list(step.arguments)
    assert load(given[0])
    assert set(given[given.index("--drivers") + 1].split(",")) <= DRIVERS.keys()


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_no_two_steps_of_a_suite_write_the_same_file(suite: object) -> None:
    assert isinstance(suite, type(SUITES["bench"]))
    names = [step.file for step in suite.steps]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("found", "step", "standing"),
    [
        (None, STEP, Standing.ANEW),
        (Head(FACTS, "complete", COMMAND), STEP, Standing.DONE),
        (Head(FACTS, "KeyboardInterrupt", COMMAND), STEP, Standing.ANEW),
        (Head({"cores": 4}, "complete", COMMAND), STEP, Standing.ANEW),
        (Head(FACTS, "complete", COMMAND), replace(STEP, arguments=("--runs", "6")), Standing.ANEW),
        (Head(FACTS, "complete", COMMAND), replace(STEP, module="doors"), Standing.ANEW),
    ],
    ids=["nothing", "the-same", "interrupted", "another-machine", "other-options", "another-module"],
)
def test_only_a_whole_file_of_the_same_command_and_machine_counts(
    found: Head | None, step: Step, standing: Standing
) -> None:
    assert judge(found, step, FACTS).standing is standing


@pytest.mark.parametrize(
    ("ended", "standing"), [("interrupted", Standing.BEGUN), ("complete", Standing.DONE)], ids=["interrupted", "whole"]
)
def test_rollouts_that_were_interrupted_go_on(tmp_path: Path, ended: str, standing: Standing) -> None:
    path = tmp_path / RUN.file
    command = f"python -m turnwire.bench.run codex-fix --out {path}"
    write(Results(Options(command, "codex-fix", "", {}, [], 1, []), FACTS, ended=ended), path)
    assert judge(head(path), RUN, FACTS).standing is standing


@pytest.mark.parametrize(
    ("drivers", "repeat", "standing"),
    [
        ("a,b", 3, Standing.DONE),
        ("c,b,a", 5, Standing.DONE),
        ("a", 3, Standing.BEGUN),
        ("a,b", 2, Standing.BEGUN),
    ],
    ids=["the-same", "more", "fewer-drivers", "fewer-repetitions"],
)
def test_rollouts_of_more_drivers_and_repetitions_are_good_and_fewer_are_gone_on_with(
    drivers: str, repeat: int, standing: Standing
) -> None:
    asked = replace(RUN, arguments=("codex-fix", "--drivers", "a,b", "--repeat", "3", "--tls"))
    command = f"python -m turnwire.bench.run codex-fix --drivers {drivers} --repeat {repeat} --tls --out f.json"
    found = msgspec.convert({"machine": FACTS, "ended": "complete", "options": {"command": command}}, Head)
    assert judge(found, asked, FACTS).standing is standing
    assert judge(found, replace(asked, arguments=asked.arguments[:-1]), FACTS).standing is Standing.ANEW


def test_steps_of_one_name_measure_the_same_in_every_suite() -> None:
    by_name: dict[str, Step] = {}
    for suite in SUITES.values():
        for step in suite.steps:
            other = by_name.setdefault(step.name, step)
            command = f"python -m turnwire.bench.{other.module} {shlex.join(other.arguments)}"
            options = {"command": command} if step.module == "run" else None
            found = {"machine": FACTS, "ended": "complete", "command": command, "options": options}
            assert judge(msgspec.convert(found, Head), step, FACTS).standing is not Standing.ANEW, step.name


def test_a_command_is_known_again_wherever_its_file_was_written() -> None:
    assert arguments("python -m turnwire.bench.doors --only 'HTTP and SSE' --out=x.json --runs 3") == [
        "turnwire.bench.doors",
        "--only",
        "HTTP and SSE",
        "--runs",
        "3",
    ]


def test_what_is_left_is_estimated_by_how_long_the_steps_before_took() -> None:
    assert left([STEP, RUN], 0.0, 0.0) == 90.0
    assert left([RUN], 30.0, 15.0) == 30.0


class Player:
    """Stands for the measuring modules."""

    def __init__(self, ended: dict[str, str]) -> None:
        self.ended = ended
        self.played: list[str] = []

    def __call__(self, command: Sequence[str]) -> int:
        path = Path(command[-1])
        self.played.append(path.stem)
        ended = self.ended.get(path.stem, "complete")
        if ended:
            typed = " ".join(("python", *command[1:]))
            write(Measured("turns", typed, machine(), "", 0.0, ended=ended), path)
        return 0 if ended == "complete" else 3


def run(folder: Path, player: Player, *, again: bool = False) -> tuple[list[Failure], str]:
    words = io.StringIO()
    steps = [replace(STEP, name=name) for name in ("one", "two", "three")]
    failures = Running(Console(file=words, width=120), folder, again=again, play=player).run(steps)
    return failures, words.getvalue()


def test_a_step_that_fails_is_told_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    player = Player({"one": "RuntimeError: no such thing", "two": ""})
    failures, words = run(tmp_path / "new", player)
    assert player.played == ["one", "two", "three"]
    assert failures == [
        Failure("one", "RuntimeError: no such thing"),
        Failure("two", "exit code 3; its own words stand above"),
    ]
    assert "one failed: RuntimeError: no such thing" in words


def test_what_is_measured_is_not_measured_again_unless_asked_for(tmp_path: Path) -> None:
    run(tmp_path, Player({"two": "interrupted"}))
    second = Player({})
    failures, words = run(tmp_path, second)
    assert second.played == ["two"]
    assert not failures
    assert "2 of 3 steps are measured already" in words
    third = Player({})
    run(tmp_path, third, again=True)
    assert third.played == ["one", "two", "three"]


def test_a_file_of_other_options_is_put_aside_and_said_so(tmp_path: Path) -> None:
    write(
        Measured("turns", "python -m turnwire.bench.turns", machine(), "", 0.0, ended="complete"), tmp_path / "one.json"
    )
    _, words = run(tmp_path, Player({}))
    assert "one.json is put aside as one.json.old: it was measured with other options" in words
    assert (tmp_path / "one.json.old").exists()


def test_the_exit_code_of_a_command_is_told() -> None:
    assert play((sys.executable, "-c", "raise SystemExit(4)")) == 4


def test_a_suite_that_is_ended_ends_its_step_in_order(tmp_path: Path) -> None:
    # The step writes when it began, and when it was ended.
    program = (
        "import pathlib, signal, sys\n"
        "def end(number, frame):\n"
        "    pathlib.Path(sys.argv[1], 'ended').touch()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path(sys.argv[1], 'began').touch()\n"
        "signal.pause()\n"
    )

    def end_once_begun() -> None:
        while not (tmp_path / "began").exists():
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, ended)
    watcher = threading.Thread(target=end_once_begun)
    watcher.start()
    try:
        with pytest.raises(Ended):
            play((sys.executable, "-c", program, str(tmp_path)))
    finally:
        signal.signal(signal.SIGTERM, before)
        watcher.join()
    assert (tmp_path / "ended").exists()


def test_a_command_that_says_it_went_well_and_left_nothing_has_failed(tmp_path: Path) -> None:
    failures = Running(Console(file=io.StringIO()), tmp_path, play=lambda command: 0).run([STEP])
    assert failures == [Failure("turns", "it left no whole turns.json")]
