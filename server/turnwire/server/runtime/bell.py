"""What one task waits on until somebody has something for it.

Above it: the runner, whose writer waits. Below it: the event loop. `asyncio.Event` does the same for any number of
tasks, and takes 700 bytes for it, of every idle session.
"""

from __future__ import annotations

import asyncio


class Bell:
    """Rung by anybody, heard by one task; rung while nobody waits, it is heard by the next wait."""

    __slots__ = ("_rung", "_waiting")

    def __init__(self) -> None:
        """Starts silent."""
        self._rung = False
        self._waiting: asyncio.Future[None] | None = None

    @property
    def rung(self) -> bool:
        """Whether it was rung since it was hushed last."""
        return self._rung

    def ring(self) -> None:
        """Wakes whoever waits, or lets the next wait end at once."""
        self._rung = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def hush(self) -> None:
        """Lets waits begin anew."""
        self._rung = False

    async def wait(self) -> None:
        """Waits until it is rung. Safe to cancel; only one task at a time may wait."""
        if self._rung:
            return
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None
