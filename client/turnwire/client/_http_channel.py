"""The one-shot methods of a server that is reached by a WebSocket address: each a POST beside the socket.

Below: aiohttp, which is needed for such addresses only. Above: the stubs, which take this for a gRPC channel, and
`_websocket`. The request is the serialized message, the answer too, or with another status than 200 a serialized
`turnwire.v1.Error`. Methods that stream are answered by frames, see `_http_stream`.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from google.protobuf.message import DecodeError
from grpc import aio

from turnwire.client._channel import ChannelOptions
from turnwire.client._http_stream import HttpStream, unreachable
from turnwire.client.exceptions import (
    AuthenticationError,
    ProtocolError,
    RequestRejectedError,
    RpcFailedError,
    TurnwireError,
)
from turnwire.v1.error_pb2 import Error
from turnwire.v1.official.frames import PROTO

if TYPE_CHECKING:
    import aiohttp

PATH: Final = "/v1/responses"
"""Where a server takes WebSockets unless the address says otherwise."""

_SILENCE: Final = 60.0
"""Seconds without a frame after which a server is gone; it says something every 15 s."""

_MAX_REFUSAL: Final = 64 * 1024
"""Bytes of an error at most."""

_SCHEMES: Final = {"ws": "http", "wss": "https"}

# HTTP statuses that say something by themselves, as gRPC would.
_STATUSES: Final = {
    400: "INTERNAL",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
    405: "UNIMPLEMENTED",
    426: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
}


@dataclass(frozen=True, slots=True)
class WebSocketAddress:
    """Where a server takes WebSockets."""

    url: str
    """The whole URL."""
    tls: bool
    """Whether it is reached by TLS."""
    methods: str
    """What the URLs of one-shot methods begin with, without a slash at the end."""


def parse_websocket_address(address: str) -> WebSocketAddress:
    """Reads `ws://HOST:PORT` or `wss://HOST:PORT` (TLS), with a path where it is not `/v1/responses`. One that ends in
    `/v1`, as base URLs of official SDKs do, goes on with `/responses`.

    Raises:
        ValueError: The address is neither.
        ImportError: The package that such addresses need is missing.
    """
    _aiohttp()
    url = urlsplit(address)
    try:
        bad = not url.hostname or url.port == 0
    except ValueError:
        bad = True
    if bad or url.username is not None or url.fragment or url.scheme not in _SCHEMES:
        msg = "a WebSocket address is ws://HOST:PORT or wss://HOST:PORT, with or without a path"
        raise ValueError(msg)
    path = url.path if url.path.rstrip("/") else PATH
    if path.rstrip("/").endswith("/v1"):
        path = f"{path.rstrip('/')}/responses"
    tls = url.scheme == "wss"
    query = f"?{url.query}" if url.query else ""
    methods = f"{_SCHEMES[url.scheme]}://{url.netloc}{path.removesuffix(PATH) if path.endswith(PATH) else ''}"
    return WebSocketAddress(f"{url.scheme}://{url.netloc}{path}{query}", tls, methods)


def proxy_of(url: str) -> str | None:
    """Returns the proxy that the environment names for a URL, as gRPC follows it too."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return None if proxy_bypass(host) else getproxies().get(_SCHEMES.get(parts.scheme, parts.scheme))


