"""One pass over a server-streaming RPC: reading, pausing, aborting, and the one end it has.

Above it: the adapters of vLLM and SGLang, which say how a message reads. Below it: a call of grpc.aio.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio

from turnwire.server.engine.tokens.failures import broken, grpc_failure, pause_of, words
from turnwire.server.engine.tokens.port import TokenDelta, TokenEnd, TokenSink
from turnwire.server.session.chunks import EngineFailure

_log: Final = logging.getLogger(__name__)

_CLOSING: Final = 2.0
"""Seconds that an RPC may go on after it reported the end of its pass, before it is cancelled."""

Reading = TokenDelta | TokenEnd | EngineFailure | None
"""What a message says: ids, the end, trouble, or nothing of interest."""


class GrpcPass:
    """A running pass. The call is cancelled rather than the task, since a cancelled read may leak in grpc.aio."""

    def __init__(
        self,
        engine: str,
        call: grpc.aio.UnaryStreamCall[bytes, Any],
        sink: TokenSink,
        read: Callable[[Any], Reading],
        on_abort: Callable[[], None],
        on_over: Callable[[GrpcPass], None],
    ) -> None:
        """Starts reading.

        Args:
            engine: Label of the engine, for messages.
            call: The RPC.
            sink: Where output goes.
            read: Says what a message means.
            on_abort: Tells the engine out of band, when a pass is aborted before its end.
            on_over: Hears once that nothing is left to be done.
        """
        self._engine = engine
        self._call = call
        self._sink = sink
        self._read = read
        self._on_abort = on_abort
        self._over = False
        self._gate: asyncio.Event | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda _: on_over(self))

    def pause(self) -> None:
        """Stops reading."""
        if self._gate is None and not self._over:
            self._gate = asyncio.Event()

    def resume(self) -> None:
        """Reads on."""
        if self._gate is not None:
            self._gate.set()
            self._gate = None

    def abort(self) -> None:
        """Cancels the RPC and tells the engine, which may not look at the RPC before it has something to send."""
        if self._over:
            return
        self._over = True
        self._call.cancel()
        self._on_abort()
        self.resume()

    async def closed(self) -> None:
        """Waits until the RPC is over. Safe to cancel."""
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            while True:
                if self._gate is not None:
                    await self._gate.wait()
                    continue
                if self._over:
                    return
                message = await self._call.read()
                # A pause may have come while this was waited for; what was read belongs to those who asked for it.
                if message is grpc.aio.EOF:
                    break
                if self._over:
                    return
                self._take(message)
                if self._over:
                    await self._drain()
                    return
            await self._finish_early()
        except grpc.aio.AioRpcError as error:
            self._fail(error.code(), error.details() or "", error.trailing_metadata())
        except asyncio.CancelledError:
            # Reads of a call that was cancelled end so; a task that was cancelled itself has nobody to answer to.
            if not self._over:
                self._end(grpc_failure(self._engine, grpc.StatusCode.CANCELLED, "", None))
        except Exception:
            _log.exception("engine %s: a pass could not be read", self._engine)
            self._end(broken(self._engine, "sent what could not be read"))
            self._call.cancel()

    def _take(self, message: Any) -> None:
        match self._read(message):
            case TokenDelta() as delta:
                self._sink.output(delta)
            case TokenEnd() as end:
                self._end(end)
            case EngineFailure() as failure:
                self._end(failure)
            case None:
                pass

    def _end(self, outcome: TokenEnd | EngineFailure) -> None:
        if not self._over:
            self._over = True
            self._sink.ended(outcome)

    async def _drain(self) -> None:
        """Lets the RPC end by itself, so that the engine does not take it for aborted; what it still says is void."""
        late = asyncio.get_running_loop().call_later(_CLOSING, self._call.cancel)
        try:
            while await self._call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            pass
        finally:
            late.cancel()

    async def _finish_early(self) -> None:
        """Ends a pass whose stream is over without having said how it ended."""
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            self._end(broken(self._engine, "ended a stream without saying how the output ended"))
            return
        self._fail(code, await self._call.details() or "", await self._call.trailing_metadata())

    def _fail(self, code: grpc.StatusCode, details: str, trailing: object) -> None:
        if self._over:
            return
        _log.warning("engine %s: %s: %s", self._engine, code.name, words(details))
        self._end(grpc_failure(self._engine, code, details, _pause(trailing)))


def _pause(trailing: object) -> float | None:
    """Reads how long to wait before a retry from trailing metadata."""
    if not isinstance(trailing, grpc.aio.Metadata):
        return None
    plain = trailing.get("retry-after")
    if isinstance(plain, str):
        return pause_of(plain)
    pushback = trailing.get("grpc-retry-pushback-ms")
    milliseconds = pause_of(pushback) if isinstance(pushback, str) else None
    return None if milliseconds is None else milliseconds / 1000
