"""The upstream of a chain, from its key alone: weighted rendezvous hashing. Pure.

Above it: `pool`. Servers with the same upstreams agree without talking. An upstream that leaves moves its own chains
and no others, and one that comes takes of all others in proportion to their weights.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

_BITS: Final = 52
"""As many as leave room for a half behind the point of a double."""


def score(key: str, address: str, weight: float) -> float:
    """Returns how much an upstream is wanted by a chain; the one with the highest score gets it.

    A hash h of key and address, evenly spread over (0, 1), becomes -weight / ln(h). The highest of such scores falls to
    each upstream with the probability weight / sum of weights. Rendezvous hashing: D. G. Thaler and C. V. Ravishankar,
    "A Name-Based Mapping Scheme for Rendezvous", University of Michigan, CSE-TR-316-96; its weighted form: J. Resch,
    "New Hashing Algorithms for Data Storage", SNIA Storage Developer Conference 2015.

    Args:
        key: The chain's.
        address: The upstream's.
        weight: The upstream's; 0 is never wanted by a chain that could go elsewhere.
    """
    if weight <= 0:
        return 0.0
    digest = hashlib.blake2b(f"{key}\0{address}".encode(), digest_size=8).digest()
    fraction = ((int.from_bytes(digest, "big") >> (64 - _BITS)) + 0.5) / 2**_BITS
    return -weight / math.log(fraction)
