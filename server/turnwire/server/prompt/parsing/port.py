"""The port of output parsers.

Above it: engines. Below it: `harmony.py` and `tagged.py`, which implement it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnwire.server.prompt.parsing.events import Event


class OutputParser(Protocol):
    """Reads one pass. However its ids are split into calls, the items are the same."""

    @property
    def reasoning_tokens(self) -> int:
        """Sampled tokens accounted to reasoning so far, framing included."""
        ...

    def feed(self, ids: Sequence[int], text: str | None = None) -> list[Event]:
        """Takes the next sampled ids.

        Args:
            ids: What was sampled; may be empty where the engine gives only text.
            text: Their text where the engine says it (stop strings are cut off there), else None: the parser decodes.
        """
        ...

    def finish(self, reason: str) -> list[Event]:
        """Ends the pass: what was held back is decided.

        Args:
            reason: `stop` where the model ended by itself; anything else (`length`, `content_filter`) leaves the open
                item open, so that it can be reported as incomplete.
        """
        ...
