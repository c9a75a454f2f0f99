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

from turnwire.server.session.state import State
from turnwire.server.session.transcript import Transcript

PATIENCE: Final = 64
"""Sessions without anything idle that one look for room passes by: bounds what a turn can cost beside thousands."""


FAR: Final = 64
"""Segments that are looked at for one that is held already. A turn adds two or three; a conversation that comes from
elsewhere (the store, another session) is not gone through, since its size is known, and counts as a whole."""


_WHOLE: Final = 30
_SIZE: Final = 31
_HOLDERS: Final = (1 << _WHOLE) - 1


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
        self._holders: dict[Transcript | bytes, int] = {}
        """Who is held, with one number of three parts, since there is one for each segment: the bytes it was counted
        with above `_SIZE`, whether these are of all before it too, and how many hold it."""

    def hold(self, transcript: Transcript, settings: bytes = b"") -> None:
        """Counts one more holder; costs the segments that nobody held before, and one more."""
        if settings:
            self._hold_one(settings, len(settings))
        for steps, segment in enumerate(transcript.segments(), start=1):
            if steps > FAR and segment not in self._holders:
                self._hold_one(segment, segment.bytes, whole=True)
                break
            # The one before the new ones is measured once more: what a renderer keeps of it came after it was held.
            if self._hold_one(segment, segment.own_bytes):
                break
        if self._budget is not None:
            self._budget.shared.hold(transcript, settings)

    def release(self, transcript: Transcript, settings: bytes = b"") -> None:
        """Counts one holder less; costs the segments that nobody holds any more."""
        if settings:
            self._release_one(settings)
        for segment in transcript.segments():
            if self._release_one(segment):
                break
        if self._budget is not None:
            self._budget.shared.release(transcript, settings)

    def _hold_one(self, held: Transcript | bytes, size: int, *, whole: bool = False) -> bool:
        """Returns whether it was held before."""
        known = self._holders.get(held)
        if known is None:
            self._holders[held] = size << _SIZE | whole << _WHOLE | 1
            self.total += size
            return False
        if not known >> _WHOLE & 1:
            self.total += size - (known >> _SIZE)
            known = size << _SIZE | known & _HOLDERS
        self._holders[held] = known + 1
        return True

    def _release_one(self, held: Transcript | bytes) -> bool:
        """Returns whether that is all: it is still held, or was counted with all before it."""
        known = self._holders[held]
        if known & _HOLDERS > 1:
            self._holders[held] = known - 1
            return True
        del self._holders[held]
        self.total -= known >> _SIZE
        return bool(known >> _WHOLE & 1)


def hold(shared: SharedBytes, state: State) -> None:
    """Counts all that a response keeps in memory."""
    shared.hold(state.transcript, state.settings)
    # Where a conversation became shorter, the rest is kept for who asks what was sent and said.
    for beside in (state.resent, state.earlier):
        if beside.length:
            shared.hold(beside)


def release(shared: SharedBytes, state: State) -> None:
    """Counts it no more."""
    shared.release(state.transcript, state.settings)
    for beside in (state.resent, state.earlier):
        if beside.length:
            shared.release(beside)


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
