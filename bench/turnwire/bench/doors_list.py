"""The doors that are measured: ours, each beside the bare library that it is built on.

Above it: `doors`. Below it: the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnwire.bench.doors_clients import (
    Client,
    GrpcSessionClient,
    GrpcStreamsClient,
    NativeSocketClient,
    SseClient,
    WebSocketClient,
)

SERVER: Final = "server"
BARE: Final = "bare"
BRIDGE: Final = "bridge"
_MANY: Final = 4_096


@dataclass(frozen=True, slots=True)
class Door:
    """One way to a server, and who stands there."""

    name: str
    client: Callable[[str], Client]
    """Takes the address."""
    process: str
    """Whose door it is: `SERVER`, `BARE` or `BRIDGE`."""
    address: str
    """Where its clients connect, by the process's name for it."""
    parsed: bool | None = None
    """Whether its client parses events; None measures both."""
    fewest: int = 1
    """Below so many lanes it is the same as another one."""


def _each(url: str) -> Client:
    return WebSocketClient(url, 1)


def _one(url: str) -> Client:
    return WebSocketClient(url, _MANY)


def _deflate(url: str) -> Client:
    return WebSocketClient(url, compressed=True)


DOORS: Final = (
    Door("gRPC, one stream", GrpcSessionClient, SERVER, "grpc", parsed=True),
    Door("bare grpc.aio, one stream", GrpcSessionClient, BARE, "grpc", parsed=True),
    Door("gRPC, a stream each", GrpcStreamsClient, SERVER, "grpc"),
    Door("bare grpc.aio, a stream each", GrpcStreamsClient, BARE, "grpc"),
    Door("HTTP and SSE", SseClient, SERVER, "http"),
    Door("bare aiohttp, SSE", SseClient, BARE, "http"),
    Door("WebSocket, 16 lanes a socket", WebSocketClient, SERVER, "http"),
    Door("bare aiohttp, 16 lanes a socket", WebSocketClient, BARE, "http"),
    Door("WebSocket, a socket each", _each, SERVER, "http", fewest=2),
    Door("bare aiohttp, a socket each", _each, BARE, "http", fewest=2),
    # The server is told to allow more than the 16 lanes of the public API.
    Door("WebSocket, one socket", _one, SERVER, "http", fewest=17),
    Door("bare aiohttp, one socket", _one, BARE, "http", fewest=17),
    Door("WebSocket, 16 lanes, deflate", _deflate, SERVER, "http", parsed=False),
    Door("WebSocket turnwire.v1, one socket", NativeSocketClient, SERVER, "http", parsed=True),
    Door("bridge: WebSocket, then gRPC", WebSocketClient, BRIDGE, "bridge", parsed=False),
)
"""In the order of tables."""
