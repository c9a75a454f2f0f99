"""Tool sets kept once: clients resend the same 20 to 40 KB of tools every turn, so a set is bytes under a hash.

A set is checked, parsed and resolved once, however many turns, lanes and sessions use it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping
from typing import Final

from turnwire.server.session.hosted import Target, own_target
from turnwire.v1.tool_pb2 import ToolSet


class Tools:
    """One set of tools; a value, compared by identity since equal sets are the same object."""

    __slots__ = (
        "__weakref__",
        "_namespaced",
        "_parsed",
        "checked",
        "data",
        "digest",
        "hosted",
        "offers",
        "servers",
        "targets",
    )

    def __init__(self, data: bytes, digest: bytes) -> None:
        """Takes the serialized ToolSet and its hash."""
        self.data = data
        self.digest = digest
        self.checked = False
        """True once policy found the definitions valid."""
        self.hosted: frozenset[str] = frozenset()
        """Names of the functions that the server runs; set when checked."""
        self.servers: tuple[str, ...] = ()
        """Labels of the MCP servers whose tools have to be listed; set when checked."""
        self.targets: Mapping[str, Target] = {}
        """What the hosted functions stand for, where they are not the server's own."""
        self.offers: dict[tuple[bytes, ...], Tools] = {}
        """What the model was offered of this set, by the listings of its servers. A memo."""
        self._parsed: ToolSet | None = None
        self._namespaced: Mapping[str, tuple[str, str]] | None = None

    def parsed(self) -> ToolSet:
        """Returns the set as a message, which must not be changed."""
        if self._parsed is None:
            self._parsed = ToolSet.FromString(self.data)
        return self._parsed

    def split(self, name: str) -> tuple[str, str]:
        """Returns the namespace and the name of a tool as it was declared; no namespace where it has none.

        Args:
            name: What the model called: for a tool of a namespace both names with a point between.
        """
        if "." not in name:
            return "", name
        if self._namespaced is None:
            self._namespaced = {
                f"{group.namespace.name}.{inner}": (group.namespace.name, inner)
                for group in self.parsed().tools
                if group.WhichOneof("kind") == "namespace"
                for tool in group.namespace.tools
                if (inner := tool.function.name or tool.custom.name)
            }
        return self._namespaced.get(name, ("", name))

    def target(self, name: str) -> Target:
        """Returns what a hosted function stands for."""
        return self.targets.get(name) or own_target(name)


NO_TOOLS: Final = Tools(b"", b"")
"""The set without tools."""
NO_TOOLS.checked = True


class ToolSets:
    """Interns tool sets; a set lives as long as a state or a request refers to it."""

    def __init__(self, *, cached: bool = True) -> None:
        """Starts empty; one that caches nothing makes a new object of every set, which is checked and parsed again."""
        self._cached = cached
        self._sets: weakref.WeakValueDictionary[bytes, Tools] = weakref.WeakValueDictionary()

    def intern(self, tools: ToolSet) -> Tools:
        """Returns the one object for a set; costs a serialization and a hash."""
        if not tools.tools:
            return NO_TOOLS
        # Deterministic, since a header map of an MCP tool would otherwise give equal sets different hashes.
        data = tools.SerializeToString(deterministic=True)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        known = self._sets.get(digest) if self._cached else None
        if known is None:
            known = self._sets[digest] = Tools(data, digest)
        return known

    def again(self, tools: Tools) -> Tools:
        """Returns a set that another turn takes from the one before it."""
        return tools if self._cached or tools is NO_TOOLS else Tools(tools.data, tools.digest)

    def offered(self, tools: ToolSet, targets: Mapping[str, Target]) -> Tools:
        """Returns a set to be offered to the model: checked, with what its hosted functions stand for.

        It is not interned, since equal sets may stand for different things; whoever makes it keeps it.
        """
        data = tools.SerializeToString(deterministic=True)
        made = Tools(data, hashlib.blake2b(data, digest_size=16).digest() if data else b"")
        made.checked = True
        made.hosted = frozenset(targets)
        made.targets = targets
        return made
