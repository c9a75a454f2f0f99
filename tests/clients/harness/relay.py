"""A relay of bytes that counts them: what a client really sends and receives, framing and compression included.

Above it: the measurement of Codex. Below it: plain TCP.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

_EXTENSIONS: Final = re.compile(rb"sec-websocket-extensions:", re.IGNORECASE)
_HIDDEN: Final = b"x-hidden-from-the-server:"


class Relay:
    """Passes every connection on to another port of this machine."""

    def __init__(self, port: int, *, hides_extensions: bool = False) -> None:
        """Takes the port, and whether servers are kept from seeing that a WebSocket client would compress."""
        self.port = 0
        """Where it listens."""
        self.connections = 0
        self.sent = 0
        """Bytes from clients."""
        self.received = 0
        """Bytes to clients."""
        self._to = port
        self._hides_extensions = hides_extensions
        self._running: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None, None]:
        """Listens at a free port until the block ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self.connections += 1
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._to)
            try:
                # Either end may leave first. So may the block: asyncio logs a cancelled task of a stream as broken.
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await asyncio.gather(
                        self._pump(reader, upstream_writer, counts_sent=True),
                        self._pump(upstream_reader, writer, counts_sent=False),
                    )
            finally:
                upstream_writer.close()
        finally:
            writer.close()
            self._running.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts_sent: bool) -> None:
        while data := await reader.read(65_536):
            if counts_sent:
                self.sent += len(data)
                if self._hides_extensions:
                    data = _EXTENSIONS.sub(_HIDDEN, data)
            else:
                self.received += len(data)
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
