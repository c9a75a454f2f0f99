"""A session at a server elsewhere, on a connection of its own: events in, batches out.

Above it: the WebSocket door of a bridge. Below it: a transport. It decides nothing: the opening, the credit and the
acknowledgements are those of whoever drives it; only what the server has already is not sent again (`resent`). One
message at most waits in each direction, so the flow control of one side is that of the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from turnwire.client._transport import Transport
from turnwire.client.remote.failures import ending_error
from turnwire.client.remote.resent import ResentSettings
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import make_error
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.session_pb2 import SessionOpen

# Seconds for which the last batch of a session that was lost may wait to be taken before `on_cut`.
_CUT_AFTER: Final = 1.0


class RemoteLink:
    """The port's `Link` over a server elsewhere."""

    def __init__(
        self,
        transport: Transport,
        opening: SessionOpen | None,
        address: str,
        connect_timeout: float,
        on_closed: Callable[[RemoteLink], None],
    ) -> None:
        """Takes a transport over, the settings unless the session's owner sends them, and who hears when everything was
        given back."""
        self.close_error: Error | None = None
        """Why the session has ended, once `next_batch` has returned None; None where it ended in order."""
        self.on_cut: Callable[[], object] | None = None
        """Hears that the session was lost while a batch waits that nobody takes."""
        self._transport: Final = transport
        self._address: Final = address
        # Without an opening nothing need be heard before the first request.
        self._connect_timeout: Final = None if opening is None else connect_timeout
        self._outgoing: Final[asyncio.Queue[ConnectRequest]] = asyncio.Queue(1)
        self._incoming: Final[asyncio.Queue[ConnectResponse | None]] = asyncio.Queue(1)
        self._resent: Final = ResentSettings()
        self._over = False
        # Not by cancelling: a task that has not begun would not give anything back.
        self._stop: Final = asyncio.Event()
        if opening is not None:
            self._outgoing.put_nowait(ConnectRequest(open=opening))
        self._task: Final = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda task: on_closed(self))

    async def send(self, request: ConnectRequest, size: int) -> None:
        """Takes a client event; waits while the connection has no room. Cancelling it may lose the event.

        After the end of the session it is dropped.
        """
        if self._task.done():
            return
        request = self._resent.sent(request)
        if not self._outgoing.full():
            self._outgoing.put_nowait(request)
        else:
            put = asyncio.ensure_future(self._outgoing.put(request))
            try:
                await asyncio.wait((put, self._task), return_when=asyncio.FIRST_COMPLETED)
            finally:
                put.cancel()

    async def next_batch(self) -> ConnectResponse | None:
        """Waits for events; None when the session has ended. Cancelling it is safe: nothing is lost."""
        if self._over:
            return None
        batch = await self._incoming.get()
        if batch is None:
            self._over = True
        return batch

    def sent(self, size: int, events: int) -> None:
        """Hears the size of the last batch as it went on; nothing here counts it."""

    def close(self) -> None:
        """Ends the session at once and frees what runs in it. Idempotent."""
        self._stop.set()

    async def closed(self) -> None:
        """Waits until everything was given back, after `close`. Cancelling it is safe."""
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, writing, stopping):
                task.cancel()
            with contextlib.suppress(Exception):
                await self._transport.close()
            await asyncio.gather(reading, writing, stopping, return_exceptions=True)
            # Nothing is left that anybody wants: this is the end of `close`, or nothing waits but the last word.
            while not self._incoming.empty():
                self._incoming.get_nowait()
            self._incoming.put_nowait(None)

    async def _read(self) -> None:
        """Reads to the end; a write that fails is explained by the read that then fails too."""
        opened = False
        try:
            async with asyncio.timeout(self._connect_timeout):
                batch = await self._transport.receive()
            while batch is not None:
                opened = True
                self._resent.heard(batch)
                await self._incoming.put(batch)
                batch = await self._transport.receive()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # gRPC raises this too when something on the way resets the stream.
            self.close_error = make_error("session_lost", f"The session with {self._address} was lost.")
        except TimeoutError:
            message = f"{self._address} opened no session within {self._connect_timeout:g} s."
            self.close_error = make_error("session_lost", message)
        except Exception as failure:
            self.close_error = ending_error(self._address, failure, opened=opened)
        await self._end()

    async def _end(self) -> None:
        """Puts the last word behind the last batch, which is taken unless whoever should is held up by its client."""
        if self.close_error is not None:
            try:
                async with asyncio.timeout(_CUT_AFTER):
                    await self._incoming.put(None)
                return
            except TimeoutError:
                if self.on_cut is not None:
                    self.on_cut()
        await self._incoming.put(None)

    async def _write(self) -> None:
        while True:
            request = await self._outgoing.get()
            with contextlib.suppress(Exception):
                await self._transport.send(request)
