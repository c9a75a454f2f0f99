"""What a chain of responses and all of its forks have in common: what they are routed by, and where they were served.

Above it: transcripts, whose segments all refer to the one object of their chain, so that nothing has to be looked for.
"""

from __future__ import annotations

import hashlib
from typing import Final


class Chain:
    """One chain with its forks."""

    __slots__ = ("key", "upstream")

    def __init__(self, key: str) -> None:
        """Takes the key, which stays the same however the chain goes on."""
        self.key: Final = key
        self.upstream = ""
        """Address of the upstream that served the chain last, and has its prefix in its cache; empty for none. A memo:
        it changes where a prompt is sent, never what is said."""


def chain_key(response_id: str, principal: str, cache_key: str) -> str:
    """Returns the key of a chain that begins.

    Clients that resend everything instead of continuing name what belongs together by `prompt_cache_key`; it is hashed
    with its principal, since others must neither guess nor read it, and since the key goes into headers.

    Args:
        response_id: The chain's first response, which is the key where the client names none.
        principal: Whose chain it is.
        cache_key: The request's `prompt_cache_key`; empty for none.
    """
    if not cache_key:
        return response_id
    digest = hashlib.blake2b(f"{principal}\0{cache_key}".encode(), digest_size=16)
    return f"key_{digest.hexdigest()}"
