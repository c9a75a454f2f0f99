"""Runs the steps of a suite one after the other, each as a process whose words and progress pass through.

Above it: the command. Below it: `standing`, and the measuring modules as processes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from turnwire.bench.measured import COMPLETE, machine
from turnwire.bench.suite.standing import Judged, Standing, head, judge, left
from turnwire.bench.suite.steps import Step

_PATIENCE: Final = 20.0
"""Seconds that an interrupted command has to end its processes."""

Play = Callable[[Sequence[str]], int]
"""Runs a command, and returns its exit code."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that did not come to its end."""

    step: str
    reason: str


class Ended(KeyboardInterrupt):
    """This process was told to end, and its step was not."""


def ended(number: int, frame: object) -> None:
    """Handles SIGTERM."""
    raise Ended


def play(command: Sequence[str]) -> int:
    """Runs a command with this process's terminal, and waits for it even when interrupted, so that it ends its own."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except Ended:
            process.terminate()
            raise
        except KeyboardInterrupt:
            # A terminal has told the command, too, which has to end its servers now and not be disturbed.
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.terminate()
            raise


class Running:
    """A run over the steps of a suite."""

    def __init__(self, console: Console, folder: Path, *, again: bool = False, play: Play = play) -> None:
        """Takes where to speak, where files are, whether to measure what is there anew, and how to run commands."""
        self._console = console
        self._folder = folder
        self._again = again
        self._play = play
        self._planned = self._took = 0.0

    def run(self, steps: Sequence[Step]) -> list[Failure]:
        """Runs all steps that are not measured yet; returns those that failed, after which the others went on.

        Raises:
            OSError: A file cannot be put aside, or the folder cannot be made.
            KeyboardInterrupt: Somebody stopped it; what is complete stays, and so does what there is of rollouts.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        facts = machine()
        found = [judge(head(self._folder / step.file), step, facts) for step in steps]
        open_steps = [
            (step, judged)
            for step, judged in zip(steps, found, strict=True)
            if self._again or judged.standing is not Standing.DONE
        ]
        if len(open_steps) < len(steps):
            self._say(
                f"{len(steps) - len(open_steps)} of {len(steps)} steps are measured already; --again does so anew"
            )
        failures: list[Failure] = []
        for place, (step, judged) in enumerate(open_steps):
            remaining = left([each for each, _ in open_steps[place:]], self._planned, self._took)
            self._console.rule(
                f"{step.name}: {place + 1} of {len(open_steps)}, about {_minutes(remaining)} left", align="left"
            )
            failure = self._step(step, judged)
            if failure:
                failures.append(Failure(step.name, failure))
                self._say(f"[red]{step.name} failed:[/] {failure}")
        return failures

    def _step(self, step: Step, judged: Judged) -> str:
        """Runs a step; returns why it failed, or nothing."""
        path = self._folder / step.file
        if path.exists() and (self._again or judged.standing is Standing.ANEW):
            # Not thrown away, since somebody may want it, and not by a name that the report would read.
            aside = path.with_suffix(".json.old")
            path.replace(aside)
            if judged.reason:
                self._say(f"{path.name} is put aside as {aside.name}: {judged.reason}")
        command = (sys.executable, "-m", f"turnwire.bench.{step.module}", *step.arguments, "--out", str(path))
        began = time.monotonic()
        code = self._play(command)
        there = head(path)
        if not code and there is not None and there.ended == COMPLETE:
            # One that failed tells nothing of the others' time.
            self._planned += step.seconds
            self._took += time.monotonic() - began
            return ""
        if there is not None and there.ended not in (COMPLETE, "not yet"):
            return there.ended
        return f"exit code {code}; its own words stand above" if code else f"it left no whole {path.name}"

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
