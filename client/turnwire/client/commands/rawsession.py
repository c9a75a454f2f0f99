"""A session without a library's help: messages go out as they are given and come in as they are.

Only credit is returned here, since without it a long answer would stop. Above it: `turnwire events`. Below it: the
client's transport.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

from grpc import aio

from turnwire.client._fold import CREDIT_EXEMPT, call_id_of
from turnwire.client._status import connect_error
from turnwire.client._transport import Transport
from turnwire.client.exceptions import AuthenticationError, RequestRejectedError, TurnwireError
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent
from turnwire.v1.session_pb2 import ResponseCredit, SessionAck, SessionClose

_END_SECONDS: Final = 10.0
_FIRST_ANSWER_SECONDS: Final = 1.0
_ANSWERED_BY: Final = {
    "opened": "open",
    "created": "create",
    "appended": "append",
    "steer_accepted": "steer",
    "steer_pending": "steer",
    "steer_failed": "steer",
    "pong": "ping",
}


class RawSession:
    """One stream, and enough knowledge of it to tell when nothing more will come."""

    def __init__(
        self,
        transport: Transport,
        address: str,
        *,
        on_sent: Callable[[ConnectRequest], None] | None = None,
        on_batch: Callable[[ConnectResponse], None] | None = None,
        on_end: Callable[[str], None] | None = None,
        return_credit: bool = True,
    ) -> None:
        """Takes the transport over.

        Args:
            transport: What carries the messages.
            address: Where it leads, for messages to people.
            on_sent: Hears of every message that is sent, credit included.
            on_batch: Hears of every batch that came.
            on_end: Hears how the stream ended.
            return_credit: Whether to acknowledge what comes, where the server asks for it.
        """
        self._transport = transport
        self._address = address
        self._on_sent = on_sent or _ignore
        self._on_batch = on_batch or _ignore
        self._on_end = on_end or _ignore
        self._return_credit = return_credit
        self._asked: Counter[str] = Counter()
        self._running: set[int] = set()
        self._outputs: set[str] = set()
        self._session_credit = 0
        self._response_credit = 0
        self._owed: Counter[int] = Counter()
        self._closing = False
        self._heard = False
        self._writing = asyncio.Lock()
        self._changed = asyncio.Event()
        self.over = False
        """Whether the stream has ended."""

    async def run(self, requests: AsyncIterator[ConnectRequest]) -> None:
        """Sends requests as they come, and once they are all answered ends the session in order.

        Cancelling it is safe: the stream is ended.

        Raises:
            ConnectError: Nobody answered.
            AuthenticationError: The server wants an API key, or another one.
            TurnwireError: The stream ended by an error.
        """
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write(requests))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await writing
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_SECONDS):
                        await asyncio.shield(reading)
            if reading.done():
                await reading
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
            await self._transport.close()

    @property
    def idle(self) -> bool:
        """Whether everything asked is answered and every response has ended or waits for outputs."""
        return not self._running and not self._asked.total()

    async def until_changed(self) -> None:
        """Waits until something comes. Cancelling it is safe."""
        self._changed.clear()
        await self._changed.wait()

    async def _write(self, requests: AsyncIterator[ConnectRequest]) -> None:
        async for request in requests:
            self._note_sent(request)
            await self._send(request)
            # A stream that is refused as a whole while more is being written to it loses the status that says why.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_ANSWER_SECONDS):
                    while not self._heard and not self.over:
                        await self.until_changed()
        while not self.idle and not self.over:
            await self.until_changed()
        if not self._closing:
            self._closing = True
            await self._send(ConnectRequest(close=SessionClose()))
        if not self.over:
            await self._transport.finish()

    async def _send(self, request: ConnectRequest) -> None:
        if self.over:
            return
        # What goes wrong here is told to the reader as well, with the status that explains it.
        with contextlib.suppress(aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError):
            async with self._writing:
                # Before it is, so that nobody hears of an answer first.
                self._on_sent(request)
                await self._transport.send(request)

    def _note_sent(self, request: ConnectRequest) -> None:
        kind = request.WhichOneof("event") or ""
        if kind == "close":
            self._closing = True
        elif kind in _ANSWERED_BY.values():
            self._asked[kind] += 1
        self._outputs.update(call_id_of(item) for item in request.append.input)

    async def _read(self) -> None:
        try:
            while (batch := await self._transport.receive()) is not None:
                self._heard = True
                self._on_batch(batch)
                for event in batch.events:
                    self._note_event(event)
                self._changed.set()
                await self._give_back(batch)
            self._on_end("OK")
        except TurnwireError as error:
            self._on_end(str(error))
            if not self._heard and not isinstance(error, (AuthenticationError, RequestRejectedError)):
                raise connect_error(self._address, error) from error
            raise
        finally:
            self.over = True
            self._changed.set()

    def _note_event(self, event: ServerEvent) -> None:
        kind = event.WhichOneof("event") or ""
        asked = _ANSWERED_BY.get(kind)
        if asked is not None:
            self._answered(asked)
        if kind == "opened":
            self._session_credit = event.opened.session_credit_bytes
            self._response_credit = event.opened.response_credit_bytes
        elif kind == "rejected":
            # It does not say what was refused; whatever is still open is as good.
            self._answered(next((each for each, count in self._asked.items() if count), ""))
        elif event.response and (kind == "created" or (kind == "appended" and not event.appended.awaiting_call_ids)):
            self._running.add(event.response)
        elif kind == "done" and not self._is_answered(event.done):
            self._running.discard(event.response)
            self._owed.pop(event.response, None)
        if self._response_credit and event.response and kind not in CREDIT_EXEMPT:
            self._owed[event.response] += event.ByteSize()

    def _is_answered(self, done: ResponseDone) -> bool:
        """Whether this is a pause whose outputs are on their way, or were confirmed before the pause came."""
        return done.reason == DoneReason.DONE_REASON_TOOL_CALLS and self._outputs.issuperset(done.awaiting_call_ids)

    def _answered(self, kind: str) -> None:
        if self._asked[kind] > 0:
            self._asked[kind] -= 1

    async def _give_back(self, batch: ConnectResponse) -> None:
        if not self._return_credit:
            return
        if self._session_credit and batch.events:
            last = batch.first_event_id + len(batch.events) - 1
            await self._send(ConnectRequest(ack=SessionAck(last_event_id=last)))
        for handle, owed in list(self._owed.items()):
            if owed * 4 >= self._response_credit:
                del self._owed[handle]
                await self._send(ConnectRequest(credit=ResponseCredit(response=handle, bytes=owed)))


def _ignore(_: object) -> None:
    """Hears nothing."""
