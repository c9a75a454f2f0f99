"""The HTTP door as something that starts and stops.

Above it: `app`, and tests. Below it: aiohttp, the official API over the port, and the WebSocket door beside it.

A client that goes away cancels what its request has begun: aiohttp cancels the handler when the connection is lost.
While the door drains it goes on listening, so that clients hear `server_shutting_down` and not just a refused
connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from turnwire.server.address import Address
from turnwire.server.doors.http.bodies import read_body
from turnwire.server.doors.http.compression import choose
from turnwire.server.doors.http.event_stream import EventStream
from turnwire.server.doors.http.host import Host
from turnwire.server.doors.http.options import HttpOptions
from turnwire.server.doors.http.origin import Origins
from turnwire.server.runtime.clock import Clock
from turnwire.server.runtime.threads import parsed
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error
from turnwire.v1.official.backend import Backend
from turnwire.v1.official.errors import internal_error
from turnwire.v1.official.http import HttpApi, HttpRequest, HttpResponse

Upgrade = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Serves a WebSocket to its end."""
Admit = Callable[[web.BaseRequest], Awaitable[None]]
"""Raises RequestError for a request that is not let in; nothing but its head was read."""

_PATH: Final = "/v1/responses"
_SERVER: Final = {"server": "turnwire"}
_SHUTDOWN_SLACK: Final = 1.0
"""Seconds beyond the grace, in which responses that ended at its end tell their clients so."""
_LAST_WORDS: Final = 0.25
"""Seconds for handlers that were told to stop."""
_PIECE: Final = 64 * 1024
"""Bytes of a whole answer that are written at once: as many as wait for a client before its writer does."""


