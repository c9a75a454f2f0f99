"""Which chain runs on which slot. Pure: no I/O, no clock.

Above it: `waiting`. Below it: transcripts. A slot keeps the model's state of the prompt it saw last; what a prompt has
in common with it need not be computed again. So a pass goes, in this order,

1. to the slot on which its nearest ancestor ran, if that is idle: the next turn of a chain, or a fork of it;
2. to that same slot once it is idle, if its pass is over already and only the computing has yet to stop;
3. to the idle slot that was used longest ago, those never used first: a new chain, or a fork beside a running one;
4. to the next slot that becomes idle, first come, first served.

A running pass is never disturbed. Passes of a slot's chain are known by the identity of their transcripts, which is why
the slot holds on to them; a bounded number, and mostly those that the chain's newest state holds anyway.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from turnwire.server.session.transcript import Transcript

KEPT: Final = 64
"""Passes of a chain by which its slot is found again; a fork from further back is treated as a new chain."""


class SlotState(enum.Enum):
    """What a slot is doing."""

    IDLE = enum.auto()
    BUSY = enum.auto()
    LEAVING = enum.auto()
    """Its pass is over; the computing is about to stop."""


@dataclass(slots=True, eq=False)
class Slot:
    """One of llama.cpp's slots."""

    id: int
    state: SlotState = SlotState.IDLE
    passes: deque[Transcript] = field(default_factory=deque[Transcript])
    """What ran here, each an ancestor of the next."""
    used: int = 0
    """When it was used last, as a running number; 0 for never."""


@dataclass(slots=True, eq=False)
class Request:
    """A pass that wants a slot."""

    transcript: Transcript
    slot: Slot | None = None
    """The slot it got; None while it waits."""


@dataclass(slots=True)
class SlotCounts:
    """How passes found their slots."""

    stayed: int = 0
    """Passes that ran where their nearest ancestor had run."""
    moved: int = 0
    """Passes that had to go elsewhere, since another pass of their chain was running there."""
    fresh: int = 0
    """Passes of chains that no slot knew: new ones, and those that had lost theirs."""
    evicted: int = 0
    """Chains that lost their slot to another."""


class SlotTable:
    """Gives slots to passes."""

    def __init__(self, count: int) -> None:
        """Starts with idle slots."""
        self.slots: Final = tuple(Slot(number) for number in range(count))
        self.counts: Final = SlotCounts()
        self._homes: dict[int, Slot] = {}
        """Where a transcript ran, by its identity; the slot keeps it alive."""
        self._waiting: dict[Request, None] = {}
        self._uses = 0

    @property
    def waiting(self) -> int:
        """How many passes wait."""
        return len(self._waiting)

    def request(self, transcript: Transcript) -> Request:
        """Asks for a slot; the request has one already, or waits in line."""
        request = Request(transcript)
        if not self._try(request):
            self._waiting[request] = None
        return request

    def withdraw(self, request: Request) -> None:
        """Gives up waiting."""
        self._waiting.pop(request, None)

    def leave(self, slot: Slot) -> None:
        """Hears that a slot's pass is over, though the computing has yet to stop."""
        slot.state = SlotState.LEAVING

    def release(self, slot: Slot) -> list[Request]:
        """Makes a slot idle and returns the requests that got one by it."""
        slot.state = SlotState.IDLE
        served: list[Request] = []
        for request in tuple(self._waiting):
            if self._try(request):
                del self._waiting[request]
                served.append(request)
        return served

    def _try(self, request: Request) -> bool:
        home, ancestor = self._home(request.transcript)
        if home is not None and home.state is SlotState.LEAVING:
            return False
        if home is not None and home.state is SlotState.IDLE:
            self.counts.stayed += 1
            while home.passes[-1] is not ancestor:
                self._forget(home.passes.pop(), home)
            request.slot = self._take(home, request.transcript)
            return True
        idle = min((slot for slot in self.slots if slot.state is SlotState.IDLE), key=lambda s: s.used, default=None)
        if idle is None:
            return False
        if home is not None:
            self.counts.moved += 1
        else:
            self.counts.fresh += 1
        self.counts.evicted += bool(idle.passes)
        while idle.passes:
            self._forget(idle.passes.pop(), idle)
        request.slot = self._take(idle, request.transcript)
        return True

    def _home(self, transcript: Transcript) -> tuple[Slot | None, Transcript | None]:
        for segment in transcript.segments():
            home = self._homes.get(id(segment))
            if home is not None:
                return home, segment
        return None, None

    def _take(self, slot: Slot, transcript: Transcript) -> Slot:
        slot.state = SlotState.BUSY
        self._uses += 1
        slot.used = self._uses
        # The empty transcript is everybody's ancestor, and says nothing about a chain.
        if transcript.length and (not slot.passes or slot.passes[-1] is not transcript):
            if len(slot.passes) == KEPT:
                self._forget(slot.passes.popleft(), slot)
            slot.passes.append(transcript)
            self._homes[id(transcript)] = slot
        return slot

    def _forget(self, transcript: Transcript, slot: Slot) -> None:
        if self._homes.get(id(transcript)) is slot:
            del self._homes[id(transcript)]
