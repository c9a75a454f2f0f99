"""Lanes: what runs one after the other, and how much runs at the same time."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from turnwire.server.session.limits import LANE_NAME, SessionLimits
from turnwire.server.session.rules import TREE, Rules
from turnwire.server.session.run import Run
from turnwire.server.session.states import Phase
from turnwire.v1.errors import reject

_NAME: Final = re.compile(LANE_NAME)


def valid_name(name: str) -> bool:
    """Whether a lane may have this name; the default lane has none."""
    return not name or _NAME.fullmatch(name) is not None


class _Lane:
    __slots__ = ("current", "queue")

    def __init__(self) -> None:
        self.current: Run | None = None
        self.queue: deque[Run] = deque()


class Lanes:
    """First in, first out within a lane; lanes side by side, up to a limit of responses at work."""

    __slots__ = ("_lanes", "_limits", "_names", "_rules", "_starved", "in_flight", "queued")

    def __init__(self, limits: SessionLimits) -> None:
        """Starts with no lane in use."""
        self._limits = limits
        self._rules = TREE
        self._lanes: dict[str, _Lane] = {}
        # Dictionaries, since an empty set takes three times the memory of an empty dictionary.
        self._names: dict[str, None] = {}
        self._starved: dict[str, None] = {}
        """Free lanes with requests for which the session has no room, longest waiting first."""
        self.in_flight = 0
        self.queued = 0

    def follow(self, rules: Rules, limits: SessionLimits) -> None:
        """Puts rules and limits in force."""
        self._rules = rules
        self._limits = limits

    @property
    def named(self) -> int:
        """Distinct named lanes so far."""
        return len(self._names)

    def check(self, name: str) -> None:
        """Checks a lane's name, and that there may be another lane if it is a new one.

        Raises:
            RequestError: `invalid_stream_id`, `lane_limit_reached` or `websocket_stream_limit_reached`.
        """
        if not name or name in self._names:
            return
        if not valid_name(name):
            raise self._rules.invalid_lane()
        if len(self._names) >= self._limits.max_lanes:
            raise self._rules.too_many_lanes(self._limits.max_lanes)

    def busy(self, name: str) -> bool:
        """Whether something is at work or waits in a lane."""
        return name in self._lanes

    def current(self, name: str) -> Run | None:
        """Returns the response at work in a lane."""
        lane = self._lanes.get(name)
        return lane.current if lane else None

    def waits(self, name: str) -> int | None:
        """Returns how many requests would be before a new one in its lane; None if it would not wait at all."""
        lane = self._lanes.get(name)
        before = len(lane.queue) + (lane.current is not None) if lane else 0
        return before if before or self.in_flight >= self._limits.max_in_flight else None

    def check_room(self) -> None:
        """Checks that another request may wait.

        Raises:
            RequestError: `too_many_requests`.
        """
        if self.queued >= self._limits.max_queued:
            message = f"Too many requests are waiting ({self._limits.max_queued}). Wait for some to end."
            raise reject("too_many_requests", message, limit=str(self._limits.max_queued))

    def enqueue(self, run: Run) -> None:
        """Puts a request into its lane, and counts the lane if it is a new one."""
        if run.lane:
            self._names[run.lane] = None
        self._lanes.setdefault(run.lane, _Lane()).queue.append(run)
        self.queued += 1

    def admit(self, name: str) -> Run | None:
        """Takes the next request of a lane to work, if the lane is free and the session has room."""
        lane = self._lanes.get(name)
        if lane is None or lane.current is not None or not lane.queue:
            return None
        if self.in_flight >= self._limits.max_in_flight:
            self._starved[name] = None
            return None
        run = lane.current = lane.queue.popleft()
        self.queued -= 1
        self.in_flight += 1
        return run

    def head(self, name: str) -> Run | None:
        """Returns the request that waits first in a lane."""
        lane = self._lanes.get(name)
        return lane.queue[0] if lane and lane.queue else None

    def leave(self, run: Run) -> list[Run]:
        """Takes a request out of its lane, at work or waiting.

        Returns:
            The requests that were taken to work in its place.
        """
        lane = self._lanes[run.lane]
        if lane.current is run and lane.queue and lane.queue[0].phase is not Phase.QUEUED:
            # It was checked beside the pause that ends here, and takes its place.
            lane.current = lane.queue.popleft()
            self.queued -= 1
        elif lane.current is run:
            lane.current = None
            self.in_flight -= 1
            if lane.queue:
                # Behind the lanes that wait for room, else one with a long queue would keep the room to itself.
                self._starved[run.lane] = None
        else:
            lane.queue.remove(run)
            self.queued -= 1
        if lane.current is None and not lane.queue:
            del self._lanes[run.lane]
        admitted: list[Run] = []
        while self._starved and self.in_flight < self._limits.max_in_flight:
            name = next(iter(self._starved))
            del self._starved[name]
            # A lane whose requests were cancelled meanwhile has nothing to admit.
            if (next_run := self.admit(name)) is not None:
                admitted.append(next_run)
        return admitted
