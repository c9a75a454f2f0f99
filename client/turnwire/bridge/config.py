"""What a bridge is told, checked: where to listen, where the server is, and how to get there otherwise.

Above it: `cli` and `app`. Below it: addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from turnwire.client._channel import ChannelOptions
from turnwire.client._channel import parse_address as parse_server
from turnwire.client._dial import check_address, is_websocket, uses_tls
from turnwire.server.address import Address

HTTP_PORT: Final = 8080
"""Where `turnwire serve` listens for HTTP and WebSocket unless told otherwise."""
OFF: Final = "off"


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """Everything a bridge is told. Times are seconds."""

    listen: tuple[Address, ...] = (Address("127.0.0.1", 8080),)
    """Where clients are served."""
    server: str = "grpc://localhost:50051"
    """The server, in the forms that `turnwire.client.connect` takes."""
    fallback: str | None = None
    """The server's WebSocket address, taken while gRPC does not get through; None for none."""
    authorization: str | None = None
    """What is shown to the server for everybody; None shows each client's own `Authorization`."""
    channel: ChannelOptions = field(default_factory=ChannelOptions)
    """How to connect."""
    drain_grace: float = 30.0
    """Time for running responses at shut-down."""


def find_fallback(server: str, given: str | None, listen: Sequence[Address]) -> str | None:
    """Returns the WebSocket address that is taken where gRPC does not get through; None for none.

    Args:
        server: The server's gRPC address.
        given: What was asked for: an address, `off`, or None for what follows from `server`: `wss://HOST` from
            `grpcs://HOST:PORT`, and `ws://HOST:8080`, the server's own default, from `grpc://HOST:PORT`.
        listen: Where the bridge listens itself.

    Raises:
        ValueError: The address cannot be read, leads back to the bridge, or would send keys in the clear which
            `server` does not.
        ImportError: The package that WebSocket addresses need is missing.
    """
    if given == OFF:
        return None
    if given is None:
        derived = _derived(server)
        # What was not asked for is not worth an error.
        return None if derived is None or _leads_back(derived, listen) else derived
    if not is_websocket(given):
        msg = f"a fallback is ws://HOST:PORT or wss://HOST:PORT, with or without a path, or {OFF}, not {given!r}"
        raise ValueError(msg)
    check_address(given)
    if is_websocket(server):
        msg = f"{server} is a WebSocket address already, and has no fallback"
        raise ValueError(msg)
    if uses_tls(server) and not uses_tls(given):
        msg = f"{given} would send in the clear what {server} does not: give wss://HOST"
        raise ValueError(msg)
    if _leads_back(given, listen):
        msg = f"{given} is where the bridge itself listens"
        raise ValueError(msg)
    return given


def _derived(server: str) -> str | None:
    if is_websocket(server):
        return None
    where = parse_server(server)
    if where.target.startswith("unix:"):
        return None
    host = where.target.rpartition(":")[0]
    return f"wss://{host}" if where.tls else f"ws://{host}:{HTTP_PORT}"


def _leads_back(address: str, listen: Sequence[Address]) -> bool:
    url = urlsplit(address)
    port = url.port or (443 if url.scheme == "wss" else 80)
    host = url.hostname or ""
    return any(port == each.port and _same_machine(host, each.host) for each in listen if not each.path)


def _same_machine(host: str, listening: str) -> bool:
    """Tells whether a name or an address may lead to where somebody listens on this machine."""
    local = not Address(host).public
    try:
        everywhere = ipaddress.ip_address(listening).is_unspecified
    except ValueError:
        everywhere = False
    return host == listening or (local and (everywhere or not Address(listening).public))
