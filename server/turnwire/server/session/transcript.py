"""The ordered transcript of a chain: immutable segments that share all history with their parents.

A segment holds what one request or one pass added. Forks are free, extending costs what is new, and everything that a
turn needs to know about the past (sizes, counts, open calls) is carried as a running value.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from turnwire.server.prompt.parts import part_texts
from turnwire.server.session.calls import CallKey
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.marks import NOTHING_SAID, UNKNOWN, follow
from turnwire.server.session.screens import Overlap, Screened
from turnwire.v1.item_pb2 import ContentPart, Item, Role

ENTRY_OVERHEAD: Final = 250
"""Bytes that one entry costs beside its item: objects and references, as measured on CPython 3.11."""


SEGMENT_OVERHEAD: Final = 400
"""Bytes that a segment costs beside its entries, what is remembered of its rendering included."""


class Origin(enum.IntEnum):
    """Where an item of a transcript came from."""

    INPUT = 0
    """The request's input."""
    MODEL = 1
    """Sampled."""
    HOSTED = 2
    """A hosted tool's call with its outcome."""
    APPEND = 3
    """Appended by the client into a held response."""


class Entry:
    """One item of a transcript; a value. Kept as bytes, since a sub-message would pin the whole request."""

    __slots__ = ("data", "mark", "opened", "origin", "screened", "tokens")

    def __init__(
        self, data: bytes, origin: Origin, tokens: int, opened: bytes | None = None, mark: bytes = UNKNOWN
    ) -> None:
        """Takes the serialized item, its origin, its size in tokens as counted by the server, the serialized item that
        prompts read in its place, where this one holds something sealed, and the mark of what prompts read."""
        self.data = data
        """The item as it came or was said, and as it is returned."""
        self.origin = origin
        self.tokens = tokens
        self.opened = opened
        self.mark = mark
        self.screened: tuple[Screened, ...] | None = None
        """What a classifier found in a new item, until that was judged. A memo."""

    def item(self) -> Item:
        """Parses the item as prompts read it; a fresh message each time."""
        return Item.FromString(self.data if self.opened is None else self.opened)

    def sent(self) -> Item:
        """Parses the item as it came; a fresh message each time."""
        return Item.FromString(self.data)

    def text(self) -> str:
        """Returns the item's plain text: messages, reasoning, call arguments and outputs; other items have none."""
        return item_text(self.item())


def _parts_text(parts: Iterable[ContentPart]) -> str:
    texts, _ = part_texts(parts)
    return "\n".join(texts)


def item_text(item: Item) -> str:
    """Returns the plain text of an item; "" for items without any."""
    match item.WhichOneof("kind"):
        case "message":
            content = item.message.content
            return content.text if content.WhichOneof("form") == "text" else _parts_text(content.parts.parts)
        case "reasoning":
            return _parts_text(item.reasoning.content or item.reasoning.summary)
        case "function_call":
            return f"{item.function_call.name}\n{item.function_call.arguments}"
        case "custom_tool_call":
            return f"{item.custom_tool_call.name}\n{item.custom_tool_call.input}"
        case "function_call_output":
            output = item.function_call_output.output
            return output.text if output.WhichOneof("form") == "text" else _parts_text(output.parts.parts)
        case "custom_tool_call_output":
            output = item.custom_tool_call_output.output
            return output.text if output.WhichOneof("form") == "text" else _parts_text(output.parts.parts)
        case "local_shell_call":
            return item.local_shell_call.action
        case "local_shell_call_output":
            return item.local_shell_call_output.output
        case "shell_call":
            return item.shell_call.action
        case "shell_call_output":
            return "\n".join(item.shell_call_output.output)
        case "apply_patch_call":
            return item.apply_patch_call.operation
        case "apply_patch_call_output":
            return item.apply_patch_call_output.output
        case "mcp_call":
            call = item.mcp_call
            return f"{call.name}\n{call.arguments}\n{call.output or call.error}"
        case "opaque":
            return item.opaque.json
        case _:
            return ""


def item_id(item: Item) -> str:
    """Returns the id of an item; "" where it has none, as references and opaque items."""
    kind = item.WhichOneof("kind")
    if kind is None or kind == "item_reference":
        return ""
    return getattr(getattr(item, kind), "id", "")


