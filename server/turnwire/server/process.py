"""A process that serves until it is told to stop: its loop, its words, its signals and its end.

Above it: the command lines and the wiring of the server, and of the bridge. Below it: nothing of this project.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import click


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Runs a coroutine on an event loop of its own and returns the exit code; on uvloop, where that exists."""
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)


def say(line: str) -> None:
    """Writes a line to standard output at once, for whoever waits until the process is ready."""
    click.echo(line)
    sys.stdout.flush()


def on_signals(callback: Callable[[], None]) -> None:
    """Has SIGINT and SIGTERM call back, in place of what they called before. Needs the running loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, callback)


async def drain(stop: Callable[[float], Awaitable[None]], grace: float) -> None:
    """Stops with `grace` seconds, until that is done or a second signal comes.

    Args:
        stop: Stops what serves within some seconds; cancelled by the second signal.
        grace: Seconds.
    """
    again = asyncio.Event()
    on_signals(again.set)
    draining = asyncio.ensure_future(stop(grace))
    impatient = asyncio.create_task(again.wait())
    await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    draining.cancel()
    await asyncio.gather(draining, impatient, return_exceptions=True)
