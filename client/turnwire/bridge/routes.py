"""Which way to the server is taken: gRPC, or WebSocket for as long as gRPC does not get through.

Above it: `backend`. Below it: a remote backend for each way.

The way is chosen by whether a session can be opened on it, before anything of a request is sent, so that nothing is
ever sent twice. While WebSocket is taken, gRPC is tried in the background, when somebody asks for something and the
last try is long enough ago: after `FIRST_TRY` seconds, then after twice as long each time, up to `LAST_TRY`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from turnwire.client.remote import RemoteBackend, UnreachableError
from turnwire.client.remote.caller import RemoteCaller
from turnwire.server.runtime.clock import Clock
from turnwire.v1.errors import RequestError, make_error

FIRST_TRY: Final = 5.0
LAST_TRY: Final = 300.0
"""Seconds between two tries of gRPC, at first and at most."""

_log: Final = logging.getLogger(__name__)


class Routes:
    """The ways to one server."""

    def __init__(self, grpc: RemoteBackend, websocket: RemoteBackend | None, clock: Clock) -> None:
        """Takes the way that is wanted, the way beside it where there is one, and the clock of tries."""
        self._grpc: Final = grpc
        self._websocket: Final = websocket
        self._clock: Final = clock
        self._blocked = False
        self._pause = FIRST_TRY
        self._next_try = 0.0
        self._trying: asyncio.Task[None] | None = None

    @property
    def current(self) -> RemoteBackend:
        """The way that is taken at the moment."""
        return self._websocket if self._blocked and self._websocket is not None else self._grpc

    async def open(self, authorization: str | None) -> RemoteCaller:
        """Returns the holder of a key on a way that gets through: a session is open there. Cancelling it is safe.

        Raises:
            UnreachableError: No way does.
            RequestError: The server refused the key, or a session.
        """
        if self._websocket is None:
            return await _opened(self._grpc, authorization)
        if not self._blocked:
            return await self._open_grpc(authorization, self._websocket)
        try:
            caller = await _opened(self._websocket, authorization)
        except UnreachableError:
            # Perhaps the server was away as a whole, and gRPC is what came back.
            return await self._open_grpc(authorization, self._websocket)
        self._try_again(authorization)
        return caller

    async def aclose(self) -> None:
        """Ends all sessions. Idempotent. Cancelling it leaves connections to the garbage collector."""
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.gather(self._trying, return_exceptions=True)
        await self._grpc.aclose()
        if self._websocket is not None:
            await self._websocket.aclose()

    async def _open_grpc(self, authorization: str | None, websocket: RemoteBackend) -> RemoteCaller:
        try:
            caller = await _opened(self._grpc, authorization)
        except UnreachableError as failure:
            try:
                caller = await _opened(websocket, authorization)
            except UnreachableError as other:
                raise _nowhere(failure, other) from failure
            self._fall_back(failure, websocket)
            return caller
        self._come_back()
        return caller

    def _fall_back(self, failure: UnreachableError, websocket: RemoteBackend) -> None:
        if self._blocked:
            return
        self._blocked = True
        self._pause = FIRST_TRY
        self._next_try = self._clock.now() + self._pause
        _log.warning(
            "gRPC does not get through, going over WebSocket to %s; the reason: %s",
            websocket.address,
            failure.error.message,
        )

    def _come_back(self) -> None:
        if self._blocked:
            self._blocked = False
            _log.warning("gRPC gets through to %s again", self._grpc.address)

    def _try_again(self, authorization: str | None) -> None:
        if self._trying is None and self._clock.now() >= self._next_try:
            self._trying = asyncio.create_task(self._try(authorization))

    async def _try(self, authorization: str | None) -> None:
        try:
            await _opened(self._grpc, authorization)
        except UnreachableError as failure:
            self._pause = min(2 * self._pause, LAST_TRY)
            _log.info(
                "gRPC still does not get through; the next try is in %g s or later: %s",
                self._pause,
                failure.error.message,
            )
        except RequestError:
            # The server itself has spoken, though not to say yes.
            self._come_back()
        else:
            self._come_back()
        finally:
            self._next_try = self._clock.now() + self._pause
            self._trying = None


async def _opened(backend: RemoteBackend, authorization: str | None) -> RemoteCaller:
    caller = backend.caller(authorization)
    await caller.open()
    return caller


def _nowhere(failure: UnreachableError, other: UnreachableError) -> UnreachableError:
    message = f"{failure.error.message}. Nor over WebSocket: {other.error.message}."
    return UnreachableError(make_error("session_lost", message, retry_after=1.0))
