"""Makes records of states: only what is new, and names of what was recorded before.

Above it: the recorder. Below it: records, and the core's values. A segment of a transcript carries the name under which
it was recorded, so that whoever goes on from it walks what is new and no further.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from itertools import takewhile
from typing import Final
from weakref import WeakValueDictionary

from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.state import State
from turnwire.server.session.transcript import EMPTY, Entry, Transcript
from turnwire.server.session.visits import Visits
from turnwire.server.store.records import (
    EMPTY_SEGMENT,
    EntryRecord,
    ListingRecord,
    SegmentRecord,
    StateRecord,
    TokensRecord,
)


class Segments:
    """The segments of transcripts that have a name and are in memory. Looking is safe from any thread."""

    def __init__(self, first: int) -> None:
        """Takes the next name to give."""
        self.next: int = first
        self._alive: WeakValueDictionary[int, Transcript] = WeakValueDictionary()

    def find(self, name: int) -> Transcript | None:
        """Returns a segment that is in memory."""
        return EMPTY if name == EMPTY_SEGMENT else self._alive.get(name)

    def name(self, segment: Transcript, name: int) -> None:
        """Gives a segment its name."""
        segment.name = name
        self._alive[name] = segment


class StateWriter:
    """Makes records; what it makes counts as recorded once `done` is called."""

    def __init__(self, segments: Segments, visits: Visits | None = None) -> None:
        """Takes where names are given, and where what is written is counted."""
        self._segments = segments
        self._visits = visits or Visits()
        self._file = -1
        self._written: set[bytes] = set()
        """Digests whose bytes are in the current file."""
        self._new: dict[int, tuple[Transcript, int]] = {}
        """What the last record names, by the identity of the segment."""
        self._blobs: Final[dict[bytes, bytes]] = {}
        self._digests: dict[bytes, bytes] = {}
        """Digests of settings in the current file: those of a chain are the same object, which Python has hashed."""

    def record(self, state: State, file: int) -> StateRecord:
        """Makes the record of a state; costs what no earlier record holds.

        Args:
            state: The response.
            file: The number of the journal's file that it will be written to.
        """
        if file != self._file:
            self._file = file
            self._written.clear()
            self._digests.clear()
        self._new.clear()
        self._blobs.clear()
        segments: list[SegmentRecord] = []
        head, before, resent, earlier = (
            self._named(transcript, segments)
            for transcript in (state.transcript, state.before, state.resent, state.earlier)
        )
        if state.tools.data:
            self._blob(state.tools.digest, state.tools.data)
        for listing in state.listings.values():
            self._blob(listing.digest, listing.data)
        return StateRecord(
            id=state.id,
            principal=state.principal,
            lane=state.lane,
            parent_id=state.parent_id,
            model=state.model,
            created_at=state.created_at,
            completed_at=state.completed_at,
            status=state.status,
            settings=self._settings(state.settings),
            tools=state.tools.digest,
            head=head,
            before=before,
            resent=resent,
            input=None if state.before.new is state.input else _entries(state.input),
            usage=state.usage,
            context_tokens=state.context_tokens,
            error=None if state.error is None else state.error.SerializeToString(),
            incomplete=None if state.incomplete is None else state.incomplete.SerializeToString(),
            listings=[ListingRecord(label, listing.digest) for label, listing in state.listings.items()],
            approvals=[(answer.request_id, answer.approve, answer.reason) for answer in state.approvals],
            unfinished=_entries(state.unfinished),
            continuable=state.continuable,
            segments=segments,
            blobs=list(self._blobs.items()),
            earlier=earlier,
        )

    def done(self) -> None:
        """Hears that the last record was written."""
        for segment, name in self._new.values():
            self._segments.name(segment, name)
        self._segments.next += len(self._new)
        self._written.update(self._blobs)
        # Held no longer than needed: what is in memory cannot leave the database.
        self._new.clear()
        self._blobs.clear()

    def _named(self, transcript: Transcript, segments: list[SegmentRecord]) -> int:
        new = list(takewhile(self._unnamed, transcript.segments()))
        for segment in reversed(new):
            name = self._segments.next + len(self._new)
            self._visits.note("record", len(segment.new), segment.own_bytes)
            self._new[id(segment)] = (segment, name)
            segments.append(self._segment(segment, name))
        return self._name(transcript)

    def _unnamed(self, segment: Transcript) -> bool:
        return not segment.name and segment is not EMPTY and id(segment) not in self._new

    def _name(self, segment: Transcript | None) -> int:
        if segment is None or segment is EMPTY:
            return EMPTY_SEGMENT
        return segment.name or self._new[id(segment)][1]

    def _segment(self, segment: Transcript, name: int) -> SegmentRecord:
        parent = segment.parent
        chain = segment.chain
        begins = chain is not None and (parent is None or parent.chain is not chain)
        return SegmentRecord(
            id=name,
            parent=self._name(parent),
            entries=_entries(segment.new),
            open_calls=sorted(segment.open_calls),
            turns=segment.turns - (parent.turns if parent else 0),
            truncated=segment.truncated,
            chain=chain.key if begins and chain is not None else "",
            tokens=None if segment.record is None else _tokens(segment.record),
        )

    def _settings(self, data: bytes) -> bytes:
        digest = self._digests.get(data)
        if digest is None:
            digest = self._digests[data] = hashlib.blake2b(data, digest_size=16).digest()
        self._blob(digest, data)
        return digest

    def _blob(self, digest: bytes, data: bytes) -> None:
        if digest not in self._written:
            self._blobs[digest] = data


def _entries(entries: Iterable[Entry]) -> list[EntryRecord]:
    return [EntryRecord(entry.data, entry.origin, entry.tokens, entry.opened) for entry in entries]


def _tokens(record: TokenRecord) -> TokensRecord:
    arrays: tuple[array[int], array[int], array[float]] = (record.rendered, record.sampled, record.logprobs)
    rendered, sampled, logprobs = (values.tobytes() for values in arrays)
    return TokensRecord(
        rendered=rendered,
        sampled=sampled,
        logprobs=logprobs,
        codes="".join(values.typecode for values in arrays),
        template_hash=record.template_hash,
        tokenizer_hash=record.tokenizer_hash,
        weight_version=record.weight_version,
    )
