"""The clock of the runtime, as a port, so that tests can move time by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due."""

    def cancel(self) -> None:
        """Makes it not happen. Idempotent."""


class Clock(Protocol):
    """Time and calls at a time; seconds, never running backwards."""

    def now(self) -> float:
        """The moment."""
        ...

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Calls back on the event loop at a moment of this clock."""
        ...


class LoopClock:
    """The event loop's own clock."""

    def __init__(self) -> None:
        """Binds to the running loop."""
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        """The moment, by the performance counter: the loop's own time has millisecond steps on uvloop."""
        return time.perf_counter()

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Calls back on the event loop at a moment of this clock."""
        return self._loop.call_later(max(0.0, when - time.perf_counter()), callback)
