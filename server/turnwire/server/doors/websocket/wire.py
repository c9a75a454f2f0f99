"""Server-to-client frames of RFC 6455, packed for one write.

Above it: `connection`. A host's own way to send costs a call chain and often a system call per frame; a batch packed
here costs one. Frames a server sends are not masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

TEXT: Final = 0x1
BINARY: Final = 0x2
PING: Final = b"\x89\x00"
"""A whole ping frame without a payload."""

_FIN: Final = 0x80
_CONTINUATION: Final = 0x0
_MAX_FRAME: Final = 4 * 1024 * 1024
"""Bytes of one frame; longer messages are fragmented. Codex refuses frames over 16 MiB, though not messages."""
_MEDIUM: Final = Struct("!BBH").pack
_LARGE: Final = Struct("!BBQ").pack


def pack(messages: Iterable[bytes], opcode: int) -> bytes:
    """Returns messages as frames, one after the other.

    Args:
        messages: Their payloads.
        opcode: TEXT or BINARY.
    """
    parts: list[bytes] = []
    first = _FIN | opcode
    for message in messages:
        size = len(message)
        if size < 126:
            parts.append(bytes((first, size)))
        elif size < 65536:
            parts.append(_MEDIUM(first, 126, size))
        elif size <= _MAX_FRAME:
            parts.append(_LARGE(first, 127, size))
        else:
            _fragment(parts, message, opcode)
            continue
        parts.append(message)
    return b"".join(parts)


def _fragment(parts: list[bytes], message: bytes, opcode: int) -> None:
    view = memoryview(message)
    for start in range(0, len(message), _MAX_FRAME):
        piece = view[start : start + _MAX_FRAME]
        fin = _FIN if start + _MAX_FRAME >= len(message) else 0
        parts.append(_LARGE(fin | (_CONTINUATION if start else opcode), 127, len(piece)))
        parts.append(bytes(piece))
