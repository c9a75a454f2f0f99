"""Marks of items: short keyed hashes of what an item says to the model, and the running hash of a conversation.

Above it: policy, which marks what comes, passes, which mark what is said, and transcripts, which carry the running
hash. Below it: the items of `turnwire.v1`. Two items with the same mark read the same to every model and pair the same
calls.

What counts: type, role, phase, texts, images, files, call ids, names, arguments, outputs, and what a sealed item opens
to. What does not: ids that pair nothing, statuses other than that of a call cut short, annotations, log-probabilities,
keys that are carried unread, and whether a text stands alone or in one part: clients drop or rewrite these when they
send a conversation again. Whatever else differs by a single character has another mark. 128 bits under a key of the
process: nobody can look for two items with one mark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from turnwire.server.session.calls import answered_by, opened_by
from turnwire.v1.item_pb2 import ContentPart, Item, ItemStatus, MessageContent, Reasoning, ToolOutput

SIZE: Final = 16
"""Bytes of a mark and of a running hash."""
NOTHING_SAID: Final = bytes(SIZE)
"""The running hash of a conversation without items."""
UNKNOWN: Final = b""
"""The running hash of a conversation that holds an item without a mark: it equals no other."""

_SURE: Final = ("local_shell_call", "mcp_approval_request")
"""Kinds whose own id may pair them with their answer."""
_TELLING: Final = (ItemStatus.ITEM_STATUS_INCOMPLETE, ItemStatus.ITEM_STATUS_FAILED)
"""Statuses that say something beyond that the item is there."""


class Marker:
    """Marks items. Safe to use from several threads at once."""

    __slots__ = ("_keyed",)

    def __init__(self, key: bytes) -> None:
        """Takes the key, 16 to 64 random bytes; marks of another key have nothing to do with these."""
        self._keyed = hashlib.blake2b(digest_size=SIZE, key=key)

    def mark(self, item: Item) -> bytes:
        """Returns the mark of an item as prompts read it; `UNKNOWN` where it stands for something else.

        Costs the item's size at the speed of the hash, and a few microseconds.
        """
        said = _said(item)
        if said is None:
            return UNKNOWN
        hashed = self._keyed.copy()
        texts = [text.encode() for text in said]
        # The lengths first, so that no two lists of texts are the same bytes.
        hashed.update(repr([len(text) for text in texts]).encode())
        for text in texts:
            hashed.update(text)
        return hashed.digest()


def follow(digest: bytes, marks: Iterable[bytes]) -> bytes:
    """Returns the running hash of a conversation that goes on with items of these marks."""
    for mark in marks:
        if not mark or not digest:
            return UNKNOWN
        digest = hashlib.blake2b(digest + mark, digest_size=SIZE).digest()
    return digest


def _said(item: Item) -> Sequence[str] | None:
    kind = item.WhichOneof("kind")
    match kind:
        case "message":
            message = item.message
            # A final answer is what an assistant's message is that says nothing about its phase.
            phase = "" if message.phase == "final_answer" else message.phase
            return ("message", str(message.role), phase, *_content(message.content))
        case "function_call":
            call = item.function_call
            cut = "cut" if call.status == ItemStatus.ITEM_STATUS_INCOMPLETE else ""
            return (kind, call.call_id, call.namespace, call.name, call.arguments, cut)
        case "function_call_output":
            return (kind, item.function_call_output.call_id, *_content(item.function_call_output.output))
        case "reasoning":
            return (kind, *_thoughts(item.reasoning))
        case "custom_tool_call":
            custom = item.custom_tool_call
            cut = "cut" if custom.status == ItemStatus.ITEM_STATUS_INCOMPLETE else ""
            return (kind, custom.call_id, custom.namespace, custom.name, custom.input, cut)
        case "custom_tool_call_output":
            return (kind, item.custom_tool_call_output.call_id, *_content(item.custom_tool_call_output.output))
        case "opaque":
            return (kind, item.opaque.type, item.opaque.json)
        case None | "item_reference":
            # What it refers to is somebody else's to say.
            return None
        case _:
            return _others(item, kind)


def _others(item: Item, kind: str) -> Sequence[str]:
    """Returns a kind that is rarely met, whole but for what does not count."""
    rest = Item()
    rest.CopyFrom(item)
    member = getattr(rest, kind)
    known = member.DESCRIPTOR.fields_by_name
    # An output may name its call in its id.
    if "id" in known and kind not in _SURE and not kind.endswith("_output"):
        member.ClearField("id")
    if "status" in known and member.status not in _TELLING:
        member.ClearField("status")
    paired = opened_by(item) or answered_by(item) or ("", "")
    return (kind, *paired, rest.SerializeToString(deterministic=True).hex())


def _content(content: MessageContent | ToolOutput) -> Iterable[str]:
    if content.WhichOneof("form") == "text":
        return ("text", content.text)
    return _parts(content.parts.parts)


def _thoughts(reasoning: Reasoning) -> Iterable[str]:
    if reasoning.content:
        return _parts(reasoning.content)
    # Sealed by others: it says nothing here, but may to the upstream.
    return ("sealed", reasoning.encrypted_content, *_parts(reasoning.summary))


def _parts(parts: Iterable[ContentPart]) -> list[str]:
    said: list[str] = []
    for part in parts:
        kind = part.WhichOneof("kind")
        match kind:
            case "input_text":
                said += ("text", part.input_text.text)
            case "output_text":
                said += ("text", part.output_text.text)
            case "reasoning_text":
                said += ("text", part.reasoning_text.text)
            case "summary_text":
                said += ("summary", part.summary_text.text)
            case "refusal":
                said += ("refusal", part.refusal.refusal)
            case "input_image":
                image = part.input_image
                said += ("image", image.image_url, image.file_id, image.detail or "auto")
            case "input_file":
                file = part.input_file
                said += ("file", file.file_id, file.file_data, file.file_url, file.filename)
            case "opaque":
                said += ("opaque", part.opaque.type, part.opaque.json)
            case _:
                said += ("", "")
    return said
