"""Names of functions on the wire: what every upstream takes, and back.

Above it: `history`, `tools` and `body`. Below it: nothing. Upstreams take 1 to 64 characters of `[A-Za-z0-9_-]`;
clients may use dots, colons, twice the length, and namespaces. The name of a tool depends on the tool alone, so that
calls in the history keep it whatever else is declared.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

_MAX: Final = 64
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_DIGITS: Final = 8


def full_name(namespace: str, name: str) -> str:
    """Returns the name by which clients tell a tool apart: with its namespace, joined by a dot."""
    return f"{namespace}.{name}" if namespace else name


@lru_cache(maxsize=4096)
def wire_name(full: str) -> str:
    """Returns the function name that stands for a tool's full name; a dot becomes two underscores.

    Whatever else does not fit is replaced, and a hash of the whole is added then, so that different tools keep
    different names. Only `a.b` and `a__b` are the same; a set that declares both cannot be sent.
    """
    dotless = full.replace(".", "__")
    kept = _FOREIGN.sub("_", dotless)
    if kept == dotless and 0 < len(kept) <= _MAX:
        return kept
    digest = hashlib.blake2b(full.encode(), digest_size=_HASH_DIGITS // 2).hexdigest()
    return f"{kept[: _MAX - _HASH_DIGITS - 1]}_{digest}"
