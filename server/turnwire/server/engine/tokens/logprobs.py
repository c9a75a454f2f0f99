"""Log-probabilities as engines send them, put beside the ids they belong to.

Above it: the adapters. Engines leave out what they do not know and send what is no number; an array that is one short
would give every later token its neighbour's value, so what is missing is filled in rather than left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwire.server.engine.tokens.port import UNKNOWN_LOGPROB


def finite(value: float) -> float:
    """Returns a log-probability that can be computed and sent as JSON."""
    return value if math.isfinite(value) else UNKNOWN_LOGPROB


def beside(ids: Sequence[int], known: Sequence[int], values: Sequence[float]) -> list[float]:
    """Returns one value for each id.

    Args:
        ids: The sampled ids.
        known: Those of them, in order, whose value the engine gave; empty where it gave all without naming them.
        values: The values.
    """
    if len(values) == len(ids):
        return [finite(value) for value in values]
    out: list[float] = []
    at = 0
    for token in ids:
        if at < len(values) and at < len(known) and known[at] == token:
            out.append(finite(values[at]))
            at += 1
        else:
            out.append(UNKNOWN_LOGPROB)
    return out
