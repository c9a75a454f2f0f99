"""What a parser says about a model's output, in order; items never overlap.

Above it: every parser. Below it: nothing. An event is a value. They are msgspec structs rather than dataclasses because
one is made per token, at a fifth of the cost.
"""

from __future__ import annotations

import msgspec


class ParsedText(msgspec.Struct, frozen=True, gc=False):
    """A piece of visible text or of reasoning."""

    channel: str
    """`text` or `reasoning`."""
    text: str
    ids: tuple[int, ...] = ()
    """The tokens the text comes from; empty where the parser was not given ids."""
    tokens: int = 0
    """How many sampled tokens are accounted to it: its own, and the framing since the event before."""
    start: int = 0
    """Where the first of `ids` stands among all ids fed, to find its log-probability."""
    phase: str = ""
    """`commentary` or `final_answer` where the format tells preambles from answers; else empty."""


class ParsedTextEnd(msgspec.Struct, frozen=True, gc=False):
    """The open text or reasoning is over; text that follows is another item, even on the same channel."""


class ParsedCallStart(msgspec.Struct, frozen=True, gc=False):
    """A tool call begins."""

    name: str
    kind: str = "function"
    """`function` or `custom`."""
    call_id: str = ""
    """The model's own id for the call, in formats that have one."""
    tokens: int = 0


class ParsedCallDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the open call's arguments, verbatim wherever the format is JSON."""

    text: str
    ids: tuple[int, ...] = ()
    tokens: int = 0
    start: int = 0


class ParsedCallEnd(msgspec.Struct, frozen=True, gc=False):
    """The open call's arguments are complete. A call that was cut by a limit has no end."""


Event = ParsedText | ParsedTextEnd | ParsedCallStart | ParsedCallDelta | ParsedCallEnd
"""One step of the output."""
