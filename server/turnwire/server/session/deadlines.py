"""All deadlines of a session in one heap, so that the runtime needs one timer."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Deadline:
    """A moment at which something is done unless it was cancelled before."""

    __slots__ = ("_owner", "action", "when")

    def __init__(self, when: float, action: Callable[[], None], owner: Deadlines) -> None:
        """Takes the moment, what to do then, and the heap it stands in."""
        self.when = when
        self.action: Callable[[], None] | None = action
        self._owner = owner

    def cancel(self) -> None:
        """Makes the deadline pass without effect. Idempotent."""
        if self.action is not None:
            self.action = None
            self._owner.note_cancelled()


class Deadlines:
    """A heap of deadlines."""

    __slots__ = ("_cancelled", "_heap", "_tie")

    def __init__(self) -> None:
        """Starts empty."""
        self._heap: list[tuple[float, int, Deadline]] = []
        self._tie = count()
        self._cancelled = 0
        """Deadlines in the heap that were cancelled."""

    def __len__(self) -> int:
        """Counts what the heap holds, cancelled deadlines included."""
        return len(self._heap)

    def at(self, when: float, action: Callable[[], None]) -> Deadline:
        """Sets a deadline."""
        deadline = Deadline(when, action, self)
        heapq.heappush(self._heap, (when, next(self._tie), deadline))
        return deadline

    def next(self) -> float | None:
        """Returns the next moment at which `expire` has something to do, None when there is none."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
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
            deadline.action = None
        self._heap.clear()
        self._cancelled = 0

    def note_cancelled(self) -> None:
        """Hears that a deadline was cancelled; most are, hours before their time, so they are cleared out in bulk."""
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
