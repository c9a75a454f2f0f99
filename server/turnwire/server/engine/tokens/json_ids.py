"""Ids as JSON text, for engines that want a prompt so: long segments are written once, not with every turn.

Above it: the HTTP adapter. Below it: segments.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from turnwire.server.prompt.segments import Rendered, Segment

_WORTH_KEEPING: Final = 256
"""Ids from which a segment's text is kept; shorter ones are written again in microseconds."""


class JsonIds:
    """Writes prompts as JSON arrays, and keeps the texts of the segments used last."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        """Takes the most bytes of text to keep; an id takes about six."""
        self._max = max_bytes
        self._bytes = 0
        # Segments are kept beside their texts, so that no other segment gets the same identity meanwhile.
        self._kept: OrderedDict[int, tuple[Segment, bytes]] = OrderedDict()

    def array(self, prompt: Rendered) -> bytes:
        """Returns a prompt's ids as a JSON array."""
        return b"[%b]" % b",".join([self._text(segment) for segment in prompt.segments() if len(segment)])

    def _text(self, segment: Segment) -> bytes:
        key = id(segment)
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known[1]
        text = msgspec.json.encode(segment.ids.tolist())[1:-1]
        if len(segment) >= _WORTH_KEEPING:
            self._kept[key] = (segment, text)
            self._bytes += len(text)
            while self._bytes > self._max:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._bytes -= len(dropped)
        return text
