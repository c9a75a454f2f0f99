"""Makes states of records again, sharing every segment of a transcript that is in memory still.

Above it: the durable store. Below it: the database, records, and the core's values.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from turnwire.server.session.calls import CallKey
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.hosted import Approval, Listing
from turnwire.server.session.state import State
from turnwire.server.session.toolsets import NO_TOOLS, ToolSets
from turnwire.server.session.transcript import Entry, Origin, Transcript
from turnwire.server.store.records import EntryRecord, SegmentRecord, StateRecord, TokensRecord, UnreadableRecord
from turnwire.server.store.writing import Segments
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import IncompleteDetails, ResponseError
from turnwire.v1.tool_pb2 import ToolSet


@dataclass(frozen=True, slots=True)
class Found:
    """A response as the database has it, with its transcripts; the rest is read when a state is made of it."""

    record: StateRecord
    transcript: Transcript
    before: Transcript
    resent: Transcript
    earlier: Transcript
    blobs: dict[bytes, bytes]
    """What the digests of the record stand for."""


Mark = Callable[[Item], bytes]
"""Marks an item by the key of this process; see `turnwire.server.session.marks`."""


def join(base: Transcript, rows: Iterable[SegmentRecord], segments: Segments, mark: Mark) -> Transcript:
    """Returns the transcript that some segments make.

    Args:
        base: What the first of them goes on from.
        rows: Segments, oldest first, each the parent of the next.
        segments: Where names are kept; those of the rows are added.
        mark: Marks their items anew: marks are by a key of the process that made them.
    """
    transcript = base
    for row in rows:
        made = Transcript(
            transcript,
            tuple(_marked(entry, mark) for entry in row.entries),
            frozenset(CallKey(*key) for key in row.open_calls),
            row.turns,
            None if row.tokens is None else _tokens(row.tokens),
            Chain(row.chain) if row.chain else None,
            truncated=row.truncated,
        )
        segments.name(made, row.id)
        transcript = made
    return transcript


def state_of(found: Found, tool_sets: ToolSets) -> State:
    """Makes the state; on the event loop's thread, since tool sets are interned."""
    record = found.record
    tools = tool_sets.intern(ToolSet.FromString(found.blobs[record.tools])) if record.tools else NO_TOOLS
    given = record.input
    return State(
        id=record.id,
        principal=record.principal,
        lane=record.lane,
        parent_id=record.parent_id,
        model=record.model,
        created_at=record.created_at,
        completed_at=record.completed_at,
        status=_status(record.status),
        settings=found.blobs[record.settings],
        tools=tools,
        transcript=found.transcript,
        input=found.before.new if given is None else tuple(map(_entry, given)),
        before=found.before,
        usage=record.usage,
        context_tokens=record.context_tokens,
        error=None if record.error is None else ResponseError.FromString(record.error),
        incomplete=None if record.incomplete is None else IncompleteDetails.FromString(record.incomplete),
        listings={each.label: Listing(each.label, found.blobs[each.digest]) for each in record.listings},
        approvals=tuple(Approval(*answer) for answer in record.approvals),
        unfinished=tuple(map(_entry, record.unfinished)),
        continuable=record.continuable,
        resent=found.resent,
        earlier=found.earlier,
    )


def _status(number: int) -> Any:
    return number


def _entry(record: EntryRecord) -> Entry:
    return Entry(record.data, Origin(record.origin), record.tokens, record.opened)


def _marked(record: EntryRecord, mark: Mark) -> Entry:
    entry = _entry(record)
    entry.mark = mark(entry.item())
    return entry


def _tokens(record: TokensRecord) -> TokenRecord:
    rendered, sampled = _numbers(record.codes[0], record.rendered), _numbers(record.codes[1], record.sampled)
    logprobs: array[float] = array("f" if record.codes[2] == "f" else "d", record.logprobs)
    return TokenRecord(rendered, sampled, logprobs, record.template_hash, record.tokenizer_hash, record.weight_version)


def _numbers(code: str, data: bytes) -> array[int]:
    for known in ("i", "I", "l", "L", "q", "Q"):
        if code == known:
            return array(known, data)
    msg = f"array of unknown type '{code}'"
    raise UnreadableRecord(msg)
