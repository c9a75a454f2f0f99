"""Requests put together from bytes: a prompt of a million characters is never encoded twice.

Parsers of protobuf merge what occurs repeatedly, and a packed field is nothing but its elements' bytes in a row. So the
ids encoded with earlier turns, those of this turn and the rest of the request only need to stand one after the other.
"""

from __future__ import annotations

from typing import Final

_LEN: Final = 2
"""The wire type of everything that is prefixed with its length."""


def varint(number: int) -> bytes:
    """Encodes a number that is not negative."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def with_ids(rest: bytes, packed: bytes, *, tokenized: int, input_ids: int) -> bytes:
    """Returns a request with its prompt.

    Args:
        rest: The request without its prompt, serialized.
        packed: The ids, as the packed field holds them.
        tokenized: Number of the request's field that holds the message with the ids.
        input_ids: Number of that message's field.
    """
    inner = varint(input_ids << 3 | _LEN) + varint(len(packed))
    outer = varint(tokenized << 3 | _LEN) + varint(len(inner) + len(packed))
    return b"".join((rest, outer, inner, packed))
