"""A body on its way to a client: fillers while a stream of events is silent, and an end for clients that take nothing.

Above it: `server`. Below it: aiohttp. One timer serves both, and is set again when it fires, so that a token costs no
timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from aiohttp import web

from turnwire.server.doors.http.compression import Compressor
from turnwire.server.doors.http.options import HttpOptions
from turnwire.server.runtime.clock import Clock, Timer

_log: Final = logging.getLogger(__name__)


class EventStream:
    """Writes the pieces of an event stream, or of a whole answer that is large."""

    def __init__(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        filler: bytes,
        compressor: Compressor | None,
        clock: Clock,
        options: HttpOptions,
    ) -> None:
        """Takes the request, its response, which is prepared by `serve`, what is sent into silence (empty for nothing),
        and what compresses all of it."""
        self._request = request
        self._response = response
        self._filler = filler
        self._compressor = compressor
        self._clock = clock
        self._options = options
        self._timer: Timer | None = None
        self._since = 0.0
        """When the last write began."""
        self._writing = 0
        """Writes that wait for the client."""
        self._comment: asyncio.Task[None] | None = None

    async def serve(self, body: AsyncGenerator[bytes, None]) -> None:
        """Writes the whole body. Cancelling it closes the body, which cancels the response behind it.

        Raises:
            ConnectionError: The client is gone.
        """
        async with aclosing(body):
            await self._response.prepare(self._request)
            self._since = self._clock.now()
            self._tick()
            try:
                async for piece in body:
                    await self._write(piece)
                await self._end()
            finally:
                self._stop()

    async def _write(self, piece: bytes) -> None:
        self._since = self._clock.now()
        self._writing += 1
        if self._compressor is not None:
            piece = self._compressor.piece(piece)
        try:
            await self._response.write(piece)
        finally:
            self._writing -= 1

    async def _end(self) -> None:
        # A client can stop taking here too, since not every write before waits for it.
        self._since = self._clock.now()
        self._writing += 1
        try:
            await self._response.write_eof(b"" if self._compressor is None else self._compressor.end())
        finally:
            self._writing -= 1

    def _tick(self) -> None:
        """Does what is due, and sets the timer to when something may be."""
        now = self._clock.now()
        due = self._since + self._options.comment_interval
        if self._writing:
            end = self._since + self._options.stall_timeout
            if now >= end:
                self._cut_off()
                return
            due = min(end, now + self._options.comment_interval)
        elif now >= due and self._filler:
            self._comment = asyncio.create_task(self._say_something())
            due = now + self._options.comment_interval
        self._timer = self._clock.call_at(due, self._tick)

    async def _say_something(self) -> None:
        # Whoever is gone is found out by the write of the next event, or by the loss of the connection.
        with suppress(ConnectionError):
            await self._write(self._filler)

    def _cut_off(self) -> None:
        _log.info("a client took nothing for %g s and was cut off", self._options.stall_timeout)
        transport = self._request.transport
        if transport is not None:
            transport.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()
