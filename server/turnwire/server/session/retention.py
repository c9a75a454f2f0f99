"""Which responses can be continued from, and what keeping them costs.

Addressable and retained differ: an id can be unlisted, so that look-ups say not found, while descendants keep its items
in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from turnwire.server.session.budget import Budget, Member, hold, release
from turnwire.server.session.state import State


class Retention(Protocol):
    """The rule by which responses stay addressable."""

    @property
    def bytes(self) -> int:
        """Memory held by listed states, shared history counted once."""
        ...

    def __len__(self) -> int:
        """Counts the addressable responses."""
        ...

    def find(self, response_id: str) -> State | None:
        """Looks an id up."""
        ...

    def list(self, state: State) -> None:
        """Makes a state addressable, or replaces an earlier checkpoint of the same response."""
        ...

    def turn_failed(self, parent_id: str, lane: str) -> None:
        """Hears that a continuation of `parent_id` in `lane` failed."""
        ...

    def close(self) -> None:
        """Gives back what it held of the server's budget. Idempotent."""
        ...


class Tree:
    """Keeps every response until a limit is reached: the rule of gRPC sessions.

    Over a limit, the oldest response that has a listed descendant goes first (its chain goes on from there), then the
    oldest that nobody uses. What is running, held, queued or in use as a parent is never unlisted.
    """

    __slots__ = (
        "_closed",
        "_in_use",
        "_max_bytes",
        "_max_responses",
        "_member",
        "_newest",
        "_parents",
        "_shared",
        "_states",
    )

    def __init__(
        self, max_responses: int, max_bytes: int, in_use: Callable[[str], bool], budget: Budget | None = None
    ) -> None:
        """Takes the limits, a test for ids that must stay, and what it shares with other sessions."""
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._in_use = in_use
        self._states: OrderedDict[str, State] = OrderedDict()
        self._parents: OrderedDict[str, None] = OrderedDict()
        self._newest = ""
        self._closed = False
        self._member = Member(budget or Budget(), self.shed)
        self._shared = self._member.shared

    @property
    def bytes(self) -> int:
        """Memory held by listed states, shared history counted once."""
        return self._shared.total

    def __len__(self) -> int:
        """Counts the addressable responses."""
        return len(self._states)

    def find(self, response_id: str) -> State | None:
        """Looks an id up."""
        return self._states.get(response_id)

    def list(self, state: State) -> None:
        """Makes a state addressable, or replaces an earlier checkpoint of the same response."""
        hold(self._shared, state)
        earlier = self._states.pop(state.id, None)
        if earlier is not None:
            release(self._shared, earlier)
        self._states[state.id] = state
        if state.parent_id in self._states:
            self._parents[state.parent_id] = None
        self._newest = state.id
        while len(self._states) > self._max_responses or self._shared.total > self._max_bytes:
            if not self.shed():
                break
        self._member.used()

    def turn_failed(self, parent_id: str, lane: str) -> None:
        """Keeps the parent: a failed continuation costs nobody their history."""

    def close(self) -> None:
        """Gives back what it held of the server's budget, and knows nothing any more. Idempotent."""
        if not self._closed:
            self._closed = True
            for state in self._states.values():
                release(self._shared, state)
            # At once, since it refers to itself by its member and would wait for the garbage collector.
            self._states.clear()
            self._parents.clear()
            self._member.leave()

    def shed(self) -> bool:
        """Unlists one response that nobody uses, never the newest; returns whether there was one."""
        victim = None if self._closed else self._victim(self._newest)
        if victim is None:
            return False
        state = self._states.pop(victim)
        self._parents.pop(victim, None)
        release(self._shared, state)
        return True

    def _victim(self, keep: str) -> str | None:
        for candidates in (self._parents, self._states):
            for response_id in candidates:
                if response_id != keep and not self._in_use(response_id):
                    return response_id
        return None


class LatestPerLane:
    """Keeps the most recent response of each lane: the public API's rule for WebSocket connections.

    A continuation that fails in its parent's own lane unlists the parent, so that a blind retry is told to resend; a
    fork into another lane that fails leaves it in place. Over the limit on bytes, the lane goes first that brought
    nothing for the longest time and whose response nobody uses.
    """

    __slots__ = ("_closed", "_ids", "_in_use", "_lanes", "_max_bytes", "_member", "_newest", "_shared")

    def __init__(self, max_bytes: int, in_use: Callable[[str], bool], budget: Budget | None = None) -> None:
        """Takes the limit on bytes, the number of lanes bounds the rest, a test for ids that must stay, and what it
        shares with other sessions."""
        self._max_bytes = max_bytes
        self._in_use = in_use
        self._lanes: OrderedDict[str, State] = OrderedDict()
        self._ids: dict[str, str] = {}
        self._newest = ""
        self._closed = False
        self._member = Member(budget or Budget(), self.shed)
        self._shared = self._member.shared

    @property
    def bytes(self) -> int:
        """Memory held by listed states, shared history counted once."""
        return self._shared.total

    def __len__(self) -> int:
        """Counts the addressable responses."""
        return len(self._lanes)

    def find(self, response_id: str) -> State | None:
        """Looks an id up."""
        lane = self._ids.get(response_id)
        return None if lane is None else self._lanes[lane]

    def list(self, state: State) -> None:
        """Makes a state its lane's latest."""
        hold(self._shared, state)
        self._drop(state.lane)
        self._lanes[state.lane] = state
        self._ids[state.id] = state.lane
        self._newest = state.id
        while self._shared.total > self._max_bytes:
            if not self.shed():
                break
        self._member.used()

    def turn_failed(self, parent_id: str, lane: str) -> None:
        """Unlists the parent if it is the latest of the lane in which its continuation failed."""
        if self._ids.get(parent_id) == lane:
            self._drop(lane)

    def close(self) -> None:
        """Gives back what it held of the server's budget, and knows nothing any more. Idempotent."""
        if not self._closed:
            self._closed = True
            for state in self._lanes.values():
                release(self._shared, state)
            self._lanes.clear()
            self._ids.clear()
            self._member.leave()

    def shed(self) -> bool:
        """Forgets the lane that brought nothing for the longest time, never the newest; returns whether there was
        one."""
        if self._closed:
            return False
        idle = (lane for lane, kept in self._lanes.items() if kept.id != self._newest and not self._in_use(kept.id))
        victim = next(idle, None)
        if victim is not None:
            self._drop(victim)
        return victim is not None

    def _drop(self, lane: str) -> None:
        state = self._lanes.pop(lane, None)
        if state is not None:
            del self._ids[state.id]
            release(self._shared, state)
