"""All deadlines of a session in one heap, so that the runtime needs one timer."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Deadline:
    """A moment at which something is done unless it was cancelled before."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None]) -> None:
        """Takes the moment and what to do then."""
        self.when = when
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Makes the deadline pass without effect. Idempotent."""
        self.action = None


class Deadlines:
    """A heap of deadlines."""

    def __init__(self) -> None:
        """Starts empty."""
        self._heap: list[tuple[float, int, Deadline]] = []
        self._tie = count()

    def at(self, when: float, action: Callable[[], None]) -> Deadline:
        """Sets a deadline."""
        deadline = Deadline(when, action)
        heapq.heappush(self._heap, (when, next(self._tie), deadline))
        return deadline

    def next(self) -> float | None:
        """Returns the next moment at which `expire` has something to do, None when there is none."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expire(self, now: float) -> None:
        """Does what is due."""
        while (when := self.next()) is not None and when <= now:
            deadline = heapq.heappop(self._heap)[2]
            action, deadline.action = deadline.action, None
            if action is not None:
                action()

    def clear(self) -> None:
        """Cancels all."""
        for _, _, deadline in self._heap:
            deadline.cancel()
        self._heap.clear()
