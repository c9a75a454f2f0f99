"""Waiting for a slot: the asyncio half of `slots`.

Above it: `passes`. Below it: `slots`.
"""

from __future__ import annotations

import asyncio

from turnwire.server.engine.local.slots import Request, Slot, SlotTable
from turnwire.server.session.transcript import Transcript


class SlotQueue:
    """Hands slots out to passes."""

    def __init__(self, table: SlotTable) -> None:
        """Takes the table that decides."""
        self.table = table
        self._futures: dict[Request, asyncio.Future[Slot]] = {}

    async def acquire(self, transcript: Transcript) -> Slot:
        """Waits for a slot. Safe to cancel."""
        request = self.table.request(transcript)
        if request.slot is not None:
            return request.slot
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._futures[request] = future
        try:
            return await future
        except asyncio.CancelledError:
            if request.slot is not None:
                # It came in the same moment.
                self.release(request.slot)
            raise
        finally:
            self.table.withdraw(request)
            self._futures.pop(request, None)

    def release(self, slot: Slot) -> None:
        """Makes a slot idle, and wakes who gets it."""
        for request in self.table.release(slot):
            future = self._futures.pop(request, None)
            if future is not None and not future.done() and request.slot is not None:
                future.set_result(request.slot)
            elif request.slot is not None:
                self.release(request.slot)
