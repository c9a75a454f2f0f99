"""Compression of event streams, piece by piece, so that nothing waits for more.

Above it: `server` and `event_stream`. Below it: zlib and zstd. Windows are small, since what repeats in a stream is its
last event: 8 KiB find it as well as the usual megabytes do, and hundreds of streams fit into memory. Measured, an event
of 216 bytes takes 16, for 1.1 (zstd) or 1.6 (gzip) microseconds, and a stream 32 or 38 KB of memory.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP: Final = 16
"""Added to the bits of the window, it makes zlib write gzip."""
_GZIP_WINDOW: Final = 12
_GZIP_MEMORY: Final = 5
_ZSTD: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.window_log: 13,
    zstd.CompressionParameter.hash_log: 10,
}


class Compressor(Protocol):
    """Compresses one stream."""

    def piece(self, data: bytes) -> bytes:
        """Compresses a piece so that everything up to its end can be read."""
        ...

    def end(self) -> bytes:
        """Returns what ends the stream."""
        ...


class Encoding(NamedTuple):
    """One way to compress."""

    name: str
    """As `Content-Encoding` has it."""
    compressor: Callable[[], Compressor]
    """Begins a stream."""


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(1, wbits=_GZIP + _GZIP_WINDOW, memLevel=_GZIP_MEMORY)

    def piece(self, data: bytes) -> bytes:
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._stream.flush()


class _Zstd:
    def __init__(self) -> None:
        self._stream = zstd.ZstdCompressor(options=_ZSTD)

    def piece(self, data: bytes) -> bytes:
        return self._stream.compress(data, mode=zstd.ZstdCompressor.FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._stream.flush()


_ENCODINGS: Final = (Encoding("zstd", _Zstd), Encoding("gzip", _Gzip))
"""Best first."""


def choose(accepted: str) -> Encoding | None:
    """Returns the best encoding that an `Accept-Encoding` (RFC 9110, section 12.5.3) names; None for none of ours.
    Weights but 0 are not looked at, nor is `*`: who does not name an encoding may not have heard of it."""
    names: set[str] = set()
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            names.add(name.strip())
    return next((encoding for encoding in _ENCODINGS if encoding.name in names), None)
