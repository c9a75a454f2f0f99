"""Characters made of several tokens: which tokens spell what is missing before the last. Pure.

Above it: `answers` and `speech`. Below it: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def incomplete(pieces: Sequence[bytes]) -> dict[bytes, int]:
    """Returns the tokens that are parts of characters, by their bytes."""
    found: dict[bytes, int] = {}
    for token, piece in enumerate(pieces):
        # A quick look first: most tokens are plain.
        if piece and not piece.isascii() and not _is_text(piece):
            found.setdefault(piece, token)
    return found


def spelled_by(prefix: bytes, parts: Mapping[bytes, int]) -> list[int]:
    """Returns the tokens that spell the beginning of a character: the fewest, longest first; none where they cannot."""
    ids: list[int] = []
    at = 0
    while at < len(prefix):
        length = next((size for size in range(len(prefix) - at, 0, -1) if prefix[at : at + size] in parts), 0)
        if not length:
            return []
        ids.append(parts[prefix[at : at + length]])
        at += length
    return ids


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
