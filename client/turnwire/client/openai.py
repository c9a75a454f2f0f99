"""Official OpenAI SDKs over gRPC: an HTTP client for them that speaks to a turnwire server.

    from openai import OpenAI
    from turnwire.client.openai import http_client

    client = OpenAI(http_client=http_client("grpc://localhost:50051"), api_key=...)

Above it: the SDK, whose code and base URL stay as they are; the host of the base URL is never contacted. Below it: the
official HTTP API over the port, in this process, and the port over one session to the server, which all requests of one
key share. So chains find what they continue there, stored or not, and a request costs no connection.

`openai` 3.57 and later, which bring `httpx2`, are needed: `pip install 'turnwire[openai]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

try:
    import httpx2
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
except ImportError as error:
    msg = "turnwire.client.openai needs the SDK openai >= 3.57: pip install 'turnwire[openai]'"
    raise ImportError(msg) from error

from turnwire.client import _loop_thread
from turnwire.client._loop_thread import LoopThread, Pipe
from turnwire.client.remote import RemoteBackend, RemoteOptions, UnreachableError
from turnwire.v1.errors import RequestError
from turnwire.v1.official.http import HttpApi, HttpRequest, HttpResponse

_PREFIX: Final = "/v1"

_Timeouts = Mapping[str, float | None]


def http_client(address: str, *, options: RemoteOptions | None = None, **settings: Any) -> httpx2.Client:
    """Returns an HTTP client for `OpenAI(http_client=...)` whose requests go to a turnwire server.

    Closing it (or the SDK's client) ends the session with the server. It works in an event loop in a thread of its own,
    which all such clients share; like gRPC, it does not survive a fork.

    Args:
        address: Where the server is, as `turnwire.client.connect` takes it: `grpc://HOST:PORT`, `grpcs://HOST:PORT` for
            TLS, `unix:PATH`, `ws://` or `wss://`.
        options: How to use the server.
        **settings: Further settings of `openai.DefaultHttpxClient`, such as `event_hooks`. Time-outs and retries are
            set at the SDK, as ever.

    Raises:
        ValueError: The address cannot be read.
    """
    return DefaultHttpxClient(transport=Transport(address, options), **settings)


def async_http_client(address: str, *, options: RemoteOptions | None = None, **settings: Any) -> httpx2.AsyncClient:
    """Returns an HTTP client for `AsyncOpenAI(http_client=...)`; see `http_client`.

    It belongs to one event loop at a time: once that is closed, another one may use it.
    """
    return DefaultAsyncHttpxClient(transport=AsyncTransport(address, options), **settings)


class AsyncTransport(httpx2.AsyncBaseTransport):
    """Answers requests from a turnwire server."""

    def __init__(self, address: str, options: RemoteOptions | None = None) -> None:
        """Takes where the server is; connects with the first request.

        Raises:
            ValueError: The address cannot be read.
        """
        self._address: Final = address
        self._options: Final = options
        self._exchange = _Exchange(address, options)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answers a request. Cancelling it cancels the response behind it.

        Raises:
            httpx2.TransportError: The server cannot be reached, or takes longer than the request's time-outs.
            RuntimeError: The client is in use in another event loop.
        """
        self._move_to(asyncio.get_running_loop())
        timeouts = _timeouts(request)
        answer = await self._exchange.answer(_asked(request, await request.aread()), timeouts)
        if isinstance(answer.body, bytes):
            return httpx2.Response(answer.status, headers=answer.headers, content=answer.body)
        stream = _AsyncStream(answer.body, timeouts.get("read"))
        return httpx2.Response(answer.status, headers=answer.headers, stream=stream)

    async def aclose(self) -> None:
        """Ends the session with the server. Cancelling it leaves connections to the garbage collector."""
        await self._exchange.backend.aclose()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop:
            return
        if self._loop is not None:
            if not self._loop.is_closed():
                msg = "this client is in use in another event loop; make one for each"
                raise RuntimeError(msg)
            # What belonged to the loop ended with it.
            self._exchange = _Exchange(self._address, self._options)
        self._loop = loop


class Transport(httpx2.BaseTransport):
    """Answers requests from a turnwire server, for clients that block."""

    def __init__(self, address: str, options: RemoteOptions | None = None) -> None:
        """Takes where the server is; connects with the first request.

        Raises:
            ValueError: The address cannot be read.
        """
        self._exchange: Final = _Exchange(address, options)
        self._thread: LoopThread | None = _loop_thread.acquire()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answers a request. An interrupt cancels the response behind it.

        Raises:
            httpx2.TransportError: The server cannot be reached, or takes longer than the request's time-outs.
            RuntimeError: The transport was closed.
        """
        if self._thread is None:
            msg = "the transport was closed"
            raise RuntimeError(msg)
        answer, pipe = self._thread.call(self._answer(_asked(request, request.read()), _timeouts(request)))
        if pipe is None:
            return httpx2.Response(answer.status, headers=answer.headers, content=answer.whole)
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Stream(pipe))

    def close(self) -> None:
        """Ends the session with the server. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._exchange.backend.aclose())
            finally:
                _loop_thread.release()

    async def _answer(self, asked: HttpRequest, timeouts: _Timeouts) -> tuple[HttpResponse, Pipe | None]:
        answer = await self._exchange.answer(asked, timeouts)
        if isinstance(answer.body, bytes):
            return answer, None
        return answer, Pipe(answer.body, timeouts.get("read"), _read_timeout, _cut_off)