class Transcript:
    """A persistent list of entries; a value. `new` is what this segment added, the rest is its parent's."""

    __slots__ = (
        "__weakref__",
        "bytes",
        "chain",
        "digest",
        "kept",
        "length",
        "name",
        "new",
        "open_calls",
        "overlap",
        "parent",
        "record",
        "rendering",
        "tokens",
        "truncated",
        "turns",
    )

    def __init__(
        self,
        parent: Transcript | None,
        new: tuple[Entry, ...],
        open_calls: frozenset[CallKey],
        turns: int,
        record: TokenRecord | None = None,
        chain: Chain | None = None,
        *,
        instead: Transcript | None = None,
        truncated: bool = False,
    ) -> None:
        """Takes what it goes on from and with.

        Args:
            parent: What it goes on from.
            new: What is new.
            open_calls: The calls open afterwards.
            turns: How many model turns `new` holds.
            record: Their tokens, where an engine gave them.
            chain: The chain that begins here; by default the parent's goes on.
            instead: The transcript that `new` takes the place of, since that became too long; its running hash goes
                on, so that a client that sends all of it again is known.
            truncated: Whether some of it was left out without a word.
        """
        self.parent: Transcript | None = parent
        self.new = new
        self.open_calls = open_calls
        self.record = record
        """The tokens of the pass that made this segment; None where it was no pass, or its engine gave none."""
        self.chain: Chain | None = chain or (parent.chain if parent else None)
        """What the chain is routed by; None where no response has begun one."""
        self.kept = 0
        """About the bytes that `rendering` keeps, without those shared with earlier segments; told by who renders."""
        self.length: int = len(new) + (parent.length if parent else 0)
        self.bytes: int = self.own_bytes + (parent.bytes if parent else 0)
        self.tokens: int = sum(e.tokens for e in new) + (parent.tokens if parent else 0)
        self.turns: int = turns + (parent.turns if parent else 0)
        before = parent or instead
        self.digest: bytes = before.digest if before else NOTHING_SAID
        """The running hash of what the client has seen of the conversation; `UNKNOWN` where it cannot be told."""
        if not instead:
            self.digest = follow(self.digest, (entry.mark for entry in new))
        self.truncated: bool = truncated or (parent.truncated if parent else False)
        """Whether the conversation's beginning was left out to fit the model."""
        self.name = 0
        """What the store calls this segment; 0 while it has not recorded it. A memo."""
        self.overlap: Overlap | None = before.overlap if before else None
        """What classifiers remember of the chain up to here; None where nobody looked. A memo."""
        self.rendering: object | None = None
        """What a renderer keeps of the chain up to here. A memo: derived from the value, which it does not change."""

    @property
    def own_bytes(self) -> int:
        """Bytes that this segment alone keeps in memory."""
        record = self.record
        tokens = 4 * (len(record.rendered) + len(record.sampled) + len(record.logprobs)) if record else 0
        items = sum(len(e.data) + len(e.opened or b"") + ENTRY_OVERHEAD for e in self.new)
        return (SEGMENT_OVERHEAD if self.parent or items else 0) + self.kept + tokens + items

    def extend(
        self,
        new: Sequence[Entry],
        open_calls: frozenset[CallKey],
        turns: int = 0,
        record: TokenRecord | None = None,
        chain: Chain | None = None,
    ) -> Transcript:
        """Returns the transcript that goes on with some entries; costs what is new."""
        return Transcript(self, tuple(new), open_calls, turns, record, chain)

    def segments(self) -> Iterator[Transcript]:
        """Yields the segments, newest first."""
        segment: Transcript | None = self
        while segment is not None:
            yield segment
            segment = segment.parent

    def walk(self) -> Iterator[Entry]:
        """Yields all entries, oldest first. Walks the whole history: never part of a turn."""
        for segment in reversed(list(self.segments())):
            yield from segment.new


EMPTY: Final = Transcript(None, (), frozenset(), 0)
"""The transcript in which nothing was said yet."""


def count_turns(items: Sequence[Item]) -> int:
    """Counts the model turns that replayed items stand for: runs of the model's items between others'."""
    turns = 0
    inside = False
    for item in items:
        kind = item.WhichOneof("kind")
        sampled = kind in _SAMPLED or (kind == "message" and item.message.role == Role.ROLE_ASSISTANT)
        if sampled and not inside:
            turns += 1
        inside = sampled
    return turns


_SAMPLED: Final = frozenset(
    {
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "tool_search_call",
        "computer_call",
        "mcp_call",
        "web_search_call",
    }
)