def tls_of(options: ChannelOptions) -> ssl.SSLContext:
    """Returns the TLS settings that the options stand for.

    Raises:
        ValueError: A certificate or a key in them cannot be read.
    """
    try:
        roots = None if options.root_certificates is None else options.root_certificates.decode("ascii")
        context = ssl.create_default_context(cadata=roots)
        if options.client_certificate is not None:
            # ssl reads these from files only.
            with tempfile.TemporaryDirectory() as folder:
                chain, key = Path(folder, "chain"), Path(folder, "key")
                chain.write_bytes(options.client_certificate)
                key.write_bytes(options.client_key or b"")
                context.load_cert_chain(chain, key if options.client_key is not None else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        msg = f"a certificate or a key of ChannelOptions cannot be read: {error}"
        raise ValueError(msg) from error
    return context


class HttpChannel:
    """Carries one-shot methods, on connections that are kept alive between them."""

    def __init__(self, address: str, options: ChannelOptions) -> None:
        """Takes where to connect; connects with the first call.

        Raises:
            ValueError: The address cannot be read, or a certificate.
            ImportError: The package that such addresses need is missing.
        """
        self.where: Final = parse_websocket_address(address)
        self.options: Final = options
        self.tls: Final = tls_of(options) if self.where.tls else True
        """What aiohttp calls `ssl`."""
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def as_channel(self) -> aio.Channel:
        """Returns it as what the stubs take."""
        return cast("aio.Channel", self)

    def session(self) -> aiohttp.ClientSession:
        """Returns the aiohttp session, which belongs to the running event loop.

        Raises:
            RpcFailedError: The channel was closed.
        """
        if self._closed:
            raise RpcFailedError("CANCELLED", "the channel was closed")
        if self._session is not None:
            return self._session
        library = _aiohttp()
        timeout = library.ClientTimeout(total=None, sock_connect=self.options.connect_timeout)
        # A server that sets cookies has no business here, and a body that was compressed would be bounded too late.
        session: aiohttp.ClientSession = library.ClientSession(
            timeout=timeout,
            cookie_jar=library.DummyCookieJar(),
            auto_decompress=False,
            raise_for_status=self._check,
        )
        self._session = session
        return session

    async def close(self, grace: float | None = None) -> None:
        """Ends all connections, calls under way included. Cancelling it leaves them to the garbage collector."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    # What the generated stubs ask a channel for.

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: Any,
    ) -> Callable[..., Awaitable[Any]]:
        """Returns a method."""

        async def call(request: Any, *, metadata: Sequence[tuple[str, str]] = ()) -> Any:
            try:
                answer = await self._post(path, request_serializer(request), dict(metadata))
            except (_aiohttp().ClientError, OSError, TimeoutError) as error:
                raise unreachable(error) from error
            try:
                return response_deserializer(answer)
            except DecodeError as error:
                msg = f"the answer to {path} is no message of turnwire.v1"
                raise ProtocolError(msg) from error

        return call

    def unary_stream(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: Any,
    ) -> Callable[..., HttpStream]:
        """Returns a method that streams."""

        def call(request: Any, *, metadata: Sequence[tuple[str, str]] = ()) -> HttpStream:
            body = request_serializer(request)

            def post() -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
                return self._posted(path, body, dict(metadata), silence=_SILENCE)

            return HttpStream(path, post, response_deserializer, self.options.max_message_bytes)

        return call

    def stream_stream(self, path: str, *_: Any, **__: Any) -> Callable[..., NoReturn]:
        """Returns a method that says that it cannot be had here."""

        def call(*_: Any, **__: Any) -> NoReturn:
            method = path.rpartition("/")[2]
            raise RpcFailedError("UNIMPLEMENTED", f"{method} streams both ways: over a socket, or a grpc:// address")

        return call

    async def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        async with self._posted(path, body, headers) as answer:
            return await _read(answer, self.options.max_message_bytes)

    def _posted(
        self, path: str, body: bytes, headers: Mapping[str, str], silence: float | None = None
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Returns the answer to a request, which is sent when it is entered; `silence` in seconds ends it."""
        url = f"{self.where.methods}{path}"
        timeout = _aiohttp().ClientTimeout(total=None, sock_connect=self.options.connect_timeout, sock_read=silence)
        return self.session().post(
            url,
            data=body,
            headers={**headers, "content-type": PROTO, "accept-encoding": "identity"},
            allow_redirects=False,
            proxy=proxy_of(url),
            ssl=self.tls,
            server_hostname=self.options.server_name,
            timeout=timeout,
        )

    async def _check(self, answer: aiohttp.ClientResponse) -> None:
        """Raises for every answer that is a refusal: of a method, or of an upgrade."""
        if answer.status not in (101, 200):
            raise refusal(answer.status, answer.content_type, await _read(answer, _MAX_REFUSAL))


async def _read(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    data = bytearray()
    async for chunk in answer.content.iter_any():
        data += chunk
        if len(data) > limit:
            raise RpcFailedError("RESOURCE_EXHAUSTED", f"an answer has more than {limit} bytes (HTTP {answer.status})")
    return bytes(data)


def refusal(status: int, content_type: str, body: bytes) -> TurnwireError:
    """Returns the exception for an answer that refuses: by the error in its body, else by its status."""
    error = _read_error(content_type, body)
    if status == 401:
        return AuthenticationError(error.message or "the server wants an API key")
    if error.code:
        return RequestRejectedError(error)
    return RpcFailedError(_STATUSES.get(status, "UNKNOWN"), f"the answer was HTTP {status}")


def _read_error(content_type: str, body: bytes) -> Error:
    """Reads an error, ours or in the form of the public API; an empty one where the body is neither."""
    error = Error()
    if content_type == PROTO:
        with contextlib.suppress(DecodeError):
            error = Error.FromString(body)
    elif content_type == "application/json":
        with contextlib.suppress(msgspec.MsgspecError):
            found = msgspec.json.decode(body, type=_PublicError).error
            error = Error(code=found.code or "", type=found.type, message=found.message, param=found.param)
    return error


class _ErrorFields(msgspec.Struct):
    message: str
    type: str = ""
    code: str | None = None
    param: str | None = None


class _PublicError(msgspec.Struct):
    error: _ErrorFields


def _aiohttp() -> Any:
    try:
        import aiohttp
    except ImportError as error:
        msg = "WebSocket addresses need aiohttp: pip install 'turnwire[websocket]'"
        raise ImportError(msg) from error
    return aiohttp
