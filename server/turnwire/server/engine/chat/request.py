"""A chat request on its way out: the body in pieces, and the request that writes it at once.

Above it: `upstream`. Below it: aiohttp. aiohttp writes bodies in a task; with Python 3.11 a task begins only after
everything that is ready already, which here is the beginning of the answer to our own client. So the body is written as
far as it can be before there is a task: the upstream works while our client hears that its response was created.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, Final

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


class EagerRequest(aiohttp.ClientRequest):
    """A request whose body is written before anything else gets its turn."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Sends it; see aiohttp's `ClientRequest`."""
        body = self.body
        if isinstance(body, ChatBody) and conn.protocol is not None:
            body.on_connection(conn.protocol)
        return await super().send(conn)

    def write_bytes(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> Coroutine[Any, Any, None]:
        """Writes as much as the connection takes, and returns what writes the rest; see aiohttp's `ClientRequest`."""
        return begun(super().write_bytes(writer, conn, content_length))


def begun(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """Runs a coroutine up to where it first waits; returns what is left, for a task to run. Raises what it raises.

    The coroutine has no task of its own until then: it must not ask for it before it waits.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return _nothing()
    return _rest(work, awaited)


async def _nothing() -> None:
    pass


async def _rest(work: Coroutine[Any, Any, None], awaited: object) -> None:
    await _waiting(work, awaited)


@types.coroutine
def _waiting(work: Coroutine[Any, Any, None], awaited: object) -> Generator[Any, Any, None]:
    """Goes on where a coroutine waits, with whatever its task sends or throws into it."""
    while True:
        step: Callable[[], object]
        try:
            step = partial(work.send, (yield awaited))
        except BaseException as error:
            step = partial(work.throw, error)
        try:
            awaited = step()
        except StopIteration:
            return
