"""Moves the messages of one session between its protocol and a transport, with asyncio.

Below: `_protocol`, which decides everything, and `_transport`. Above: sessions and streams. One task reads, one writes,
one keeps the stream from going quiet; nothing else touches the transport, because a read that is cancelled takes the
whole gRPC call with it. Whoever waits for something waits on a `Signal`, which may be cancelled at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from turnwire.client._channel import ChannelOptions
from turnwire.client._fold import ResponseState
from turnwire.client._protocol import SessionProtocol
from turnwire.client._request import Request
from turnwire.client._transport import Transport
from turnwire.client.exceptions import (
    ApiError,
    ConnectError,
    Loss,
    ProtocolError,
    RpcFailedError,
    SessionLost,
    TurnwireError,
)
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.session_pb2 import SessionOpen, SessionOpened

logger = logging.getLogger("turnwire.client")

# How long a failed write waits for the reader to learn the status that explains it.
_STATUS_WAIT: Final = 1.0
_PRUNE_FROM: Final = 16


class Signal:
    """Wakes those who wait for something to change."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        """Starts with nobody waiting."""
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Wakes everyone who waits now."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Returns a future that the next `notify` completes. Cancelling it is safe."""
        waiters = self._waiters
        if len(waiters) >= _PRUNE_FROM:
            # Waits that were cancelled stay until somebody notifies; time-outs in a loop must not pile them up.
            self._waiters = waiters = [waiter for waiter in waiters if not waiter.done()]
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        return waiter


