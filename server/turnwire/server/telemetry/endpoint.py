"""The port that /metrics and /healthz are read from: a small HTTP server on the event loop.

Above it: `app`. Below it: prometheus-client's exposition formats. prometheus-client has a server of its own, but with a
thread per request: its threads would read numbers that the event loop changes, and would take the interpreter away from
streaming for whole scheduling intervals. Here rendering pauses after every family, so that no token waits for more than
one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnwire.server.address import Address

_log: Final = logging.getLogger(__name__)

_MAX_HEADERS: Final = 16 * 1024
_MAX_CONNECTIONS: Final = 32
_TIMEOUT: Final = 10.0
_TEXT: Final = "text/plain; charset=utf-8"
_END: Final = b"# EOF\n"


class _Single(Collector):
    """One family that was collected before."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


class MetricsEndpoint:
    """Answers GET and HEAD of two paths, one request a connection."""

    def __init__(self, registry: CollectorRegistry, healthy: Callable[[], bool] = lambda: True) -> None:
        """Serves a registry; /healthz is 200 while `healthy` says so, else 503."""
        self._registry = registry
        self._healthy = healthy
        self._server: asyncio.Server | None = None
        self._socket: Path | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, address: Address) -> Address:
        """Listens; returns the address with the port that was bound.

        Cancelling it leaves nothing behind, or a server that `stop` ends.

        Raises:
            OSError: The address cannot be bound.
        """
        if address.path:
            self._server = await asyncio.start_unix_server(self._connected, address.path, limit=_MAX_HEADERS)
            self._socket = Path(address.path)
            return address
        self._server = await asyncio.start_server(self._connected, address.host, address.port, limit=_MAX_HEADERS)
        return address.bound_to(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stops listening and cuts off who is connected. Idempotent; cancelling it leaves connections to die alone."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await server.wait_closed()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._serve(reader, writer)
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            # From `stop`, which waits for this task: ending it is the answer.
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        first, *lines = request.decode("latin-1").split("\r\n")
        words = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            status, kind, body = HTTPStatus.BAD_REQUEST, _TEXT, b"not an HTTP/1.1 request\n"
        elif words[0] not in ("GET", "HEAD"):
            status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n"
        else:
            status, kind, body = await self._answer(words[1].partition("?")[0], headers.get("accept", ""))
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode("latin-1") + (b"" if words[0] == "HEAD" else body))
        await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _answer(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/healthz":
            if self._healthy():
                return HTTPStatus.OK, _TEXT, b"ok\n"
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"draining\n"
        if path != "/metrics":
            return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics and /healthz\n"
        try:
            kind, body = await self._render(accept)
        except Exception:
            _log.exception("the metrics could not be collected")
            return HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"the metrics could not be collected\n"
        return HTTPStatus.OK, kind, body

    async def _render(self, accept: str) -> tuple[str, bytes]:
        """Writes all metrics as of the moment of the call, in the format asked for."""
        encode, kind = choose_encoder(accept)
        pieces: list[bytes] = []
        end = b""
        for family in list(self._registry.collect()):
            piece = encode(_Single(family))
            # OpenMetrics marks the end of a whole answer, which a family alone is not.
            end = _END if piece.endswith(_END) else b""
            pieces.append(piece.removesuffix(_END))
            await asyncio.sleep(0)
        return kind, b"".join((*pieces, end))
