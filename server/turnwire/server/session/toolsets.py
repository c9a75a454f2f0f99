"""Tool sets kept once: clients resend the same 20 to 40 KB of tools every turn, so a set is bytes under a hash.

A set is checked, parsed and resolved once, however many turns, lanes and sessions use it.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Final

from turnwire.v1.tool_pb2 import ToolSet


class Tools:
    """One set of tools; a value, compared by identity since equal sets are the same object."""

    __slots__ = ("__weakref__", "_parsed", "checked", "data", "digest", "hosted")

    def __init__(self, data: bytes, digest: bytes) -> None:
        """Takes the serialized ToolSet and its hash."""
        self.data = data
        self.digest = digest
        self.checked = False
        """True once policy found the definitions valid."""
        self.hosted: frozenset[str] = frozenset()
        """Names of the tools that the server runs; set when checked."""
        self._parsed: ToolSet | None = None

    def parsed(self) -> ToolSet:
        """Returns the set as a message, which must not be changed."""
        if self._parsed is None:
            self._parsed = ToolSet.FromString(self.data)
        return self._parsed


NO_TOOLS: Final = Tools(b"", b"")
"""The set without tools."""
NO_TOOLS.checked = True


class ToolSets:
    """Interns tool sets; a set lives as long as a state or a request refers to it."""

    def __init__(self) -> None:
        """Starts empty."""
        self._sets: weakref.WeakValueDictionary[bytes, Tools] = weakref.WeakValueDictionary()

    def intern(self, tools: ToolSet) -> Tools:
        """Returns the one object for a set; costs a serialization and a hash."""
        if not tools.tools:
            return NO_TOOLS
        # Deterministic, since a header map of an MCP tool would otherwise give equal sets different hashes.
        data = tools.SerializeToString(deterministic=True)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        known = self._sets.get(digest)
        if known is None:
            known = self._sets[digest] = Tools(data, digest)
        return known
