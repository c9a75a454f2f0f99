"""Pings from the server: whether a silent client is still there.

Above it: `connection`. Below it: the event loop's timers. A client that is busy taking frames, or that is not being
read, answers no pings and is not gone for it: those wait until it can be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pulse:
    """Watches one connection."""

    def __init__(
        self,
        interval: float,
        patience: float,
        *,
        askable: Callable[[], bool],
        ping: Callable[[], object],
        gone: Callable[[], object],
    ) -> None:
        """Starts watching.

        Args:
            interval: Seconds of silence after which the client is pinged.
            patience: Seconds for its answer.
            askable: Whether the client could answer now.
            ping: Sends a ping.
            gone: Hears that no answer came.
        """
        self._interval = interval
        self._patience = patience
        self._askable = askable
        self._ping = ping
        self._gone = gone
        self._heard = True
        self._asked = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(interval, self._beat)

    def heard(self) -> None:
        """Notes a frame of the client's, of whatever kind."""
        self._heard = True

    def stop(self) -> None:
        """Stops watching. Idempotent."""
        self._timer.cancel()

    def _beat(self) -> None:
        silent = not self._heard
        self._heard = False
        if not silent or not self._askable():
            self._asked = False
        elif self._asked:
            self._gone()
            return
        else:
            self._asked = True
            self._ping()
        self._again(self._patience if self._asked else self._interval)

    def _again(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._beat)