class Connection:
    """One session on one stream."""

    def __init__(self, transport: Transport, options: ChannelOptions, address: str) -> None:
        """Takes the transport over; `open` starts the work."""
        self.protocol: Final = SessionProtocol()
        self.transport: Final = transport
        self.options: Final = options
        self.address: Final = address
        self.lost: Loss | None = None
        """Set when the session has ended."""
        self._cause: BaseException | None = None
        self._ended: Final = Signal()
        self._outgoing: Final = Signal()
        self._room: Final = Signal()
        self._tasks: list[asyncio.Task[None]] = []
        self._flush_timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._closed = False

    # Opening and closing.

    async def open(self, settings: SessionOpen) -> SessionOpened:
        """Opens the session. Cancelling it is safe if `abort` is called afterwards.

        Raises:
            ConnectError: The server did not answer in time.
            RequestRejectedError: The server does not accept the settings.
            SessionLost: The stream ended; the cause says why.
        """
        request = self.protocol.open(settings)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            async with asyncio.timeout(self.options.connect_timeout):
                await self.settled(request)
        except TimeoutError:
            msg = (
                f"{self.address} opened no session within {self.options.connect_timeout:g} s; "
                "check that a turnwire server listens there"
            )
            raise ConnectError(msg) from None
        if self.options.heartbeat is not None:
            self._tasks.append(asyncio.create_task(self._beat(self.options.heartbeat)))
        return self.protocol.opened or SessionOpened()

    async def ended(self) -> None:
        """Waits until the session has ended, however it does. Cancelling it is safe."""
        while self.lost is None:
            await self._ended.wait()

    async def close(self, *, drain: bool = False) -> None:
        """Ends the session in order, or after `close_timeout` by force. Cancelling it ends the session by force.

        Args:
            drain: Whether running responses may finish first; there is no time-out then.
        """
        if self._closed:
            return
        try:
            if self.lost is None:
                self.protocol.close(drain=drain)
                self._outgoing.notify()
                async with asyncio.timeout(None if drain else self.options.close_timeout):
                    await self.ended()
        except TimeoutError:
            logger.debug("%s did not end the session in time", self.address)
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Ends the session by force. Cancelling it may leave the channel to the garbage collector."""
        self._closed = True
        self.end("closed", "the session was closed")
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            await self.transport.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def end(self, reason: str, message: str, cause: BaseException | None = None) -> None:
        """Records that the session has ended and wakes everyone; the first one counts."""
        if self.lost is not None:
            return
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._cause = cause
        self.lost = self.protocol.loss(reason, message)
        self.protocol.wake_all()
        for signal in (self._ended, self._outgoing, self._room):
            signal.notify()

    def check(self) -> None:
        """Raises SessionLost if the session has ended."""
        if self.lost is not None:
            raise SessionLost(self.lost) from self._cause

    # Asking.

    async def room(self) -> None:
        """Waits until a request may be handed to the protocol. Cancelling it is safe.

        Raises:
            SessionLost: The session has ended.
        """
        self.check()
        while self.protocol.waiting >= self.options.max_waiting_requests:
            await self._room.wait()
            self.check()

    def wake(self) -> None:
        """Tells the writer that the protocol has something to send."""
        self._outgoing.notify()

    async def settled(self, request: Request) -> None:
        """Waits for the answer to a request. Cancelling it is safe and leaves the request as it is.

        Raises:
            RequestRejectedError: The server refused it.
            SessionLost: The session ended before.
        """
        self.wake()
        if not request.settled:
            signal = Signal()
            request.listener = signal.notify
            while not request.settled:
                self.check()
                await signal.wait()
        if request.rejection is not None:
            raise request.rejection

    async def create(
        self, body: ResponseCreate, *, lane: str = "", context: RequestContext | None = None, request_id: str = ""
    ) -> ResponseState:
        """Creates a response and returns it once the server has begun with it.

        Cancelling it is safe: the request is withdrawn, and its response cancelled if it exists already.

        Raises:
            ValueError: `request_id` is still in use. Nothing was sent.
            RequestRejectedError: The server refused it.
            SessionLost: The session has ended.
        """
        await self.room()
        request = self.protocol.create(body, lane=lane, context=context, request_id=request_id)
        try:
            await self.settled(request)
        except asyncio.CancelledError:
            self.protocol.abandon(request)
            self.wake()
            raise
        if request.response is None:
            msg = f"the server settled request {request.id} without a response"
            raise TurnwireError(msg)
        return request.response

    def abandon(self, response: ResponseState) -> None:
        """Drops what was not read of a response, and cancels it if it still runs, without waiting."""
        if not response.ended and self.lost is None:
            self.protocol.abandon_response(response)
            self.wake()

    async def until(self, signal: Signal, holds: Callable[[], bool]) -> None:
        """Waits until something holds that `signal` tells about. Cancelling it is safe.

        Raises:
            SessionLost: The session ended before.
        """
        while not holds():
            self.check()
            await signal.wait()

    def return_credit(self, response: ResponseState) -> None:
        """Returns what was taken of a response, now or within the flush interval."""
        if self.protocol.credit.taken(response):
            self._outgoing.notify()
        elif response.consumed:
            self._arm_flush()

    def _arm_flush(self) -> None:
        if self._flush_timer is None and self.lost is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self.options.flush_interval, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        if self.protocol.flush():
            self._arm_flush()
        if self.protocol.has_outgoing:
            self._outgoing.notify()

    # The tasks.

    async def _read(self) -> None:
        protocol = self.protocol
        try:
            while (batch := await self.transport.receive()) is not None:
                self._heard = True
                protocol.receive(batch)
                if protocol.has_outgoing:
                    self._outgoing.notify()
                if protocol.credit.unflushed:
                    self._arm_flush()
        except asyncio.CancelledError:
            # gRPC raises this too when the server, or something on the way, resets the stream.
            if not self._closed:
                self.end("CANCELLED", f"the session with {self.address} was lost: the stream was cancelled")
            raise
        except ProtocolError as error:
            self.end("protocol_error", f"the session was given up: {error}", error)
            await self.transport.close()
        except Exception as error:
            self._end_by(error)
        else:
            if protocol.closing:
                self.end("closed", "the session was closed")
            else:
                self.end("ended", "the server ended the session")

    async def _write(self) -> None:
        protocol = self.protocol
        try:
            while self.lost is None:
                request = protocol.next_request()
                if request is None:
                    await self._outgoing.wait()
                    continue
                await self.transport.send(request)
                if protocol.waiting < self.options.max_waiting_requests:
                    self._room.notify()
                # A draining session still has credit to return.
                if protocol.closing and not protocol.draining and not protocol.has_outgoing:
                    await self.transport.finish()
                    return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # The reader learns the status, which says more than a write that fails.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STATUS_WAIT):
                    await self.ended()
            self._end_by(error)

    async def _beat(self, period: float) -> None:
        while self.lost is None:
            self._heard = False
            await asyncio.sleep(period)
            if not self._heard and not self.protocol.closing:
                self.protocol.ping()
                self._outgoing.notify()

    def _end_by(self, error: Exception) -> None:
        go_away = self.protocol.go_away
        if go_away is not None:
            reason = go_away.reason
        elif isinstance(error, RpcFailedError):
            reason = error.status
        elif isinstance(error, ApiError):
            reason = error.code
        else:
            reason = "error"
        text = str(error) if isinstance(error, TurnwireError) else f"{type(error).__name__}: {error}"
        self.end(reason, f"the session with {self.address} was lost: {text}", error)
