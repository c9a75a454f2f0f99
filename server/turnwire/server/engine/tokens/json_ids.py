"""Ids as JSON text, for engines that want a prompt so: what was written for one turn is not written again for the next.

Above it: the adapters that speak JSON. Below it: segments. Two things are kept, both bounded. The text of a chain's
newest prompt, so that the next turn writes its own ids and copies the rest; and the texts of long segments, which forks
and chains that lost their text have in common.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from turnwire.server.prompt.segments import Rendered, Segment

_WORTH_KEEPING: Final = 256
"""Ids from which a segment's text is kept; shorter ones are written again in microseconds."""


class JsonIds:
    """Writes prompts as JSON arrays, and keeps the texts used last."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        """Takes the most bytes of text to keep; an id takes about six."""
        self._max = max_bytes
        self._bytes = 0
        # Values are kept beside their texts, so that no other gets the same identity meanwhile.
        self._kept: OrderedDict[int, tuple[Rendered | Segment, bytes]] = OrderedDict()
        self.encoded = 0
        """Ids turned into text so far."""

    def array(self, prompt: Rendered) -> bytes:
        """Returns a prompt's ids as a JSON array; costs what came since the chain's last prompt, and a copy."""
        new: list[Rendered] = []
        before = b""
        for node in prompt.nodes():
            known = self._take(node)
            if known is not None:
                before = known
                break
            new.append(node)
        if not new:
            self._keep(prompt, before)
        texts = [before] if before else []
        texts += [self._text(node.segment) for node in reversed(new[1:]) if len(node.segment)]
        # Not the prompt itself is kept, but what is before its last segment: that is the beginning of an answer in many
        # templates, and what is said later need not come after it.
        parent = prompt.parent
        if new and parent is not None and parent.length:
            before = b",".join(texts)
            if parent.length >= _WORTH_KEEPING:
                self._keep(parent, before)
            texts = [before]
        if new and len(new[0].segment):
            texts.append(self._text(new[0].segment))
        return b"[%b]" % b",".join(texts)

    def _text(self, segment: Segment) -> bytes:
        known = self._kept.get(id(segment))
        if known is not None:
            self._kept.move_to_end(id(segment))
            return known[1]
        text = msgspec.json.encode(segment.ids.tolist())[1:-1]
        self.encoded += len(segment)
        if len(segment) >= _WORTH_KEEPING:
            self._keep(segment, text)
        return text

    def _take(self, node: Rendered) -> bytes | None:
        """Returns a text, which that of a longer prompt is about to replace."""
        known = self._kept.pop(id(node), None)
        if known is None:
            return None
        self._bytes -= len(known[1])
        return known[1]

    def _keep(self, value: Rendered | Segment, text: bytes) -> None:
        self._kept[id(value)] = (value, text)
        self._bytes += len(text)
        while self._bytes > self._max:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= len(dropped)
