"""How much each stage of a turn looked at: the proof that a turn costs what is new, and never the history.

Above it: every stage, which notes what it visits. Below it: nothing. It is always on, since a note is two additions,
and it says what a clock cannot: a stage that walks the history is seen on any machine, however fast that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

STAGES: Final = (
    "match",
    "decode",
    "resolve",
    "validate",
    "pair",
    "count",
    "classify",
    "hydrate",
    "account",
    "render",
    "tokenize",
    "encode",
    "route",
    "compact",
    "truncate",
    "record",
)
"""What a request goes through, in the order of a turn. The size of a visit is bytes, but where it says tokens:

- match: items hashed to find the conversation that they go on with.
- decode: items parsed from their bytes and serialized again, where items are not kept; else none.
- resolve: models looked at to find the one that was named; of the server, as it is one answer for all sessions.
- validate: items checked. pair: items paired with calls. count: items counted by the server's own vocabulary; tokens.
- classify: items shown to the safety classifier.
- hydrate: items that came from the store, since nothing was in memory.
- account: items whose images and files were measured.
- render: items put into the model's format. tokenize: stretches of the prompt that became ids; tokens.
- encode: items written as JSON for a chat engine.
- route: upstreams looked at to find the chain's.
- record: items written to the journal.
- compact, truncate: items of the history gone through because it became too long; each starts a new prefix.
"""


_KNOWN: Final = frozenset(STAGES)


class Visits:
    """Counts by stage; what is noted of a session is noted of its server too.

    A note may come from any thread. No lock is taken: additions to what was counted before never give way to another
    thread half-way, and were one lost, a proof would be off by one.
    """

    __slots__ = ("_parent", "items", "sizes")

    def __init__(self, parent: Visits | None = None) -> None:
        """Starts at zero; what is noted here is noted with the parent too."""
        self._parent = parent
        self.items: Counter[str] = Counter()
        """Items visited, by stage."""
        self.sizes: Counter[str] = Counter()
        """Their size in the stage's unit."""

    def note(self, stage: str, items: int, size: int = 0) -> None:
        """Notes that a stage of `STAGES` looked at some items.

        Raises:
            KeyError: There is no such stage.
        """
        if stage not in _KNOWN:
            raise KeyError(stage)
        self.items[stage] += items
        self.sizes[stage] += size
        if self._parent is not None:
            self._parent.note(stage, items, size)

    def since(self, earlier: Mapping[str, int]) -> dict[str, int]:
        """Returns the items visited since a copy of `items` was taken, stages that visited none left out."""
        return {stage: more for stage, count in self.items.items() if (more := count - earlier.get(stage, 0))}
