"""The window that a conversation goes on with after the server compacted it, and what the client is given to resend.

Above it: the runtime, in the middle of a response. Below it: the rule of `compaction`. The window holds, in this order:

- messages of people and developers, word for word, and what else the rule keeps;
- the digest of all else, in place of the compaction item;
- the newest input, word for word, with the calls that it answers and those that are open: so that the model has what it
  is to go on from.

The client's item is sealed with lines for the messages too, clipped: who resends the item need not send anything that
came before it. Who sends it all the same loses nothing but room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from turnwire.server.policy.compaction import compact
from turnwire.server.session.calls import CallKey, answered_by, opened_by
from turnwire.server.session.transcript import Entry, Origin
from turnwire.v1.item_pb2 import Item, Role


@dataclass(frozen=True, slots=True)
class Window:
    """A conversation in a shorter form."""

    kept: tuple[Entry, ...]
    """What stands before the digest."""
    lines: tuple[str, ...]
    """The digest."""
    sealed: tuple[str, ...]
    """The digest that the client is given, which stands for what is kept too."""
    newest: tuple[Entry, ...]
    """What stands behind it."""


def window(
    entries: Iterable[Entry],
    open_calls: frozenset[CallKey],
    earlier: Callable[[Item], Sequence[str] | None],
    count: Callable[[str], int],
    budget: int,
) -> Window | None:
    """Returns the window of a conversation; None where there is nothing that could be said shorter.

    Args:
        entries: All of it, oldest first.
        open_calls: Calls that are open at its end.
        earlier: Returns the lines of an earlier compaction's item; None where it cannot be read.
        count: Counts the tokens of a text.
        budget: Tokens of the digest.
    """
    said = [(entry, _read(entry)) for entry in entries]
    start = next((at for at in range(len(said), 0, -1) if _of_model(*said[at - 1])), 0)
    needed = {answered_by(item) for _, item in said[start:]} | open_calls
    newest = [entry for entry, item in said[:start] if (call := opened_by(item)) is not None and call in needed]
    newest += [entry for entry, item in said[start:] if not item.HasField("compaction_trigger")]
    stays = set(map(id, newest))
    old = {id(item): entry for entry, item in said if id(entry) not in stays}
    items = [item for entry, item in said if id(entry) not in stays]
    compacted = compact(items, earlier, count, budget=budget)
    if not compacted.lines:
        return None
    told = compact(items, earlier, count, messages=True, budget=budget)
    return Window(tuple(old[id(item)] for item in compacted.kept), compacted.lines, told.lines, tuple(newest))


def _read(entry: Entry) -> Item:
    """Returns an item as prompts read it, but for compactions, whose lines are wanted."""
    if entry.opened is None:
        return entry.item()
    sent = entry.sent()
    return sent if sent.HasField("compaction") else entry.item()


def _of_model(entry: Entry, item: Item) -> bool:
    if entry.origin in (Origin.MODEL, Origin.HOSTED):
        return True
    return item.message.role == Role.ROLE_ASSISTANT or item.HasField("reasoning") or opened_by(item) is not None
