"""Settings of images and files.

Above it: `settings`, which has them among all others. Below it: `sources`, which finds values, and the media room's
limits.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from turnwire.server import values
from turnwire.server.media.allowlist import HostPattern, parse_pattern
from turnwire.server.media.config import MediaConfig
from turnwire.server.sources import Setting, Sources

MEDIA_SETTINGS: Final = (
    Setting(
        "images.urls",
        "Fetch images and files from these hosts, such as *.example.com. Repeatable.",
        "",
        "--image-urls",
        "HOSTS",
        repeatable=True,
    ),
    Setting("images.service", "Image service to ask where inline-images is disabled.", "", "--image-service", "URL"),
    Setting("images.max_bytes", "Bytes of one image or file.", "20MiB"),
    Setting("images.max_pixels", "Pixels of one image.", "50000000"),
    Setting("images.timeout", "Time to fetch one image or file.", "10s"),
)
"""In the order of --help."""

_MAX_BYTES: Final = 2**31 - 1
_MAX_PIXELS: Final = 89_000_000  # above which the imaging library warns


def read_media(sources: Sources) -> MediaConfig:
    """Reads what is said of images and files. Mistakes are noted."""
    base = MediaConfig()
    get = sources.get
    return MediaConfig(
        urls=get("images.urls", _patterns, base.urls),
        service=get("images.service", _service, base.service),
        max_bytes=get("images.max_bytes", values.size(1, _MAX_BYTES), base.max_bytes),
        max_pixels=get("images.max_pixels", values.integer(1, _MAX_PIXELS), base.max_pixels),
        timeout=get("images.timeout", values.duration(0.1, 600), base.timeout),
    )


def _patterns(value: object) -> tuple[HostPattern, ...]:
    return tuple(parse_pattern(word) for word in values.read_words(value))


def _service(value: object) -> str:
    text = values.read_text(value)
    parts = urlsplit(text)
    if parts.scheme in ("http", "https") and parts.hostname and not (parts.username or parts.query or parts.fragment):
        return text
    msg = f"expected the URL of a service, such as http://127.0.0.1:9000, found {values.describe(value)}"
    raise ValueError(msg)
