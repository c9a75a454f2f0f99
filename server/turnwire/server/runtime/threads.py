"""When work leaves the event loop. Above it: whoever does such work. Below it: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

THREAD_BYTES: Final = 32 * 1024
"""Work on more than this runs in a thread, so that one big request does not delay its neighbours."""
PARSE_BYTES: Final = 256 * 1024
"""JSON of more than this is parsed in a thread: it takes a few milliseconds, and 16 MiB a fifth of a second."""


async def parsed(read: Callable[[], T], size: int) -> T:
    """Parses what has so many bytes, in a thread where it is big, and raises what `read` raises.

    Cancelling it leaves the thread to end by itself, and its result unused.
    """
    return await asyncio.to_thread(read) if size > PARSE_BYTES else read()
