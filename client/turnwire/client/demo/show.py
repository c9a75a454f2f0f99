"""Runs the agents of the demo and shows what they do.

Above it: `turnwire demo`. Below it: the server, the sample project, the agent loop and its displays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwire.client import Session, connect
from turnwire.client.agent import Agent, AgentResult, Shape, TurnReport, Workspace, totals
from turnwire.client.commands.progress import Progress, Watch
from turnwire.client.commands.waterfall import API, CLIENT, INFERENCE, totals_lines, waterfall
from turnwire.client.demo.sample import TestRun, copy_project, run_tests
from turnwire.client.demo.server import scripted_server

MODEL: Final = "scripted"
TASK: Final = "The tests of this project fail. Find out why, repair the code, and leave the tests as they are."
INSTRUCTIONS: Final = "You maintain a small Python project. Use the tools; end with what was wrong and what you did."

_ALIKE: Final = {"append": "in one held response", "create": "in one response per turn"}
_TESTS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What to show."""

    shapes: Sequence[Shape]
    """One agent alone in each of these shapes, one after the other; the first one in detail."""
    lanes: int
    """Then so many agents at once, each in a lane of its own; below 2 for none."""


async def run_demo(console: Console, plan: Plan, folder: Path) -> bool:
    """Runs the demo and tells whether every copy's tests failed before and passed after. Cancelling it is safe.

    Args:
        console: Where to show it.
        plan: What to show.
        folder: An empty folder for the copies and the server's log.

    Raises:
        TurnwireError: The server did not start, or a run failed.
    """
    demo = _Demo(console, folder)
    async with scripted_server(folder) as address:
        console.print(f"A turnwire server listens on {address}. Every agent below uses the same gRPC stream to it.")
        async with connect(address) as session:
            for number, shape in enumerate(plan.shapes):
                await demo.alone(session, shape, in_detail=number == 0)
            if plan.lanes > 1:
                await demo.at_once(session, plan.shapes[0], plan.lanes)
    demo.verdict()
    return demo.repaired


class _Demo:
    """The demo while it runs."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._folder = folder
        self._started = time.monotonic()
        self._turns: list[TurnReport] = []
        self.repaired = True

    async def alone(self, session: Session, shape: Shape, *, in_detail: bool) -> None:
        """Shows one agent."""
        self._title(f"One agent, {_ALIKE[shape]} (shape {shape})")
        project = copy_project(self._folder / f"alone-{shape}")
        before = await run_tests(project)
        self._say_tests("before", before)
        watch = Watch("agent")
        with Progress(self._console, [watch]):
            result = await self._agent(session, shape, project, watch).run(TASK)
        if in_detail:
            self._console.print(waterfall(result.turns, self._console))
        self._turns += result.turns
        for line in totals_lines(result.totals):
            self._console.print(line)
        after = await run_tests(project)
        self._say_tests("after", after)
        if in_detail:
            self._console.print(Text(f"The agent says: {result.text}", style="italic"))
        self.repaired = self.repaired and before.failed and after.passed

    async def at_once(self, session: Session, shape: Shape, lanes: int) -> None:
        """Shows several agents at once."""
        self._title(f"{lanes} agents at once, each in a lane of its own of that stream (shape {shape})")
        projects = [copy_project(self._folder / f"lane-{number}") for number in range(1, lanes + 1)]
        watches = [Watch(project.name) for project in projects]
        # The copies are the same, so one stands for all.
        before = await run_tests(projects[0])
        self._say_tests("before", before)
        started = time.monotonic()
        with Progress(self._console, watches):
            async with asyncio.TaskGroup() as group:
                runs = [
                    group.create_task(self._agent(session, shape, project, watch, lane=watch.label).run(TASK))
                    for project, watch in zip(projects, watches, strict=True)
                ]
        elapsed = time.monotonic() - started
        results = [run.result() for run in runs]
        together = [turn for result in results for turn in result.turns]
        self._turns += together
        tests = await _test_all(projects)
        self._console.print(_lanes_table(watches, results, tests))
        for line in totals_lines(totals(together), elapsed=elapsed, runs=lanes):
            self._console.print(line)
        self.repaired = self.repaired and before.failed and all(run.passed for run in tests)

    def verdict(self) -> None:
        """Says how it ended."""
        whole = totals(self._turns)
        seconds = time.monotonic() - self._started
        self._title(
            f"In all {whole.turns} turns, {whole.tool_calls} tool calls and {whole.tokens.output:,} sampled tokens "
            f"over one gRPC stream, in {seconds:.1f} s"
        )
        if self.repaired:
            self._console.print("The tests failed before and pass after, in every copy.", style="green")
        else:
            self._console.print("Not every copy's tests failed before and pass after.", style="red")

    def _agent(self, session: Session, shape: Shape, project: Path, watch: Watch, *, lane: str = "") -> Agent:
        return Agent(
            session,
            model=MODEL,
            tools=Workspace(project).tools(),
            instructions=INSTRUCTIONS,
            shape=shape,
            lane=lane,
            on_event=watch.on_event,
        )

    def _title(self, title: str) -> None:
        self._console.print()
        self._console.print(Text(title, style="bold"))

    def _say_tests(self, when: str, run: TestRun) -> None:
        style = "green" if run.passed else "red" if run.failed else "bold red"
        self._console.print(Text(f"tests {when}: {run.summary}", style=style))


async def _test_all(projects: Sequence[Path]) -> list[TestRun]:
    room = asyncio.Semaphore(_TESTS_AT_ONCE)

    async def one(project: Path) -> TestRun:
        async with room:
            return await run_tests(project)

    return await asyncio.gather(*map(one, projects))


def _lanes_table(watches: Sequence[Watch], results: Sequence[AgentResult], tests: Sequence[TestRun]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("lane", no_wrap=True)
    for name, style in (
        ("turns", None),
        ("calls", None),
        ("tokens", None),
        ("wall s", None),
        ("API s", API.style),
        ("inference s", INFERENCE.style),
        ("client s", CLIENT.style),
    ):
        table.add_column(name, justify="right", style=style, no_wrap=True)
    table.add_column("tests after", no_wrap=True)
    for watch, result, run in zip(watches, results, tests, strict=True):
        sums = result.totals
        seconds = [f"{value:.2f}" for value in (sums.wall, sums.api, sums.inference, sums.client)]
        counts = [str(sums.turns), str(sums.tool_calls), f"{sums.tokens.output:,}"]
        table.add_row(watch.label, *counts, *seconds, Text(run.summary, style="green" if run.passed else "red"))
    return table
