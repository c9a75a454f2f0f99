"""What images and files may be: limits, and where they may come from, as frozen values.

Above it: the settings of a server. Below it: `allowlist`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from turnwire.server.media.allowlist import HostPattern

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MediaConfig:
    """What the server takes. Times are in seconds."""

    urls: tuple[HostPattern, ...] = ()
    """Hosts from which images and files are fetched; empty fetches nothing."""
    service: str = ""
    """URL of an image service that is asked in place of looking at images here; empty asks none."""
    max_bytes: int = 20 * MIB
    """Bytes of one image or file, decoded."""
    max_pixels: int = 50_000_000
    """Pixels of one image. Decoding takes up to four bytes for each, one large image at a time."""
    max_side: int = 32_768
    """Pixels of an image's longer side."""
    max_images: int = 500
    """Images of one request."""
    timeout: float = 10.0
    """Time to fetch one of them, redirects included."""
    max_redirects: int = 3
    max_fetched_bytes: int = 50 * MIB
    """Bytes that are fetched for one request."""
    max_fetches: int = 8
    """Images of one request that are fetched at the same time."""
    max_connections: int = 64
    """Images of all requests that are fetched at the same time."""
    cache_bytes: int = 64 * MIB
    """Bytes of what was fetched lately and is kept for the next mention of its URL; 0 keeps none."""
    cache_time: float = 300.0
    """How long it is kept."""


MEDIA: Final = MediaConfig()
"""What a server takes that was told nothing."""
