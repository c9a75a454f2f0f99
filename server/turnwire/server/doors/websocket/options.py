"""Settings of the WebSocket door, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.server.session.limits import MIB


@dataclass(frozen=True, slots=True)
class WebSocketOptions:
    """How the door treats its sockets. Times are seconds."""

    max_message_bytes: int = 16 * MIB
    """Largest message taken, decompressed; the public API's limit. A larger one closes the socket with 1009."""
    ping_interval: float = 20.0
    """Silence of a client after which the server pings it; proxies cut connections that are silent for 30 to 60 s."""
    pong_timeout: float = 40.0
    """Time for the answer to such a ping, after which the client counts as gone. Generous, since clients that are busy
    with the last frames answer no pings."""
    stall_timeout: float = 120.0
    """Time that a write may wait for a client that takes nothing, before the socket is cut off."""
    close_timeout: float = 5.0
    """Time for the client's answer to a close frame; what ran on the socket has been let go before."""
    compression: bool = True
    """Whether a client that offers permessage-deflate gets it. A token then takes 10 bytes on the wire instead of 200,
    and 5 microseconds and 90 KB per socket more."""
