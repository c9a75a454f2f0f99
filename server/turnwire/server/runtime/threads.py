"""When work leaves the event loop. Above it: whoever does such work. Below it: nothing."""

from __future__ import annotations

from typing import Final

THREAD_BYTES: Final = 32 * 1024
"""Work on more than this runs in a thread, so that one big request does not delay its neighbours."""
