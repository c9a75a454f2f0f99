"""The sockets under aiohttp's connections, so that a driver ends when they are gone.

Above it: drivers over HTTP and WebSocket. Below it: the kernel. With TLS a connection that was given back or closed
says good-bye on its own afterwards, and neither aiohttp nor asyncio tells when it has.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any, Final

_GOODBYE: Final = 2.0
"""Seconds that closing connections may take."""
_LOOK: Final = 0.005
"""Seconds after which they are looked at again."""


class Sockets:
    """Makes sockets for one connector and remembers those that may still be open."""

    def __init__(self) -> None:
        """Begins without any."""
        self._made: list[socket.socket] = []

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Makes a socket for an address as the resolver found it; what aiohttp takes as `socket_factory`."""
        self._made = self._open()
        family, kind, protocol = address[:3]
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        self._made.append(made)
        return made

    async def gone(self) -> None:
        """Waits until all are closed, two seconds at most. Safe to cancel."""
        end = time.monotonic() + _GOODBYE
        while self._open() and time.monotonic() < end:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_LOOK)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._made if each.fileno() >= 0]
