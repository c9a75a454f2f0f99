"""Channels: addresses, and the settings under which gRPC keeps a long-lived, sometimes silent stream alive.

Below: grpc. Above: `_transport` and `_rpc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc
from grpc import aio

_DEFAULT_PORT: Final = 50051
_DEFAULT_TLS_PORT: Final = 443
_FORMS: Final = "HOST:PORT, grpcs://HOST:PORT, unix:PATH, ws://HOST:PORT or wss://HOST:PORT"


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """How to connect. The defaults suit a server with its own defaults, on any network."""

    connect_timeout: float = 10.0
    """Seconds until the server must have opened the session."""
    close_timeout: float = 5.0
    """Seconds until the server must have ended a session that this client closes."""
    keepalive_time: float = 30.0
    """Seconds of silence after which HTTP/2 or WebSocket asks whether the peer still lives. A server kills connections
    that ask more often than it allows, so do not go below what it documents."""
    keepalive_timeout: float = 10.0
    """Seconds until that must have been answered. On WebSocket it is half of `keepalive_time`."""
    heartbeat: float | None = 20.0
    """Seconds without anything received after which a Ping travels as data, because proxies cut streams without data
    whatever HTTP/2 does. None switches it off."""
    flush_interval: float = 0.2
    """Seconds without anything received after which credit is returned that is too little for a message of its own."""
    max_message_bytes: int = 32 * 1024 * 1024
    """Largest message either way."""
    max_event_bytes: int | None = None
    """Largest event the server may send; larger items are fetched when they are asked for. None means 3 MiB."""
    session_credit_bytes: int | None = None
    """Bytes that may be on their way unacknowledged. None means 256 KiB, 0 switches it off."""
    response_credit_bytes: int | None = None
    """Bytes of one response that may wait for the application. None means 64 KiB, 0 switches it off."""
    max_waiting_requests: int = 64
    """Requests that may wait to be written; further ones wait in their own call."""
    root_certificates: bytes | None = None
    """PEM of the authorities to trust, for `grpcs:` and `wss:`. None means those of the system."""
    client_key: bytes | None = None
    """PEM of the client's key, for mutual TLS."""
    client_certificate: bytes | None = None
    """PEM of the client's certificate chain, for mutual TLS."""
    server_name: str | None = None
    """Name to expect in the server's certificate, where it is not that of the address."""
    extra: tuple[tuple[str, str | int], ...] = ()
    """Further gRPC channel arguments; they win over the ones above."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    target: str
    """In gRPC's form."""
    tls: bool
    """Whether to speak TLS."""


def parse_address(address: str) -> Address:
    """Reads `HOST:PORT`, `grpc://HOST:PORT`, `grpcs://HOST:PORT` (TLS) or `unix:PATH`.

    Raises:
        ValueError: The address is none of these.
    """
    if not address:
        msg = f"the address is empty; give {_FORMS}"
        raise ValueError(msg)
    if address.startswith("unix:"):
        return Address(address, tls=False)
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "grpc", address
    if scheme not in ("grpc", "grpcs"):
        msg = f"cannot connect to a {scheme}: address; give {_FORMS}"
        raise ValueError(msg)
    host = rest.rstrip("/")
    if not host or "/" in host:
        msg = f"{address!r} is not HOST:PORT"
        raise ValueError(msg)
    tls = scheme == "grpcs"
    bare = host.rpartition("]")[2]
    if ":" not in bare:
        host = f"{host}:{_DEFAULT_TLS_PORT if tls else _DEFAULT_PORT}"
    return Address(host, tls)


def open_channel(address: str, options: ChannelOptions) -> aio.Channel:
    """Opens a channel with a connection of its own.

    Raises:
        ValueError: The address cannot be read.
    """
    where = parse_address(address)
    arguments = channel_arguments(options)
    if not where.tls:
        return aio.insecure_channel(where.target, options=arguments)
    credentials = grpc.ssl_channel_credentials(
        options.root_certificates, options.client_key, options.client_certificate
    )
    return aio.secure_channel(where.target, credentials, options=arguments)


def channel_arguments(options: ChannelOptions) -> tuple[tuple[str, str | int], ...]:
    """Returns the arguments of a channel."""
    arguments: dict[str, str | int] = {
        "grpc.keepalive_time_ms": int(options.keepalive_time * 1000),
        "grpc.keepalive_timeout_ms": int(options.keepalive_timeout * 1000),
        # The one that gRPC 1.85 goes by; without it a dead server is found after a minute.
        "grpc.http2.ping_timeout_ms": int(options.keepalive_timeout * 1000),
        # A model that thinks is an idle stream, and a session between turns has no call in gRPC's sense of activity.
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.max_receive_message_length": options.max_message_bytes,
        "grpc.max_send_message_length": options.max_message_bytes,
        # Channels with the same target would share one connection, and with it one worker of the server.
        "grpc.use_local_subchannel_pool": 1,
        # Retries would buffer every message of the stream, and may repeat what the application knows nothing of.
        "grpc.enable_retries": 0,
    }
    if options.server_name is not None:
        arguments["grpc.ssl_target_name_override"] = options.server_name
    arguments.update(options.extra)
    return tuple(arguments.items())
