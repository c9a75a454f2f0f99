"""What commands of measurements share: how they were typed, a bar for long work, and work in a process of its own.

Above it: the measuring modules. Below it: the standard library and rich.
"""

from __future__ import annotations

import multiprocessing
import shlex
import signal
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

P = ParamSpec("P")
T = TypeVar("T")

_WIDTH: Final = 160
"""Columns of a file or a pipe."""


def typed(module: str) -> str:
    """Returns what was typed for a module of this package, so that it can be typed again."""
    return shlex.join(["python", "-m", f"turnwire.bench.{module}", *sys.argv[1:]])


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def stoppable() -> None:
    """Makes SIGTERM an interruption, so that whoever ends this process leaves no servers behind, and a file with a
    reason. In the background of a shell SIGINT is ignored, so there is no other way."""
    signal.signal(signal.SIGTERM, _interrupt)


def apart(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does work in a fresh Python process, so that runs do not share hash seeds and memory; returns what it returned.

    `work` is a function of a module, and what it takes and returns can be pickled.

    Raises:
        concurrent.futures.process.BrokenProcessPool: The process died.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def screen() -> Console:
    """Returns what tables are printed on: as wide as the terminal, or wide enough for all where there is none."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


@contextmanager
def bar(total: int, first: str) -> Generator[Callable[[str], None], None, None]:
    """Shows progress on stderr for the length of the block; yields what takes a step done, and the next one's name."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(first, total=total)
        yield lambda following: progress.update(task, advance=1, description=following)
