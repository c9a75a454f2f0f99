"""Settings of the HTTP door, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.v1.official.messages import MAX_BODY


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How the door treats its connections. Times are seconds."""

    max_body_bytes: int = MAX_BODY
    """Largest body of a request, compressed and decompressed."""
    body_timeout: float = 60.0
    """Silence of a client amid its request's body, after which the request is refused."""
    keep_alive: float = 120.0
    """Time that a connection may be there without a request, the head of one included. Above the minute that proxies
    and the 90 s that clients keep connections for, so that it is they who close them."""
    comment_interval: float = 15.0
    """Silence of an event stream after which a comment is sent: proxies cut connections that are silent for 30 to 60 s,
    and a thinking model is silent for longer."""
    compression: bool = False
    """Whether streams are compressed for clients that offer zstd or gzip. A token then takes 16 bytes on the wire
    instead of 216, and a microsecond and 35 KB per stream more. Off, since it pays only where bytes are dear, and the
    sizes of compressed pieces tell more of what is in them."""
    stall_timeout: float = 120.0
    """Time that a write may wait for a client that takes nothing, before its connection is cut off."""
