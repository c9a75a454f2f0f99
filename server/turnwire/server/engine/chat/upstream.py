"""The HTTP side of one upstream: its connections, and what their trouble means.

Above it: `passes` and `engine`. Below it: `request` and aiohttp. Connections are kept for the next pass; bodies are
written piece by piece, so that a long history does not hold up the event loop; headers, error bodies and lists of
models are bounded.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from turnwire.server.engine.chat import errors
from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.request import ChatBody, ChatRequest
from turnwire.server.session.chunks import EngineFailure

_log: Final = logging.getLogger(__name__)

_MAX_MODELS_BYTES: Final = 4 * 1024 * 1024
_MODELS_TIMEOUT: Final = 10.0
_ERROR_TIMEOUT: Final = 5.0
_AGENT: Final = "turnwire"


class Reuse(Protocol):
    """Wants to know whether a request goes over a connection that served others before."""

    reused: bool


class Upstream:
    """One upstream's connections."""

    def __init__(self, config: ChatEngineConfig) -> None:
        """Connects to nothing yet."""
        self._config = config
        self._session: aiohttp.ClientSession | None = None
        self._chat = URL(config.url("/chat/completions"))
        self._served: WeakSet[ResponseHandler] = WeakSet()
        """Connections that a request went over. aiohttp's traces would tell too, at a price for every step of each."""
        self.secrets: Final = tuple(text for text in (config.api_key, *config.headers.values()) if len(text) >= 8)
        """What must not be repeated to clients."""

    @asynccontextmanager
    async def complete(
        self, body: Sequence[bytes], headers: Mapping[str, str], reuse: Reuse
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Asks for a completion; within the context its answer can be read. Cancelling it drops the connection.

        Args:
            body: In pieces.
            headers: Of this request, beside those of all.
            reuse: Hears whether the connection served others before.

        Raises:
            aiohttp.ClientError, OSError, TimeoutError: See `failure`.
        """

        def goes_over(connection: ResponseHandler) -> None:
            reuse.reused = connection in self._served
            self._served.add(connection)

        async with self._open().post(
            self._chat, data=ChatBody(body, goes_over), headers=headers, allow_redirects=False
        ) as response:
            yield response

    async def refusal(self, response: aiohttp.ClientResponse) -> EngineFailure:
        """Reads an answer that is no completion, as far as it matters. Safe to cancel."""
        body = b""
        try:
            async with asyncio.timeout(_ERROR_TIMEOUT):
                body = await _read(response, errors.MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError):
            # The status says enough.
            pass
        failure = errors.of_response(response.status, response.headers, body, secrets=self.secrets, now=time.time())
        if response.status >= 500 or response.status in (401, 403, 404):
            told = errors.words(body.decode("utf-8", "replace"), self.secrets)
            _log.warning("the upstream %s answered %d: %s", self._config.base_url, response.status, told)
        return failure

    async def models(self) -> list[ChatModel]:
        """Asks which models there are. Safe to cancel.

        Raises:
            UpstreamError: There is no list.
        """
        try:
            async with (
                asyncio.timeout(_MODELS_TIMEOUT),
                self._open().get(self._config.url("/models"), allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise UpstreamError(await self.refusal(response))
                body = await _read(response, _MAX_MODELS_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UpstreamError(failure(error, begun=False)) from error
        return _models(body)

    async def aclose(self) -> None:
        """Closes all connections. Cancelling it may leave some to the garbage collector."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        # Not in the constructor: a session belongs to the loop that runs when it is made.
        if self._session is None:
            config = self._config
            headers = {
                "User-Agent": _AGENT,
                "Accept": "text/event-stream, application/json",
                # Compression would hold tokens back.
                "Accept-Encoding": "identity",
                **config.headers,
            }
            if config.api_key:
                headers["Authorization"] = f"Bearer {config.api_key}"
            self._session = aiohttp.ClientSession(
                headers=headers,
                connector=aiohttp.TCPConnector(
                    limit=config.max_connections,
                    keepalive_timeout=config.keepalive,
                    ssl=ssl.create_default_context(cafile=str(config.ca_file)) if config.ca_file else True,
                ),
                timeout=aiohttp.ClientTimeout(total=None, connect=config.connect_timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=config.trust_env,
                request_class=ChatRequest,
            )
        return self._session


class UpstreamError(Exception):
    """Carries what went wrong as a failure."""

    def __init__(self, what: EngineFailure) -> None:
        """Wraps the failure."""
        super().__init__(what.message)
        self.failure = what


def failure(error: BaseException, *, begun: bool) -> EngineFailure:
    """Translates an exception of an exchange.

    Args:
        error: What was raised.
        begun: Whether a part of the answer was passed on.
    """
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return errors.broken("has a certificate that is not trusted")
        case aiohttp.ConnectionTimeoutError():
            return errors.unreachable("gave no connection in time")
        case aiohttp.ClientConnectorError():
            return errors.unreachable()
        case aiohttp.InvalidURL():
            return errors.broken("has an address that cannot be used")
        case aiohttp.ClientResponseError():
            return errors.broken("does not speak HTTP as it should")
        case TimeoutError():
            return errors.unreachable("did not answer in time")
        case _:
            return errors.lost(begun=begun)


def may_repeat(error: BaseException) -> bool:
    """Whether a request may have met a connection that the upstream had closed, unless its answer has begun."""
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionError)


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Reads a body or its beginning."""
    body = bytearray()
    while len(body) < most and (data := await response.content.readany()):
        body += data
    return bytes(body[:most])


class _Listed(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    context_length: int | None = None


class _Models(msgspec.Struct):
    data: list[_Listed]


def _models(body: bytes) -> list[ChatModel]:
    try:
        listed = msgspec.json.decode(body, type=_Models).data
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UpstreamError(errors.broken("sent no list of models")) from error
    return [
        ChatModel(each.id, context_length=each.max_model_len or each.context_length or None)
        for each in listed
        if each.id
    ]
