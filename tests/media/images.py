"""Images for tests: small and real, and some that only claim to be something."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from functools import cache
from io import BytesIO
from random import Random
from typing import Any

from PIL import Image


@cache
def image(form: str = "PNG", width: int = 4, height: int = 3, mode: str = "RGB") -> bytes:
    """A real image."""
    out = BytesIO()
    Image.new(mode, (width, height), 7).save(out, form)
    return out.getvalue()


@cache
def noisy(form: str) -> bytes:
    """An image that is as large as it looks: nothing in it repeats."""
    out = BytesIO()
    Image.frombytes("RGB", (64, 64), Random(1).randbytes(64 * 64 * 3)).save(out, form)
    return out.getvalue()


def animated(form: str, frames: int = 3) -> bytes:
    """An image that moves."""
    pictures = [Image.new("RGB", (4, 3), (number * 83 % 256, number // 256, 9)) for number in range(frames)]
    out = BytesIO()
    pictures[0].save(out, form, save_all=True, append_images=pictures[1:], duration=10)
    return out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *more: bytes, pixels: bytes = b"") -> bytes:
    """A PNG that claims a size, with chunks in front of its pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(more) + body


def url_of(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


PNG_URL = url_of(image())


def picture(url: str = PNG_URL, **more: Any) -> dict[str, Any]:
    """A part in public JSON."""
    return {"type": "input_image", "image_url": url, **more}
