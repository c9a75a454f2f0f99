"""One WebSocket at work: a reader, a writer, pings, and the end; the only user of aiohttp's socket.

Above it: `door`. Below it: a dialect, and the session behind the port. aiohttp does the handshake, reads, compresses
and closes. Frames are written past it where they are not compressed: a batch is then one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

from aiohttp import WSMsgType
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web import BaseRequest, WebSocketResponse

from turnwire.server.doors.websocket import wire
from turnwire.server.doors.websocket.dialect import TOO_BIG, UNSUPPORTED_DATA, Answered, Closing, Dialect, closing
from turnwire.server.doors.websocket.options import WebSocketOptions
from turnwire.server.doors.websocket.pulse import Pulse
from turnwire.server.runtime.threads import parsed
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError
from turnwire.v1.official.backend import Link
from turnwire.v1.official.errors import internal_error

_log: Final = logging.getLogger(__name__)

BytesSocket = WebSocketResponse[Literal[False]]
"""A socket whose text is handed out as bytes."""


class _Stalled(Exception):
    """The client takes nothing."""


class Socket:
    """What is written to one socket."""

    def __init__(
        self, socket: BytesSocket, request: BaseRequest, writer: AbstractStreamWriter, options: WebSocketOptions
    ) -> None:
        """Takes a socket that is open, the request that opened it, and what `prepare` returned.

        Raises:
            ConnectionError: The client is gone already.
        """
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        self.aiohttp = socket
        self._transport: asyncio.Transport = transport
        self._protocol = request.protocol
        self._writer = writer
        self._options = options

    @property
    def blocked(self) -> bool:
        """Whether more is waiting to be taken than should be."""
        return self._protocol.writing_paused

    async def send(self, messages: Sequence[bytes], opcode: int) -> None:
        """Sends messages, and waits while too much waits for the client. When cancelled, they are sent all the same.

        Raises:
            ConnectionError: The client is gone.
            _Stalled: It took nothing for too long.
        """
        if self.aiohttp.compress:
            for message in messages:
                await self.aiohttp.send_frame(message, WSMsgType(opcode))
        elif self._transport.is_closing():
            raise ConnectionResetError
        else:
            self._transport.write(wire.pack(messages, opcode))
        if self.blocked:
            await self._drain()

    async def pong(self, payload: bytes) -> None:
        """Answers a ping, and waits as `send` does: nobody may fill the memory by pings either.

        Raises:
            ConnectionError: The client is gone.
            _Stalled: It took nothing for too long.
        """
        await self.aiohttp.pong(payload)
        if self.blocked:
            await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._options.stall_timeout):
                await self._writer.drain()
        except TimeoutError:
            raise _Stalled from None

    def ping(self) -> None:
        """Sends a ping."""
        if not self._transport.is_closing():
            self._transport.write(wire.PING)

    def cut(self) -> None:
        """Drops the connection with everything that waits to be sent."""
        self._transport.abort()

    async def close(self, said: Closing) -> None:
        """Closes in order: a close frame, and a while for the client's."""
        try:
            async with asyncio.timeout(self._options.close_timeout + 1.0):
                await self.aiohttp.close(code=said.code, message=said.reason.encode())
        except TimeoutError:
            self.cut()


class Connection:
    """One client, from the handshake to the end."""

    def __init__(self, socket: Socket, link: Link, dialect: Dialect, options: WebSocketOptions) -> None:
        """Takes an open socket, an open session, and the language between them."""
        self._socket = socket
        self._link = link
        self._dialect = dialect
        self._options = options
        self._reading = False
        """Whether the client is being listened to."""
        self._pulse = Pulse(
            options.ping_interval,
            options.pong_timeout,
            askable=lambda: self._reading and not socket.blocked,
            ping=socket.ping,
            gone=socket.cut,
        )

    async def serve(self) -> None:
        """Serves until the client goes or the session ends. Cancelling it frees the session at once."""
        reader = asyncio.create_task(self._read())
        writer = asyncio.create_task(self._write())
        self._link.on_cut = writer.cancel
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            by_client = reader.done()
        finally:
            self._link.on_cut = None
            self._link.close()
            self._pulse.stop()
            reader.cancel()
            writer.cancel()
            read, written = await asyncio.gather(reader, writer, return_exceptions=True)
        error = self._link.close_error
        for outcome in (read, written):
            if isinstance(outcome, (ConnectionError, _Stalled)):
                self._socket.cut()
                return
            if isinstance(outcome, RequestError):
                error = outcome.error
            elif isinstance(outcome, Exception):
                _log.error("a WebSocket failed", exc_info=outcome)
                error = internal_error()
        if not by_client or isinstance(read, BaseException):
            await self._end(error)
        elif read is not None:
            await self._socket.close(read)

    async def _end(self, error: Error | None) -> None:
        """Says why the session has ended, to a client that takes it."""
        if self._socket.blocked:
            self._socket.cut()
            return
        try:
            if messages := self._dialect.farewell(error):
                await self._socket.send(messages, self._dialect.opcode)
        except (ConnectionError, _Stalled):
            self._socket.cut()
            return
        await self._socket.close(closing(error, self._dialect.going))

    async def _write(self) -> None:
        socket, link, dialect = self._socket, self._link, self._dialect
        opcode = dialect.opcode
        while (batch := await link.next_batch()) is not None:
            messages = dialect.messages(batch)
            link.sent(sum(map(len, messages)), len(batch.events))
            if messages:
                await socket.send(messages, opcode)

    async def _read(self) -> Closing | None:
        """Reads until the client goes (None), or does what closes the socket.

        Raises:
            RequestError: A message was none, which ends the session.
        """
        socket, dialect = self._socket, self._dialect
        while True:
            self._reading = True
            message = await socket.aiohttp.receive()
            self._reading = False
            self._pulse.heard()
            kind = message.type
            if kind is WSMsgType.PING:
                await socket.pong(message.data)
                continue
            if kind is WSMsgType.PONG:
                continue
            if kind not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return None
            if kind != dialect.opcode:
                return Closing(UNSUPPORTED_DATA, f"{kind.name.lower()} messages are not spoken here")
            data: bytes = message.data
            if len(data) > self._options.max_message_bytes:
                return Closing(TOO_BIG, f"a message may have {self._options.max_message_bytes} bytes")
            try:
                request = dialect.take(await parsed(partial(dialect.read, data), len(data)))
            except Answered as answered:
                await socket.send((answered.frame,), dialect.opcode)
                continue
            await self._link.send(request, len(data))
