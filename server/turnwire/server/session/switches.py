"""Which optimizations of a turn are on. All are; each can be switched off to measure what it is good for.

Above it: whoever does something once instead of every turn, and asks here whether that is wanted. Below it: nothing.
The answers of a server are the same either way. What other rooms switch off for themselves has no place here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Switches:
    """The optimizations that a turn's own stages ask about; a value."""

    token_cache: bool = True
    """A prompt goes on from the tokens of the chain's last one; else all of it is rendered and tokenized again."""
    item_cache: bool = True
    """Items are decoded once, and written as JSON for a chat engine once; else all of the history is, every turn."""
    tool_cache: bool = True
    """Equal tool sets are parsed, checked and encoded once; else every turn's are."""
    incremental_validation: bool = True
    """New items are checked and paired; else all of the conversation is, every turn."""
    delta_batching: bool = True
    """What is ready travels together; else each event is a message of its own, and waits for no other."""

    @classmethod
    def without(cls, names: Iterable[str]) -> Switches:
        """Returns all but those named, as `--disable` names them; names of other optimizations are passed over."""
        wanted = {name.replace("-", "_") for name in names}
        return cls(**{each.name: False for each in fields(cls) if each.name in wanted})


ALL_ON: Final = Switches()
"""How a server works that was told nothing."""
