"""What a record of the journal says: a message-pack array, so that new fields go to the end and old files can be read.

Above it: `writing`, which makes records of states, the database, which keeps them, and `reading`, which makes states of
them again. Below it: msgspec. Integers name segments of transcripts within one data directory; 0 is the empty one.
"""

from __future__ import annotations

from typing import Final

import msgspec

EMPTY_SEGMENT: Final = 0
"""Names the transcript in which nothing was said yet."""


class EntryRecord(msgspec.Struct, array_like=True, gc=False):
    """An item of a transcript."""

    data: bytes
    origin: int
    tokens: int
    opened: bytes | None = None


class TokensRecord(msgspec.Struct, array_like=True, gc=False):
    """The tokens of a pass, in machine order: a data directory stays on machines of one kind."""

    rendered: bytes
    sampled: bytes
    logprobs: bytes
    codes: str
    """Type codes of the three arrays."""
    template_hash: str
    tokenizer_hash: str
    weight_version: str


class SegmentRecord(msgspec.Struct, array_like=True, gc=False):
    """What one request or one pass added to a transcript."""

    id: int
    parent: int
    entries: list[EntryRecord]
    open_calls: list[tuple[str, str]]
    """Open after it."""
    turns: int
    """Model turns that it holds."""
    truncated: bool
    chain: str
    """Key of the chain that begins here; empty where the parent's goes on."""
    tokens: TokensRecord | None = None


class ListingRecord(msgspec.Struct, array_like=True, gc=False):
    """The tools of an MCP server."""

    label: str
    digest: bytes


class StateRecord(msgspec.Struct, array_like=True, gc=False):
    """A response: what is new, and names of the rest."""

    id: str
    principal: str
    lane: str
    parent_id: str
    model: str
    created_at: float
    completed_at: float | None
    status: int
    settings: bytes
    """Digest of the settings."""
    tools: bytes
    """Digest of the tool set; empty for none."""
    head: int
    before: int
    resent: int
    input: list[EntryRecord] | None
    """None where it is what the segment `before` holds."""
    usage: bytes | None
    context_tokens: int
    error: bytes | None
    incomplete: bytes | None
    listings: list[ListingRecord]
    approvals: list[tuple[str, bool, str]]
    unfinished: list[EntryRecord]
    continuable: bool
    segments: list[SegmentRecord]
    """Those that no earlier record holds, each after its parent."""
    blobs: list[tuple[bytes, bytes]]
    """What the digests stand for, where no earlier record of the same file says it."""
    earlier: int = EMPTY_SEGMENT
    """What was said before a compaction in the middle of the response."""


class SpentRecord(msgspec.Struct, array_like=True, gc=False):
    """A line of the ledger."""

    response_id: str
    passes: int
    door: str
    principal: str
    model: str
    created_at: float
    ended_at: float
    outcome: str
    code: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    estimated: bool
    price: float | None
    """None for a model without a price."""
    currency: str
    end_user: str
    labels: dict[str, str]
    metadata: dict[str, str]
    times: tuple[float, float, float | None, float, float, float, float, float]
    """Stage times in seconds, in the order of the fields of `turnwire.v1.StageTimes`."""


class Kept(msgspec.Struct, array_like=True, tag="k", gc=False):
    """What a response cost, what it stands for, or both."""

    spent: SpentRecord | None
    state: StateRecord | None


class Deleted(msgspec.Struct, array_like=True, tag="d", gc=False):
    """A client deleted a response."""

    principal: str
    response_id: str


class Probed(msgspec.Struct, array_like=True, tag="p", gc=False):
    """Nothing: somebody found out whether the journal can be written again."""

    at: float


Record = Kept | Deleted | Probed

_ENCODER: Final = msgspec.msgpack.Encoder()
_RECORDS: Final = msgspec.msgpack.Decoder(Record)
_STATES: Final = msgspec.msgpack.Decoder(StateRecord)
_SEGMENTS: Final = msgspec.msgpack.Decoder(SegmentRecord)


class UnreadableRecord(Exception):
    """Bytes that are none of this version's records."""


def encode(record: Record | StateRecord | SegmentRecord) -> bytes:
    """Writes a record."""
    return _ENCODER.encode(record)


def decode(data: bytes) -> Record:
    """Reads a record of the journal; raises UnreadableRecord."""
    try:
        return _RECORDS.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(str(error)) from error


def decode_state(data: bytes) -> StateRecord:
    """Reads what the database keeps of a response; raises UnreadableRecord."""
    try:
        return _STATES.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(str(error)) from error


def decode_segment(data: bytes) -> SegmentRecord:
    """Reads what the database keeps of a segment; raises UnreadableRecord."""
    try:
        return _SEGMENTS.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(str(error)) from error
