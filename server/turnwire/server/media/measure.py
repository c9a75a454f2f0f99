"""Looks at an image: its format and size from the header, then whether all of it is there, by decoding it.

Above it: `reader`, and image services that do the same elsewhere. Below it: `header`, and Pillow, which decodes. What
a limit rules out is refused before Pillow sees a byte of it. Decoding frees the interpreter's lock, so that images are
looked at in threads beside everything else.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from PIL import Image

from turnwire.server.media.config import MediaConfig
from turnwire.server.media.errors import MediaError, too_many_bytes
from turnwire.server.media.header import Format, Header, read_header

MEDIA_TYPES: Final[dict[Format, str]] = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "GIF": "image/gif",
    "WEBP": "image/webp",
}
"""The formats that are taken."""

_LARGE: Final = 8_000_000
"""Pixels above which an image waits for others that are as large: each takes tens of megabytes for a moment."""
_large: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Measured:
    """An image that can be taken."""

    media_type: str
    width: int
    height: int
    """In pixels, as stored: turning by EXIF is left to who looks at it, and the rules of tokens are symmetric."""


def measure(data: bytes, config: MediaConfig) -> Measured:
    """Returns what an image is. Takes milliseconds per megabyte; safe to call from several threads at once.

    Raises:
        MediaError: It cannot be taken.
    """
    if not data:
        raise MediaError("empty_image_file", "The image file is empty.")
    if len(data) > config.max_bytes:
        raise too_many_bytes(len(data), config.max_bytes)
    try:
        header = read_header(data)
    except ValueError as error:
        raise _damaged(str(error)) from error
    if header is None:
        message = "The image is of no supported format. Supported are PNG, JPEG, WebP and GIF without animation."
        raise MediaError("invalid_image_format", message)
    if header.animated:
        message = f"Animated images are not supported: the {header.format} has more than one frame."
        raise MediaError("invalid_image_format", message, format=header.format)
    _check_size(header.width, header.height, config)
    _decode(data, header, config)
    return Measured(MEDIA_TYPES[header.format], header.width, header.height)


def _check_size(width: int, height: int, config: MediaConfig) -> None:
    told = {"width": str(width), "height": str(height)}
    if not (width and height):
        message = f"The image is too small: {width} x {height} pixels."
        raise MediaError("image_too_small", message, **told)
    if width * height > config.max_pixels or max(width, height) > config.max_side:
        message = (
            f"The image is too large: {width} x {height} pixels. At most {config.max_pixels} pixels and"
            f" {config.max_side} on a side are taken."
        )
        raise MediaError("image_too_large", message, **told)


def _decode(data: bytes, header: Header, config: MediaConfig) -> None:
    large = header.width * header.height > _LARGE
    with _large if large else nullcontext():
        try:
            with Image.open(BytesIO(data), formats=(header.format,)) as image:
                # Decoders read headers in their own way.
                _check_size(*image.size, config)
                # An eighth of a JPEG takes an eighth of the memory, and shows as well whether all of it is there.
                image.draft(None, (1, 1))
                image.load()
        except MediaError:
            raise
        except Exception as error:
            # Decoders raise whatever they ran into: a file from a stranger must not look like trouble of the server's.
            raise _damaged(type(error).__name__) from error


def _damaged(reason: str) -> MediaError:
    return MediaError("image_parse_error", f"The image cannot be read, it is damaged or cut short ({reason}).")
