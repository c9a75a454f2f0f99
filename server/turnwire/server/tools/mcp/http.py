"""Streamable HTTP to an MCP server, with answers bounded before the SDK reads them.

Above: connections. Below: the SDK's transport and its HTTP client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from turnwire.server.tools.config import McpLimits
from turnwire.server.tools.declared import ServerSpec
from turnwire.server.tools.mcp.cutting import EventCutter, cut_message

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_MAX_ERROR_BYTES: Final = 64 * 1024


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, cut where it is too long."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, *, events: bool, whole: bool) -> None:
        self._inner = inner
        self._limit = limit
        self._events = events
        self._whole = whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._events:
            cutter = EventCutter(self._limit)
            async for chunk in self._inner:
                for event in cutter.feed(chunk):
                    yield event
            yield cutter.rest()
            return
        body = bytearray()
        async for chunk in self._inner:
            body += chunk
            if len(body) > self._limit:
                prefix = bytes(body[: self._limit])
                yield (cut_message(prefix) or b"null") if self._whole else prefix
                return
        yield bytes(body)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # What a few bytes unpack to has no bound, so nothing packed is asked for.
            await response.aclose()
            msg = "the server packed its answer without being asked to"
            raise httpx2.DecodingError(msg, request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        good = response.status_code < 400
        events = good and response.headers.get("content-type", "").lower().startswith("text/event-stream")
        limit = self._limit if good else _MAX_ERROR_BYTES
        response.stream = _BoundedStream(response.stream, limit, events=events, whole=good)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def http_transport(spec: ServerSpec, limits: McpLimits) -> AsyncGenerator[TransportStreams]:
    """Connects to a server by URL; sends nothing before the handshake."""
    # A call's own time-out ends it; this one frees what it leaves behind.
    timeout = httpx2.Timeout(limits.connect_timeout, read=limits.call_timeout + limits.close_timeout)
    async with (
        httpx2.AsyncClient(
            transport=_BoundedTransport(httpx2.AsyncHTTPTransport(), limits.max_message_bytes),
            headers={**spec.headers, "accept-encoding": "identity"},
            timeout=timeout,
        ) as client,
        streamable_http_client(
            spec.url, http_client=client, max_sse_event_size=2 * limits.max_message_bytes
        ) as streams,
    ):
        yield streams
