"""Conversations that a server has in memory, found again by what was said in them.

Above it: policy, which looks up what a request sends once more, and the endings of responses, which remember where a
conversation stands. Below it: marks, and the counting of shared bytes. One object serves all sessions of a server. It
holds transcripts and never answers to an id: whoever finds a conversation has sent all of it, under the same principal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.server.session.budget import Budget, SharedBytes
from turnwire.server.session.hosted import Approval, Listing
from turnwire.server.session.marks import NOTHING_SAID, UNKNOWN, Marker, follow
from turnwire.server.session.state import State
from turnwire.server.session.transcript import Transcript

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConversationLimits:
    """How much is remembered. Nothing of it outlives the process."""

    max_conversations: int = 16_384
    """Points at which conversations stand; 0 remembers none, and no request is matched."""
    max_bytes: int = 256 * MIB
    """Bytes of their items, shared history counted once."""
    max_age: float = 900.0
    """Seconds since a point was reached or gone on from: people think longer than that, agents do not."""


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """A point at which a conversation stands, and what going on from it starts with."""

    response_id: str
    """The response that stood there last."""
    principal: str
    model: str
    digest: bytes
    """The running hash of what the client has seen of it."""
    transcript: Transcript
    context_tokens: int
    listings: Mapping[str, Listing]
    approvals: tuple[Approval, ...]

    @property
    def key(self) -> tuple[str, str, bool, bytes]:
        """What it is found by."""
        return (self.principal, self.model, self.transcript.truncated, self.digest)


@dataclass(frozen=True, slots=True)
class Match:
    """How much of a request is known."""

    items: int
    """So many items at the request's beginning."""
    conversation: Conversation


class Conversations:
    """Finds conversations by their items. Finding is safe from any thread, all else belongs to the event loop's."""

    def __init__(self, key: bytes, limits: ConversationLimits | None = None, budget: Budget | None = None) -> None:
        """Takes the key of the marks, 16 to 64 random bytes, the limits, and the budget of all that is kept."""
        self.marker: Final = Marker(key)
        self.limits: Final = limits or ConversationLimits()
        self._known: OrderedDict[tuple[str, str, bool, bytes], tuple[Conversation, float]] = OrderedDict()
        """With the moment each was used last, the one unused for the longest time first."""
        self._points: dict[str, tuple[tuple[str, str, bool, bytes], ...]] = {}
        """What is known of each response."""
        self._shared = SharedBytes(budget)
        if budget is not None:
            budget.forget = self.shed

    def __len__(self) -> int:
        """Counts what is remembered."""
        return len(self._known)

    @property
    def kept_bytes(self) -> int:
        """Bytes of what is remembered, shared history counted once."""
        return self._shared.total

    def remember(self, state: State, now: float) -> None:
        """Remembers where a conversation stands, at a moment of the server's clock."""
        digest = state.transcript.digest
        if digest in (UNKNOWN, NOTHING_SAID) or not self.limits.max_conversations:
            return
        conversation = Conversation(
            state.id,
            state.principal,
            state.model,
            digest,
            state.transcript,
            state.context_tokens,
            state.listings,
            state.approvals,
        )
        self._shared.hold(conversation.transcript)
        key = conversation.key
        self._drop(key)
        self._known[key] = (conversation, now)
        self._points[state.id] = (*self._points.get(state.id, ()), key)
        self.expire(now)
        while len(self._known) > self.limits.max_conversations or self._shared.total > self.limits.max_bytes:
            self.shed()

    def find(self, principal: str, model: str, marks: Sequence[bytes], *, truncated: bool) -> Match | None:
        """Returns the longest conversation that some items begin with; None where there is none.

        Args:
            principal: Whose it must be.
            model: The model that it must have been held with.
            marks: Of the items, oldest first.
            truncated: Whether one may be found that is remembered without its beginning.
        """
        if not self._known:
            return None
        digests: list[bytes] = []
        digest = NOTHING_SAID
        for mark in marks:
            digest = follow(digest, (mark,))
            if not digest:
                break
            digests.append(digest)
        for count in range(len(digests), 0, -1):
            for short in (False, True) if truncated else (False,):
                found = self._known.get((principal, model, short, digests[count - 1]))
                if found is not None:
                    return Match(count, found[0])
        return None

    def used(self, conversation: Conversation, now: float) -> None:
        """Hears that somebody went on from a conversation."""
        if conversation.key in self._known:
            self._known[conversation.key] = (conversation, now)
            self._known.move_to_end(conversation.key)

    def forget(self, response_id: str) -> None:
        """Forgets where a response ended and where it paused, since it was deleted."""
        for key in self._points.get(response_id, ()):
            self._drop(key)

    def expire(self, now: float) -> None:
        """Forgets what nobody went on from for too long."""
        while self._known:
            _, (_, used) = next(iter(self._known.items()))
            if now - used < self.limits.max_age:
                return
            self.shed()

    def shed(self) -> bool:
        """Forgets what was unused for the longest time; returns whether there was anything."""
        if not self._known:
            return False
        self._drop(next(iter(self._known)))
        return True

    def _drop(self, key: tuple[str, str, bool, bytes]) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            response_id = known[0].response_id
            others = tuple(point for point in self._points.pop(response_id) if point != key)
            if others:
                self._points[response_id] = others
            self._shared.release(known[0].transcript)