class HttpServer:
    """Serves HTTP/1.1 on any number of addresses."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        options: HttpOptions | None = None,
        websocket: Upgrade | None = None,
        admit: Admit | None = None,
        origins: Origins | None = None,
    ) -> None:
        """Takes what stands behind the door.

        Args:
            backend: Serves responses.
            clock: Of time-outs.
            options: The settings.
            websocket: Serves WebSockets; None for nobody, which upgrades are answered by 426.
            admit: Decides beforehand which requests are let in; None lets in all.
            origins: Decides, before that, which web pages are; None lets in all, as where keys are asked for.
        """
        self._options = options or HttpOptions()
        self._backend = backend
        self._api = HttpApi(backend, self._options.max_body_bytes, parse=parsed)
        self._clock = clock
        self._websocket = websocket
        self._admit = admit
        self._origins = origins or Origins(keys=True)
        self._at_work = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._sockets: list[Path] = []
        self._runner: web.ServerRunner | None = None

    async def listen(self, address: Address, tls: ssl.SSLContext | None = None) -> Address:
        """Listens at an address, and returns it with the port that was bound. Requests are served at once.

        Cancelling it leaves a server that `stop` ends.

        Raises:
            OSError: The address cannot be bound.
        """
        if self._runner is None:
            host = Host(self._handle, self._broken, self._options.keep_alive)
            self._runner = web.ServerRunner(host, shutdown_timeout=_LAST_WORDS)
            await self._runner.setup()
        if address.path:
            await web.UnixSite(self._runner, address.path).start()
            self._sockets.append(Path(address.path))
            return address
        site = web.TCPSite(self._runner, address.host, address.port, ssl_context=tls)
        await site.start()
        return address.bound_to(site.port)

    async def stop(self, grace: float) -> None:
        """Drains: new requests are refused, those at work get `grace` seconds, then connections end.

        Cancelling it leaves the server running; call it again with a shorter grace.
        """
        self._draining = True
        if grace:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace + _SHUTDOWN_SLACK):
                    await self._idle.wait()
        if self._runner is not None:
            await self._runner.cleanup()
        for path in self._sockets:
            path.unlink(missing_ok=True)
        self._sockets.clear()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._at_work += 1
        self._idle.clear()
        try:
            if self._draining:
                return self._refused(request, _shutting_down())
            self._origins.check(request.headers)
            answer = self._origins.preflight(request.method, request.headers)
            if answer is not None:
                return web.Response(status=204, headers={**_SERVER, **answer})
            if self._admit is not None:
                await self._admit(request)
            if is_upgrade(request):
                return await self._upgrade(request)
            return await self._serve(request)
        except RequestError as refusal:
            return self._refused(request, refusal.error)
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()

    async def _upgrade(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._websocket is None:
            message = "WebSockets are switched off here: use HTTP on the same path."
            answer = self._refused(request, make_error("upgrade_required", message))
            answer.headers["upgrade"] = "HTTP/1.1"
            return answer
        return await self._websocket(request)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = b""
        if request.can_read_body:
            # Whoever has no key is told so before anything of a body is kept.
            self._backend.caller(request.headers.get("authorization"))
            body = await read_body(request, self._options)
        return await self._written(request, await self._api.handle(_taken(request, body)))

    def _refused(self, request: web.BaseRequest, error: Error) -> web.Response:
        """Refuses a request of which nothing was read; the connection ends, since its body may still come."""
        answer = self._api.refuse(_taken(request, b""), error)
        response = web.Response(status=answer.status, headers=self._headers(request, answer), body=answer.whole)
        response.force_close()
        return response

    def _broken(self, request: web.BaseRequest, status: int, message: str) -> web.Response:
        """Answers what is no HTTP, of which nothing but `message` is known, and failures of our own."""
        if status >= 500:
            return self._refused(request, internal_error())
        # What follows quotes what was sent, which may be a key.
        message = f"The request is no HTTP/1.1: {message.partition(':')[0].strip().rstrip('.')}."
        return self._refused(request, make_error("invalid_request_error", message))

    async def _written(self, request: web.BaseRequest, answer: HttpResponse) -> web.StreamResponse:
        headers = self._headers(request, answer)
        if isinstance(answer.body, bytes):
            if len(answer.body) > _PIECE:
                return await self._written_in_pieces(request, answer.status, headers, answer.body)
            return web.Response(status=answer.status, headers=headers, body=answer.body)
        compressor = None
        if self._options.compression:
            encoding = choose(request.headers.get("accept-encoding", ""))
            headers["vary"] = f"{headers['vary']}, Accept-Encoding" if "vary" in headers else "Accept-Encoding"
            if encoding is not None:
                headers["content-encoding"] = encoding.name
                compressor = encoding.compressor()
        response = web.StreamResponse(status=answer.status, headers=headers)
        stream = EventStream(request, response, answer.filler, compressor, self._clock, self._options)
        await stream.serve(answer.body)
        return response

    async def _written_in_pieces(
        self, request: web.BaseRequest, status: int, headers: dict[str, str], body: bytes
    ) -> web.StreamResponse:
        """Writes a whole answer that does not fit into what a connection holds anyway: a client that takes nothing of
        it must not keep it in memory for ever."""
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = len(body)
        await EventStream(request, response, b"", None, self._clock, self._options).serve(_pieces(body))
        return response

    def _headers(self, request: web.BaseRequest, answer: HttpResponse) -> dict[str, str]:
        return {**_SERVER, **answer.headers, **self._origins.answered(request.headers)}


def is_upgrade(request: web.BaseRequest) -> bool:
    """Tells whether a request wants to become a WebSocket where there are such."""
    upgrades = request.method == "GET" and "websocket" in request.headers.get("upgrade", "").lower()
    return upgrades and request.path.rstrip("/") == _PATH


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), _PIECE):
        yield body[start : start + _PIECE]


def _taken(request: web.BaseRequest, body: bytes) -> HttpRequest:
    query = request.query
    return HttpRequest(
        method=request.method,
        path=request.path,
        query={name: query.getall(name) for name in query} if query else {},
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
    )


def _shutting_down() -> Error:
    message = "The server is shutting down. Connect again, to another instance."
    return make_error("server_shutting_down", message, retry_after=1.0)
