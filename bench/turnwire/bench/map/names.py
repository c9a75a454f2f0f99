"""Figures and drivers in the words that the map's picture and text share.

Above it: `picture`, `words`. Below it: nothing.
"""

from __future__ import annotations

import math
from typing import Final

WORDS: Final = {
    "http-full": "HTTP, whole history, kept alive",
    "http-full-new": "HTTP, whole history, new connections",
    "http-chained": "HTTP, chained",
    "ws-create": "WebSocket, official, create",
    "ws-append": "WebSocket, official, append",
    "native-create": "WebSocket, turnwire.v1, create",
    "native-append": "WebSocket, turnwire.v1, append",
    "grpc-create": "gRPC, create",
    "grpc-append": "gRPC, append",
}
SHORT: Final = {
    "http-full": "HTTP, kept",
    "http-full-new": "HTTP, new",
    "http-chained": "HTTP, chained",
    "ws-create": "WS create",
    "ws-append": "WS append",
    "native-append": "WS turnwire.v1",
}
"""For titles of small panels."""


def signed(share: float) -> str:
    """Returns a share as percent with its sign, with one digit behind the point where it is small."""
    value = abs(share) * 100
    digits = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    sign = "" if float(digits) == 0 else "+" if share > 0 else "\u2212"
    return f"{sign}{digits}%"


def size(count: int) -> str:
    """Returns bytes in words, by 1,024."""
    for unit, each in (("MiB", 1024**2), ("KiB", 1024)):
        if count >= each:
            return f"{count / each:,.3g} {unit}"
    return f"{count} B"


def speed_words(tokens_per_second: float) -> str:
    """Returns a model's speed."""
    return "no limit" if math.isinf(tokens_per_second) else f"{tokens_per_second:,.0f}"
