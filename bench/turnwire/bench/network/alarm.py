"""One alarm for many moments, to the microsecond: event loops round their timers to whole milliseconds.

Above it: `proxy`. Below it: the kernel's timerfd (Linux).
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import time
from collections.abc import Callable
from itertools import count
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Spec(ctypes.Structure):
    """Linux's `struct itimerspec`: an interval and a first moment, each in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("every", "every_ns", "at", "at_ns")]


class Alarm:
    """Calls back at moments of the monotonic clock; belongs to the running event loop."""

    def __init__(self) -> None:
        """Makes it silent.

        Raises:
            OSError: The kernel gave no timer.
        """
        self._file = _libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._tie = count()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file, self._rang)

    def call_at(self, when: float, callback: Callable[[float], None]) -> None:
        """Calls back with `when`, at it or soon after; in order, and in the order given where moments are equal.

        Once it is closed this does nothing.
        """
        if self._file < 0:
            return
        heapq.heappush(self._heap, (when, next(self._tie), callback))
        if self._heap[0][0] == when:
            self._set(when)

    def close(self) -> None:
        """Stays silent from now on. Idempotent."""
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1
        self._heap.clear()

    def _set(self, when: float) -> None:
        # Zero would unset it.
        nanoseconds = max(1, int(when * 1e9))
        spec = _Spec(0, 0, nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
        if _libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _rang(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            # It was set anew meanwhile, and has not rung for that.
            return
        while self._heap and self._heap[0][0] <= time.monotonic():
            when, _, callback = heapq.heappop(self._heap)
            callback(when)
        if self._heap and self._file >= 0:
            self._set(self._heap[0][0])

    async def until(self, when: float) -> None:
        """Waits for a moment of the monotonic clock. Cancelling it is safe."""
        reached: asyncio.Future[None] = self._loop.create_future()

        def ring(_: float) -> None:
            if not reached.done():
                reached.set_result(None)

        self.call_at(when, ring)
        await reached
