"""A started MCP server, spoken to over its standard input and output; with bounds that the SDK's transport lacks.

The SDK's own keeps a line of any length in memory and copies it with every piece that comes. Here a line that is too
long is cut and its rest is skipped as it comes. Above: connections. Below: the SDK's message types.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from turnwire.server.tools.config import McpLimits
from turnwire.server.tools.declared import ServerSpec
from turnwire.server.tools.mcp.cutting import cut_message, spoilt_message

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_PIECE: Final = 64 * 1024
_GRACE: Final = 2.0
"""Seconds for a server to end by itself, and again after it was asked by signal."""


class LineCutter:
    """Finds lines in what a server says, and cuts those that are too long."""

    def __init__(self, limit: int) -> None:
        """Takes the most bytes of one line."""
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Takes what came and returns the lines that it ends, cut where they are too long."""
        lines: list[bytes] = []
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._keep(end)
            lines.append(self._line())
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        room = self._limit - self._size
        if room > 0:
            self._pieces.append(piece[:room])
        self._size += len(piece)

    def _line(self) -> bytes:
        line, size = b"".join(self._pieces), self._size
        self._pieces.clear()
        self._size = 0
        if size <= self._limit:
            return line
        return cut_message(line) or line


@asynccontextmanager
async def stdio_transport(
    spec: ServerSpec, limits: McpLimits, on_end: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Starts a server and ends it, with all that it started, when the block is left.

    Args:
        spec: What to start.
        limits: Bounds of what it says.
        on_end: Hears that the server says nothing more.
    """
    process = await asyncio.create_subprocess_exec(
        *spec.command,
        stdin=PIPE,
        stdout=PIPE,
        # What a server logs may hold secrets and has no bound.
        stderr=DEVNULL,
        env={**get_default_environment(), **spec.env},
        cwd=spec.cwd or None,
        start_new_session=True,
        limit=_PIECE,
    )
    said, to_session = _stream()
    to_server, from_session = _outgoing()
    reading = asyncio.create_task(_read(process, said, limits.max_message_bytes))
    reading.add_done_callback(lambda done: on_end())
    writing = asyncio.create_task(_write(process, from_session, said))
    try:
        yield to_session, to_server
    finally:
        for stream in (said, to_session, to_server, from_session):
            stream.close()
        await _shut_down(process, reading, writing)


def _stream() -> tuple[
    MemoryObjectSendStream[SessionMessage | Exception], MemoryObjectReceiveStream[SessionMessage | Exception]
]:
    return anyio.create_memory_object_stream[SessionMessage | Exception](0)


def _outgoing() -> tuple[MemoryObjectSendStream[SessionMessage], MemoryObjectReceiveStream[SessionMessage]]:
    return anyio.create_memory_object_stream[SessionMessage](0)


async def _read(process: Process, said: MemoryObjectSendStream[SessionMessage | Exception], limit: int) -> None:
    assert process.stdout is not None
    cutter = LineCutter(limit)
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        async with said:
            while piece := await process.stdout.read(_PIECE):
                for line in cutter.feed(piece):
                    if not line.strip():
                        continue
                    message = _message(line) or _message(spoilt_message(line))
                    # Servers print all sorts of things; what is no message is no harm.
                    if message is not None:
                        await said.send(message)


def _message(line: bytes | None) -> SessionMessage | None:
    try:
        return None if line is None else SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


async def _write(
    process: Process,
    from_session: MemoryObjectReceiveStream[SessionMessage],
    said: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin is not None
    try:
        async for message in from_session:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The session then sees the connection end, instead of waiting for answers that cannot come.
        said.close()


async def _shut_down(process: Process, *pumps: asyncio.Task[None]) -> None:
    try:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await _end(process)
    finally:
        # Whoever has no time to wait still leaves nothing behind; and what a server started may outlive it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


async def _end(process: Process) -> None:
    """Ends a server as the protocol asks: by closing its input, then by signals to it and what it started."""
    if process.stdin is not None:
        with contextlib.suppress(ConnectionError, OSError):
            process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await _drained(process)
                return


async def _drained(process: Process) -> None:
    """Waits for the end of a process; reads what it still says, since a full pipe would keep it from ending."""
    if process.stdout is not None:
        while await process.stdout.read(_PIECE):
            pass
    await process.wait()
