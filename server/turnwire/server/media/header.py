"""What an image says of itself in its first bytes, read without decoding or allocating anything.

Above it: `measure`, which refuses by it what would be a bomb to a decoder: some allocate the whole canvas when a file
is opened. Below it: nothing. Formats: PNG (W3C PNG, third edition, chapter 5), JPEG (ITU-T T.81, annex B), GIF (GIF89a
specification), WebP (RFC 9649).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal

Format = Literal["PNG", "JPEG", "GIF", "WEBP"]

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_STANDALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a segment."""
_NO_FRAME: Final = frozenset({0xC4, 0xC8, 0xCC})
"""JPEG markers among those that begin a frame, which do not."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an image claims to be."""

    format: Format
    width: int
    height: int
    """Pixels of what a decoder allocates; 0 where the file does not say."""
    animated: bool = False


def read_header(data: bytes) -> Header | None:
    """Returns what an image claims to be; None where it is of no format that is known here.

    Costs microseconds; of a GIF, a step for each of its data blocks, up to 4,000 a megabyte.

    Raises:
        ValueError: It is of a known format and ends too early, or makes no sense.
    """
    try:
        if data.startswith(_PNG):
            return _png(data)
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _gif(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError) as error:
        msg = "it ends within its header"
        raise ValueError(msg) from error
    return None


def _png(data: bytes) -> Header:
    if data[12:16] != b"IHDR":
        msg = "it does not begin with IHDR"
        raise ValueError(msg)
    width, height = struct.unpack_from(">II", data, 16)
    at, animated = len(_PNG), False
    # Animations say so in front of the first image data.
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IDAT":
            return Header("PNG", width, height, animated)
        animated = animated or kind == b"acTL"
        at += 12 + length


def _jpeg(data: bytes) -> Header:
    width = height = 0
    at = 2
    while True:
        if data[at] != 0xFF:
            msg = "a marker is missing"
            raise ValueError(msg)
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        at += 2
        if marker in _STANDALONE:
            continue
        if marker in (0xD9, 0xDA):
            break
        (length,) = struct.unpack_from(">H", data, at)
        if length < 2:
            msg = "a segment is shorter than its length"
            raise ValueError(msg)
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            tall, wide = struct.unpack_from(">HH", data, at + 3)
            # The last one wins with some decoders.
            width, height = max(width, wide), max(height, tall)
        at += length
    return Header("JPEG", width, height)


def _gif(data: bytes) -> Header:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + _colours(flags)
    frames = 0
    while data[at] != 0x3B:
        if data[at] == 0x2C:
            frames += 1
            if frames > 1:
                return Header("GIF", width, height, animated=True)
            left, top, wide, tall, flags = struct.unpack_from("<HHHHB", data, at + 1)
            # A frame may be larger than the screen that it is on.
            width, height = max(width, left + wide), max(height, top + tall)
            at += 11 + _colours(flags)
        elif data[at] == 0x21:
            at += 2
        else:
            msg = "a block is missing"
            raise ValueError(msg)
        while size := data[at]:
            at += 1 + size
        at += 1
    if not frames:
        msg = "it holds no image"
        raise ValueError(msg)
    return Header("GIF", width, height)


def _colours(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp(data: bytes) -> Header:
    (size,) = struct.unpack_from("<I", data, 4)
    if size + 8 > len(data):
        msg = "it is shorter than it says"
        raise ValueError(msg)
    kind = data[12:16]
    if kind == b"VP8X":
        wide, tall = data[24:27], data[27:30]
        if len(tall) < 3:
            raise IndexError
        width, height = int.from_bytes(wide, "little") + 1, int.from_bytes(tall, "little") + 1
        return Header("WEBP", width, height, bool(data[20] & 2))
    if kind == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature == 0x2F:
            return Header("WEBP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        start, width, height = struct.unpack_from("<3sHH", data, 23)
        if start == b"\x9d\x01\x2a":
            return Header("WEBP", width & 0x3FFF, height & 0x3FFF)
    msg = "it holds no image"
    raise ValueError(msg)
