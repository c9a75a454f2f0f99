"""Compaction: from a conversation to the shorter window that starts a new chain.

Above: the doors and `local`. Below: `probing`, which checks the request as a create and finds its conversation, and the
rule of `policy.compaction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from turnwire.server.policy.compaction import Compacted, compact, digest_message, read_digest, sealed_digest
from turnwire.server.policy.prepare import ITEM_OVERHEAD
from turnwire.server.runtime.probing import count_prompt, prepared_prompt
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.threads import THREAD_BYTES
from turnwire.server.sealing import Purpose, Unreadable
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.settings import input_items
from turnwire.server.session.transcript import Entry, item_text
from turnwire.v1 import ids
from turnwire.v1.item_pb2 import Compaction, ContentPart, InputText, Item, ItemStatus, Message
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.responses_service_pb2 import CompactResponseResponse
from turnwire.v1.usage_pb2 import InputTokensDetails, OutputTokensDetails, Usage

COMPACTION: Final = "cmp_"
"""Prefix of the ids of compaction items."""


async def compact_response(services: Services, principal: str, create: ResponseCreate) -> CompactResponseResponse:
    """Compacts the conversation that a create would go on with, its chain included; nothing is sampled or kept.

    Safe to cancel.

    Raises:
        RequestError: As for the create.
    """
    prompt = await prepared_prompt(services, principal, _without_triggers(create))
    before = await count_prompt(services, prompt)
    if prompt.transcript.bytes > THREAD_BYTES:
        compacted = await asyncio.to_thread(_compacted, services, principal, prompt)
    else:
        compacted = _compacted(services, principal, prompt)
    wall = services.clock.wall()
    sealed = services.seals.seal(Purpose.COMPACTION, principal, sealed_digest(compacted.lines))
    after = services.count_tokens(item_text(digest_message(compacted.lines))) + ITEM_OVERHEAD
    item = Item(compaction=Compaction(id=services.ids.new(COMPACTION, wall), encrypted_content=sealed))
    return CompactResponseResponse(
        id=services.ids.new(ids.RESPONSE, wall),
        created_at=int(wall),
        output=[*(_kept(services, each, wall) for each in compacted.kept), item],
        usage=Usage(
            input_tokens=before,
            input_tokens_details=InputTokensDetails(),
            output_tokens=after,
            output_tokens_details=OutputTokensDetails(),
            total_tokens=before + after,
        ),
    )


def _without_triggers(create: ResponseCreate) -> ResponseCreate:
    """Returns a create without the items that ask for what is done here anyway."""
    items = input_items(create.input)
    if not any(item.HasField("compaction_trigger") for item in items):
        return create
    rest = ResponseCreate()
    rest.CopyFrom(create)
    del rest.input.items.items[:]
    rest.input.items.items.extend(item for item in items if not item.HasField("compaction_trigger"))
    return rest


def _compacted(services: Services, principal: str, prompt: Prompt) -> Compacted:
    def earlier(item: Item) -> Sequence[str] | None:
        data = services.seals.open(Purpose.COMPACTION, principal, item.compaction.encrypted_content)
        return None if isinstance(data, Unreadable) else read_digest(data)

    return compact((_read(entry) for entry in prompt.transcript.walk()), earlier, services.count_tokens)


def _read(entry: Entry) -> Item:
    """Returns an item as prompts read it, but for compactions, whose lines are wanted."""
    if entry.opened is None:
        return entry.item()
    sent = entry.sent()
    return sent if sent.HasField("compaction") else entry.item()


def _kept(services: Services, item: Item, wall: float) -> Item:
    """Returns an item of the window: the same words, in the form that output has."""
    if not item.HasField("message"):
        return item
    message = Message()
    message.CopyFrom(item.message)
    message.id = message.id or services.ids.new(ids.MESSAGE, wall)
    message.status = message.status or ItemStatus.ITEM_STATUS_COMPLETED
    message.untyped = False
    if message.content.WhichOneof("form") == "text":
        part = ContentPart(input_text=InputText(text=message.content.text))
        message.content.parts.parts.append(part)
    return Item(message=message)
