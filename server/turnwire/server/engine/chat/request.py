"""A chat request on its way out: the body in pieces, and the request that tells which connection it takes.

Above it: `upstream`. Below it: aiohttp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

WRITE: Final = 256 * 1024
"""Bytes written at once; the transport may push back in between."""


class ChatBody(aiohttp.Payload):
    """A body in pieces, put together only as far as it is being written."""

    _value: Sequence[bytes]

    def __init__(self, pieces: Sequence[bytes], on_connection: Callable[[ResponseHandler], None]) -> None:
        """Takes the pieces, and what hears over which connection they are about to go."""
        super().__init__(pieces, content_type="application/json")
        self._size = sum(map(len, pieces))
        self.on_connection: Final = on_connection

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the whole body; see aiohttp's `Payload`."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes the body; see aiohttp's `Payload`."""
        batch: list[bytes] = []
        size = 0
        for piece in self._value:
            batch.append(piece)
            size += len(piece)
            if size >= WRITE:
                await _write(writer, b"".join(batch))
                batch.clear()
                size = 0
        if batch:
            await writer.write(b"".join(batch))


async def _write(writer: AbstractStreamWriter, data: bytes) -> None:
    """Writes what may be one huge item."""
    if len(data) <= 2 * WRITE:
        await writer.write(data)
        return
    whole = memoryview(data)
    for start in range(0, len(whole), WRITE):
        await writer.write(whole[start : start + WRITE])


class ChatRequest(aiohttp.ClientRequest):
    """A request that tells its body over which connection it is about to go."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Sends it; see aiohttp's `ClientRequest`."""
        body = self.body
        if isinstance(body, ChatBody) and conn.protocol is not None:
            body.on_connection(conn.protocol)
        return await super().send(conn)
