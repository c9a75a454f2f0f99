"""Ids of responses, items, calls and sessions: a prefix that tells the kind, the time, and randomness.

The form is `PREFIX` + 8 hex digits of seconds since 1970 + 24 hex digits of entropy, so that ids of one kind sort by
time and cannot be guessed. Ids are opaque to clients; only their prefixes are promised. Entropy is passed in, so that
pure code can use this module and tests get the ids they expect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RESPONSE: Final = "resp_"
MESSAGE: Final = "msg_"
REASONING: Final = "rs_"
FUNCTION_CALL: Final = "fc_"
CUSTOM_CALL: Final = "ctc_"
HOSTED_CALL: Final = "mcp_"
CALL: Final = "call_"
SESSION: Final = "sess_"

_ENTROPY_BYTES: Final = 12


class IdSource:
    """Makes ids."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        """Takes a function that returns n random bytes, such as `os.urandom`."""
        self._entropy = entropy

    def new(self, prefix: str, now: float) -> str:
        """Returns a fresh id.

        Args:
            prefix: One of this module's constants.
            now: Seconds since 1970-01-01 UTC.
        """
        return f"{prefix}{int(now) & 0xFFFFFFFF:08x}{self._entropy(_ENTROPY_BYTES).hex()}"
