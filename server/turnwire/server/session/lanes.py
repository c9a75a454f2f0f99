"""Lanes: what runs one after the other, and how much runs at the same time."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from turnwire.server.session.limits import LANE_NAME, SessionLimits
from turnwire.server.session.run import Run
from turnwire.v1.errors import reject

_NAME: Final = re.compile(LANE_NAME)


class _Lane:
    __slots__ = ("current", "queue")

    def __init__(self) -> None:
        self.current: Run | None = None
        self.queue: deque[Run] = deque()


class Lanes:
    """First in, first out within a lane; lanes side by side, up to a limit of responses at work."""

    def __init__(self, limits: SessionLimits) -> None:
        """Starts with no lane in use."""
        self._limits = limits
        self._lanes: dict[str, _Lane] = {}
        self._names: set[str] = set()
        self._starved: deque[str] = deque()
        self.in_flight = 0
        self.queued = 0

    @property
    def named(self) -> int:
        """Distinct named lanes so far."""
        return len(self._names)

    def check(self, name: str) -> None:
        """Checks a lane's name and counts it.

        Raises:
            RequestError: `invalid_stream_id` or `lane_limit_reached`.
        """
        if not name or name in self._names:
            return
        if _NAME.fullmatch(name) is None:
            message = (
                "The lane must be a non-empty string with at most 256 characters and may only contain letters, numbers,"
                " underscores, hyphens, and periods."
            )
            raise reject("invalid_stream_id", message, param="lane")
        if len(self._names) >= self._limits.max_lanes:
            limit = self._limits.max_lanes
            message = (
                f"This session has reached its maximum number of distinct lanes ({limit}). Reuse an existing lane or"
                " open another session."
            )
            raise reject("lane_limit_reached", message, param="lane", limit=str(limit))
        self._names.add(name)

    def current(self, name: str) -> Run | None:
        """Returns the response at work in a lane."""
        lane = self._lanes.get(name)
        return lane.current if lane else None

    def enqueue(self, run: Run) -> int:
        """Puts a request into its lane.

        Returns:
            How many requests of the lane are before it.

        Raises:
            RequestError: `too_many_requests`.
        """
        lane = self._lanes.setdefault(run.lane, _Lane())
        before = len(lane.queue) + (lane.current is not None)
        if before and self.queued >= self._limits.max_queued:
            message = f"Too many requests are waiting ({self._limits.max_queued}). Wait for some to end."
            raise reject("too_many_requests", message, limit=str(self._limits.max_queued))
        lane.queue.append(run)
        self.queued += 1
        return before

    def admit(self, name: str) -> Run | None:
        """Takes the next request of a lane to work, if the lane is free and the session has room."""
        lane = self._lanes.get(name)
        if lane is None or lane.current is not None or not lane.queue:
            return None
        if self.in_flight >= self._limits.max_in_flight:
            if name not in self._starved:
                self._starved.append(name)
            return None
        run = lane.current = lane.queue.popleft()
        self.queued -= 1
        self.in_flight += 1
        return run

    def head(self, name: str) -> Run | None:
        """Returns the request that waits first in a lane."""
        lane = self._lanes.get(name)
        return lane.queue[0] if lane and lane.queue else None

    def leave(self, run: Run) -> list[str]:
        """Takes a request out of its lane, at work or waiting.

        Returns:
            The lanes that may have something to admit now.
        """
        lane = self._lanes.get(run.lane)
        if lane is None:
            return []
        if lane.current is run:
            lane.current = None
            self.in_flight -= 1
        elif run in lane.queue:
            lane.queue.remove(run)
            self.queued -= 1
        woken = [run.lane]
        if self._starved:
            woken.append(self._starved.popleft())
        if lane.current is None and not lane.queue:
            del self._lanes[run.lane]
        return woken
