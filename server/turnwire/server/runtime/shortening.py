"""Server-side compaction: from a conversation at work to the window that it goes on with.

Above it: `carrier`. Below it: the rule of `policy.windows`, and the seals. Large conversations are gone through in a
thread. `compacting` does the same for clients that keep their conversations themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwire.server.policy.compaction import digest_message, read_digest, sealed_digest
from turnwire.server.policy.prepare import ITEM_OVERHEAD
from turnwire.server.policy.windows import window
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.threads import THREAD_BYTES
from turnwire.server.sealing import Purpose, Unreadable
from turnwire.server.session.effects import Compact, Compacted
from turnwire.server.session.marks import UNKNOWN
from turnwire.server.session.transcript import item_text
from turnwire.v1.item_pb2 import Item


async def compact_transcript(services: Services, effect: Compact) -> Compacted | None:
    """Compacts a conversation; None where there is nothing that could be said shorter. Safe to cancel."""
    effect.visits.note("compact", effect.transcript.length, effect.transcript.bytes)
    if effect.transcript.bytes > THREAD_BYTES:
        return await asyncio.to_thread(_compacted, services, effect)
    return _compacted(services, effect)


def _compacted(services: Services, effect: Compact) -> Compacted | None:
    def earlier(item: Item) -> Sequence[str] | None:
        data = services.seals.open(Purpose.COMPACTION, effect.principal, item.compaction.encrypted_content)
        return None if isinstance(data, Unreadable) else read_digest(data)

    transcript = effect.transcript
    found = window(transcript.walk(), transcript.open_calls, earlier, services.count_tokens, effect.budget)
    if found is None:
        return None
    message, resent = digest_message(found.lines), digest_message(found.sealed)
    conversations = services.conversations
    return Compacted(
        kept=found.kept,
        newest=found.newest,
        open_calls=transcript.open_calls,
        sealed=services.seals.seal(Purpose.COMPACTION, effect.principal, sealed_digest(found.sealed)),
        digest=message.SerializeToString(),
        mark=UNKNOWN if conversations is None else conversations.marker.mark(resent),
        tokens=services.count_tokens(item_text(message)) + ITEM_OVERHEAD,
    )
