"""What clients send back for the server to read: sealed items, references, and items that came as opaque.

Above: `prepare`. Below: the seals, the rule of compaction and the JSON shapes. An item is kept as it came; what is made
here is the item that prompts read in its place. What cannot be read is carried all the same, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from turnwire.server.media.parts import parts_of
from turnwire.server.policy.compaction import digest_message, read_digest
from turnwire.server.policy.refusals import shown
from turnwire.server.sealing import Purpose, Seals, Unreadable
from turnwire.server.session.transcript import Transcript, item_id
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.item_pb2 import Item, Reasoning
from turnwire.v1.json import from_json
from turnwire.v1.json.plan import shape_of
from turnwire.v1.opaque_pb2 import OpaqueObject

FindItems = Callable[[str, Collection[str]], Mapping[str, bytes]]
"""Returns the serialized items of a principal that have some ids; those that are not found are left out."""

SEALED: Final = frozenset({"reasoning", "compaction"})
"""Kinds of items that may hold something sealed."""


_TYPED: Final = frozenset(member.type for member in shape_of(Item.DESCRIPTOR).members if not member.opaque)


class Notices(Protocol):
    """Hears what is carried without being read; called from any thread, with text of the client's."""

    def opaque(self, kind: str, type_: str) -> None:
        """Hears of something that is carried: a `kind` of item, part, tool, field or item_field, and its type."""

    def unsealed(self, purpose: str, outcome: str) -> None:
        """Hears how a sealed item could be read: opened, foreign or damaged."""


class Unnoticed:
    """Hears everything and keeps nothing."""

    def opaque(self, kind: str, type_: str) -> None:
        """Ignores it."""

    def unsealed(self, purpose: str, outcome: str) -> None:
        """Ignores it."""


class Replays:
    """Reads what clients send back. Safe to use from several threads at once."""

    def __init__(self, seals: Seals, find: FindItems, notices: Notices) -> None:
        """Takes what opens sealed items, what finds stored ones, and who hears about it."""
        self._seals = seals
        self._find = find
        self._notices = notices

    def typed(self, items: Sequence[Item]) -> list[Item]:
        """Returns items with those read as what they are that came as opaque, as protobuf can say it.

        Raises:
            RequestError: One is not what its type says, with its path as `param`.
        """
        return [_typed(item, index) if _is_disguised(item) else item for index, item in enumerate(items)]

    def resolved(self, items: Sequence[Item], principal: str, history: Transcript) -> list[Item]:
        """Returns items with references replaced by what they refer to.

        A reference to an item of the chain stays one: the model sees that item already. Where there are references,
        this goes through the history; it is the one check that does.

        Raises:
            RequestError: `item_not_found`.
        """
        wanted = {item.item_reference.id for item in items if item.HasField("item_reference")}
        beside = {name for item in items if (name := item_id(item)) in wanted}
        known = beside | _in_chain(history, wanted)
        found: Mapping[str, bytes] = self._find(principal, wanted - known) if wanted - known else {}
        return [
            _referred(item, index, known, found) if item.HasField("item_reference") else item
            for index, item in enumerate(items)
        ]

    def opened(self, item: Item, principal: str) -> Item:
        """Returns an item with its sealed content, or the item itself where there is none that can be opened."""
        match item.WhichOneof("kind"):
            case "reasoning" if item.reasoning.encrypted_content and not item.reasoning.content:
                data = self._open(Purpose.REASONING, principal, item.reasoning.encrypted_content)
                return item if data is None else _restored(item, data)
            case "compaction":
                data = self._open(Purpose.COMPACTION, principal, item.compaction.encrypted_content)
                lines = None if data is None else read_digest(data)
                return item if lines is None else digest_message(lines)
            case _:
                return item

    def _open(self, purpose: Purpose, principal: str, text: str) -> bytes | None:
        opened = self._seals.open(purpose, principal, text)
        if isinstance(opened, Unreadable):
            self._notices.unsealed(purpose.value, opened.value)
            return None
        self._notices.unsealed(purpose.value, "opened")
        return opened


def _restored(item: Item, data: bytes) -> Item:
    whole = Item()
    whole.CopyFrom(item)
    try:
        whole.reasoning.content.extend(Reasoning.FromString(data).content)
    except DecodeError:
        # Sealed by a later version, which has another form.
        return item
    return whole


def _is_disguised(item: Item) -> bool:
    return item.HasField("opaque") and item.opaque.type in _TYPED


def _typed(item: Item, index: int) -> Item:
    try:
        return from_json(Item, item.opaque.json)
    except RequestError as refusal:
        error = refusal.error
        path = f"input[{index}].{error.param}" if error.param else f"input[{index}]"
        error.message = error.message.replace(f"'{error.param}'", f"'{path}'", 1) if error.param else error.message
        error.param = path
        raise RequestError(error) from None


def _in_chain(history: Transcript, wanted: Collection[str]) -> set[str]:
    names = {name: name.encode() for name in wanted}
    return {
        name
        for segment in history.segments()
        for entry in segment.new
        # Looked for in the bytes first, which is much less than parsing each item.
        for name, raw in names.items()
        if raw in entry.data and item_id(entry.sent()) == name
    }


def _referred(item: Item, index: int, known: Collection[str], found: Mapping[str, bytes]) -> Item:
    name = item.item_reference.id
    if name in known:
        return item
    if name in found:
        return Item.FromString(found[name])
    message = f"Item with id '{shown(name)}' not found."
    raise reject("item_not_found", message, param=f"input[{index}]", item_id=shown(name))


def note_opaque(items: Sequence[Item], notices: Notices) -> None:
    """Counts what items carry that is not read: the items themselves, parts of theirs, and unknown keys."""
    for item in items:
        kind = item.WhichOneof("kind") or ""
        member = getattr(item, kind) if kind else None
        if isinstance(member, OpaqueObject):
            notices.opaque("item", member.type)
            continue
        if getattr(member, "extra_json", ""):
            notices.opaque("item_field", kind)
        for part in parts_of(item)[1]:
            if part.HasField("opaque"):
                notices.opaque("part", part.opaque.type)