class _Exchange:
    """Requests and answers as values: what both transports have in common."""

    def __init__(self, address: str, options: RemoteOptions | None) -> None:
        self.backend: Final = RemoteBackend(address, options)
        self._api: Final = HttpApi(self.backend)

    async def answer(self, asked: HttpRequest, timeouts: _Timeouts) -> HttpResponse:
        """Answers a request, within its time-outs. The session takes the place of the connection."""
        try:
            async with asyncio.timeout(timeouts.get("connect")):
                await self.backend.caller(asked.headers.get("authorization")).open()
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"{self.backend.address} opened no session in time") from error
        except UnreachableError as error:
            raise httpx2.ConnectError(error.error.message) from error
        except RequestError as refusal:
            return self._api.refuse(asked, refusal.error)
        try:
            async with asyncio.timeout(timeouts.get("read")):
                return await self._api.handle(asked)
        except TimeoutError as error:
            raise _read_timeout() from error


class _AsyncStream(httpx2.AsyncByteStream):
    def __init__(self, body: Any, read_timeout: float | None) -> None:
        self._body = body
        self._read_timeout = read_timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._read_timeout):
                    piece: bytes = await anext(self._body)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise _read_timeout() from error
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


class _Stream(httpx2.SyncByteStream):
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def __iter__(self) -> Iterator[bytes]:
        while data := self._pipe.read():
            yield data

    def close(self) -> None:
        self._pipe.close()


def _asked(request: httpx2.Request, body: bytes) -> HttpRequest:
    query: dict[str, list[str]] = {}
    for name, value in request.url.params.multi_items():
        query.setdefault(name, []).append(value)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return HttpRequest(request.method, _path(request.url.path), query, headers, body)


def _path(path: str) -> str:
    """Returns a path as the official API has it, whatever base URL the SDK was given."""
    start = path.find(f"{_PREFIX}/")
    return path[start:] if start >= 0 else f"{_PREFIX}{path}"


def _timeouts(request: httpx2.Request) -> _Timeouts:
    timeouts: _Timeouts = request.extensions.get("timeout", {})
    return timeouts


def _read_timeout() -> httpx2.ReadTimeout:
    return httpx2.ReadTimeout("the server sent nothing for as long as the request's read time-out allows")


def _cut_off() -> httpx2.ReadError:
    return httpx2.ReadError("the client was closed while this stream was read")
