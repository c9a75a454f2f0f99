"""aiohttp's server without its application: one handler for all requests, and our own answers where HTTP itself fails.

Above it: `server`. Below it: aiohttp. An application would route every request through tables that have one entry, and
answer what is no HTTP by a page of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Broken = Callable[[web.BaseRequest, int, str], web.Response]
"""Answers a request that is no HTTP, or whose handler failed; takes the status and what is wrong."""

_log: Final = logging.getLogger(__name__)


class Host(web.Server):
    """Makes a protocol for every connection. Belongs to the running event loop."""

    def __init__(self, handler: Handler, broken: Broken, keep_alive: float) -> None:
        """Takes who answers requests, who answers what is none, and the seconds for which a connection may be without a
        request."""
        super().__init__(
            handler,
            keepalive_timeout=keep_alive,
            # The loss of a connection ends what it asked for.
            handler_cancellation=True,
            access_log=None,
            # Decompressing is done within bounds, see `bodies`.
            auto_decompress=False,
        )
        self._broken: Final = broken

    def __call__(self) -> RequestHandler:
        """Makes the protocol of a new connection."""
        return _Protocol(self, self._broken, loop=self._loop, **self._kwargs)


class _Protocol(RequestHandler):
    """One connection."""

    __slots__ = ("_broken",)

    def __init__(self, host: Host, broken: Broken, **settings: Any) -> None:
        super().__init__(host, **settings)
        self._broken = broken

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answers a failure.

        Raises:
            ConnectionError: The client is gone, or a part of the answer was sent already.
        """
        if isinstance(exc, ConnectionError):
            _log.debug("a client went away: %s", exc)
            raise exc
        if status >= 500:
            _log.error("a request failed", exc_info=exc)
        else:
            # Whoever scans ports causes these, and nobody can do anything about it.
            _log.debug("a request is no HTTP: %s", message)
        if request.writer.output_size > 0:
            raise ConnectionError
        answer = self._broken(request, status, message or "")
        answer.force_close()
        return answer
