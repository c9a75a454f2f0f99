"""What kept conversations cost in memory: of one session, and of all sessions of a server together.

Above it: the memory of sessions, and conversations known by their items. Below it: transcripts. Bytes are counted once
however many states share them, by counting who holds each segment. Over the server's budget the conversations that
nobody went on from are forgotten first, then idle responses of the sessions that were used least lately; what is
at work is never touched, and while it alone is over the budget no new response is begun.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from turnwire.server.session.transcript import Transcript

PATIENCE: Final = 64
"""Sessions without anything idle that one look for room passes by: bounds what a turn can cost beside thousands."""


FAR: Final = 64
"""Segments that are looked at for one that is held already. A turn adds two or three; a conversation that comes from
elsewhere (the store, another session) is not gone through, since its size is known, and counts as a whole."""


class SharedBytes:
    """Counts bytes of transcripts that share segments, and of settings that states share.

    Exact, but for conversations that came from elsewhere and were forked there more than `FAR` segments ago: what such
    forks share counts with each of them.
    """

    __slots__ = ("_budget", "_holders", "total")

    def __init__(self, budget: Budget | None = None) -> None:
        """Starts at zero; what is held here counts in the budget too."""
        self.total = 0
        self._budget = budget
        self._holders: dict[int, tuple[int, int, bool]] = {}
        """By identity: how many hold it, the bytes it was counted with, and whether these are of all before it too."""

    def hold(self, transcript: Transcript, settings: bytes = b"") -> None:
        """Counts one more holder; costs the segments that nobody held before, and one more."""
        if settings:
            self._hold_one(id(settings), len(settings))
        for steps, segment in enumerate(transcript.segments(), start=1):
            if steps > FAR and id(segment) not in self._holders:
                self._hold_one(id(segment), segment.bytes, whole=True)
                break
            # The one before the new ones is measured once more: what a renderer keeps of it came after it was held.
            if self._hold_one(id(segment), segment.own_bytes):
                break
        if self._budget is not None:
            self._budget.shared.hold(transcript, settings)

    def release(self, transcript: Transcript, settings: bytes = b"") -> None:
        """Counts one holder less; costs the segments that nobody holds any more."""
        if settings:
            self._release_one(id(settings))
        for segment in transcript.segments():
            if self._release_one(id(segment)):
                break
        if self._budget is not None:
            self._budget.shared.release(transcript, settings)

    def _hold_one(self, name: int, size: int, *, whole: bool = False) -> bool:
        """Returns whether it was held before."""
        holders, counted, known_whole = self._holders.get(name, (0, 0, whole))
        if known_whole and not whole:
            size = counted
        self._holders[name] = (holders + 1, size, known_whole)
        self.total += size - counted
        return holders > 0

    def _release_one(self, name: int) -> bool:
        """Returns whether that is all: it is still held, or was counted with all before it."""
        holders, counted, whole = self._holders[name]
        if holders > 1:
            self._holders[name] = (holders - 1, counted, whole)
            return True
        del self._holders[name]
        self.total -= counted
        return whole


class Member:
    """What one session holds of a budget."""

    __slots__ = ("_budget", "_shed", "shared")

    def __init__(self, budget: Budget, shed: Callable[[], bool]) -> None:
        """Takes the budget, and what lets go of one idle response and returns whether there was one."""
        self._budget = budget
        self._shed = shed
        self.shared: Final = SharedBytes(budget)

    def used(self) -> None:
        """Hears that the session holds more than before; makes room where the server holds too much."""
        self._budget.used(self)

    def shed(self) -> bool:
        """Lets go of one idle response; returns whether there was one."""
        return self._shed()

    def leave(self) -> None:
        """Hears that the session is over and has released what it held. Idempotent."""
        self._budget.left(self)


class Budget:
    """Bytes of all that a server keeps for continuation."""

    def __init__(self, max_bytes: int | None = None) -> None:
        """Takes the most bytes; None for no limit."""
        self.max_bytes: Final = max_bytes
        self.shared: Final = SharedBytes()
        self.forget: Callable[[], bool] = lambda: False
        """Forgets one conversation that nobody goes on from by its id; returns whether there was one."""
        self._members: OrderedDict[Member, None] = OrderedDict()
        """Those that hold something, the one unused for the longest time first."""

    @property
    def full(self) -> bool:
        """Whether what cannot be let go is over the limit."""
        return self.max_bytes is not None and self.shared.total > self.max_bytes

    def used(self, member: Member) -> None:
        """Hears that a member holds more than before, and makes room."""
        self._members[member] = None
        self._members.move_to_end(member)
        self.trim()

    def left(self, member: Member) -> None:
        """Hears that a member holds nothing any more."""
        self._members.pop(member, None)

    def trim(self) -> None:
        """Makes room as far as there is anything idle."""
        if not self.full:
            return
        while self.full and self.forget():
            pass
        passed = 0
        while self.full and self._members and passed < min(PATIENCE, len(self._members)):
            member = next(iter(self._members))
            if member.shed():
                continue
            self._members.move_to_end(member)
            passed += 1
