"""Truncation: what a conversation is left without, so that it fits its model, by the public API's rule.

Above it: the runtime, for requests with `truncation: auto` that do not fit. Below it: transcripts and the pairing of
calls. Items are dropped from the beginning until the rest fits, and further by an eighth of the room, so that the next
turns go on from what is left instead of being cut, and rendered anew, one by one.

- The newest input stays: what came after the last item of the model's. So do the calls that it answers.
- A call goes with its output, and an output with its call.
- What developers and the system said goes last, only where nothing else is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnwire.server.session.calls import CallKey, answered_by, opened_by
from turnwire.server.session.transcript import Entry, Origin
from turnwire.v1.item_pb2 import Item, Role


@dataclass(frozen=True, slots=True)
class Truncated:
    """What is left of a conversation."""

    entries: tuple[Entry, ...]
    open_calls: frozenset[CallKey]
    tokens: int
    """Of the entries, by the server's own count."""


@dataclass(slots=True)
class _Said:
    """One item, with what decides about it."""

    entry: Entry
    model: bool
    lead: bool
    call: CallKey | None
    answer: CallKey | None
    dropped: bool = False


def truncate(entries: Iterable[Entry], open_calls: frozenset[CallKey], room: int) -> Truncated | None:
    """Returns a conversation without its beginning; None where what has to stay is too much.

    Args:
        entries: All of it, oldest first.
        open_calls: Calls that are open at its end.
        room: Tokens that its items may have, by the server's own count.
    """
    said = [_said(entry) for entry in entries]
    tokens = sum(each.entry.tokens for each in said)
    newest = next((index for index in range(len(said), 0, -1) if said[index - 1].model), 0)
    answered = {each.answer for each in said[newest:] if each.answer is not None}
    old = [each for each in said[:newest] if each.call is None or each.call not in answered]
    outputs = {each.answer: each for each in old if each.answer is not None}
    for leads in (False, True):
        for each in old:
            if tokens <= room:
                break
            if each.dropped or each.lead != leads:
                continue
            for gone in (each, outputs.get(each.call) if each.call is not None else None):
                if gone is not None and not gone.dropped:
                    gone.dropped = True
                    tokens -= gone.entry.tokens
    if tokens > room:
        return None
    _drop_pairless(said)
    kept = tuple(each.entry for each in said if not each.dropped)
    lost = {each.call for each in said if each.dropped and each.call is not None}
    return Truncated(kept, open_calls - lost, sum(entry.tokens for entry in kept))


def _drop_pairless(said: Sequence[_Said]) -> None:
    """Drops outputs whose calls were dropped."""
    lost = {each.call for each in said if each.dropped and each.call is not None}
    for each in said:
        if each.answer is not None and each.answer in lost:
            each.dropped = True


def _said(entry: Entry) -> _Said:
    item = entry.item()
    return _Said(entry, _of_model(entry, item), _leads(item), opened_by(item), answered_by(item))


def _of_model(entry: Entry, item: Item) -> bool:
    if entry.origin in (Origin.MODEL, Origin.HOSTED):
        return True
    # Replayed by the client.
    return item.message.role == Role.ROLE_ASSISTANT or item.HasField("reasoning") or opened_by(item) is not None


def _leads(item: Item) -> bool:
    return item.message.role in (Role.ROLE_SYSTEM, Role.ROLE_DEVELOPER)
