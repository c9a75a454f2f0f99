"""What carries messages to an address, by its scheme.

Below: gRPC, and WebSocket for `ws://` and `wss://`, which is imported for such addresses only. Above: `client`,
`remote` and the commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpc import aio

from turnwire.client._channel import ChannelOptions, open_channel, parse_address
from turnwire.client._transport import GrpcTransport, ServerTransport


def is_websocket(address: str) -> bool:
    """Tells whether an address is one of WebSocket."""
    return address.startswith(("ws://", "wss://"))


def check_address(address: str) -> None:
    """Checks that an address can be read, and that what it needs is installed.

    Raises:
        ValueError: It cannot be read.
        ImportError: It is a WebSocket address, and the package for these is missing.
    """
    uses_tls(address)


def uses_tls(address: str) -> bool:
    """Tells whether an address is reached by TLS.

    Raises:
        ValueError: It cannot be read.
        ImportError: As `check_address` does.
    """
    if not is_websocket(address):
        return parse_address(address).tls
    from turnwire.client._http_channel import parse_websocket_address

    return parse_websocket_address(address).tls


def open_transport(address: str, metadata: Sequence[tuple[str, str]], options: ChannelOptions) -> ServerTransport:
    """Opens a stream with a connection of its own; nothing is sent yet.

    Raises:
        ValueError: The address cannot be read.
        ImportError: As `check_address` does.
    """
    if not is_websocket(address):
        return GrpcTransport(address, metadata, options)
    from turnwire.client._websocket import WebSocketTransport

    return WebSocketTransport(address, metadata, options)


def open_methods(address: str, options: ChannelOptions) -> aio.Channel:
    """Opens a channel for one-shot methods, with a connection of its own.

    Raises:
        ValueError: The address cannot be read.
        ImportError: As `check_address` does.
    """
    if not is_websocket(address):
        return open_channel(address, options)
    from turnwire.client._http_channel import HttpChannel

    return HttpChannel(address, options).as_channel()
