"""`context_management`: at which size the server compacts a conversation by itself.

Above it: `prepare`. Below it: refusals. Rules of other types are the upstream's business and are carried.
"""

from __future__ import annotations

from typing import Final

from turnwire.server.policy import json_text
from turnwire.server.policy.refusals import below, invalid
from turnwire.v1.response_pb2 import ResponseCreate

MIN_THRESHOLD: Final = 1_000
"""Tokens; the public API's own limit. A digest of less would be about as long as what it is of."""


def compact_threshold(settings: ResponseCreate, context_length: int | None) -> int | None:
    """Returns the size in tokens from which a conversation is compacted; None for never.

    A rule without a threshold means four fifths of the model's context, where that is known.

    Args:
        settings: The settings in force.
        context_length: Tokens of prompt and output together; None where nobody says.

    Raises:
        turnwire.v1.errors.RequestError: A rule has a threshold that is none.
    """
    found: int | None = None
    for index, text in enumerate(settings.context_management):
        rule = json_text.decoded(text) or {}
        if rule.get("type") != "compaction":
            continue
        threshold = rule.get("compact_threshold")
        path = f"context_management[{index}].compact_threshold"
        if threshold is None:
            threshold = None if context_length is None else context_length * 4 // 5
        elif not isinstance(threshold, int) or isinstance(threshold, bool):
            raise invalid(path, "expected an integer")
        elif threshold < MIN_THRESHOLD:
            raise below(path, "integer", f">= {MIN_THRESHOLD}", threshold)
        if threshold is not None:
            found = threshold if found is None else min(found, threshold)
    return found
