"""What clients send that the server carries without reading it, and how their sealed items could be read, counted.

Above it: policy, which reports from whatever thread it runs in, so that here is a lock. Below it: `families`. Labels
are bounded: types and keys that the public API has are told apart, all others, which clients may make up, are `other`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnwire.server.telemetry.families import OTHER, Counter

KNOWN: Final[dict[str, frozenset[str]]] = {
    "item": frozenset(
        {
            "additional_tools",
            "code_interpreter_call",
            "compaction_summary",
            "configuration_update",
            "context_compaction",
            "file_search_call",
            "ghost_snapshot",
            "image_generation_call",
            "program",
            "program_output",
        }
    ),
    "part": frozenset({"computer_screenshot", "input_audio", "text"}),
    "tool": frozenset(
        {
            "code_interpreter",
            "computer",
            "computer_use_preview",
            "file_search",
            "image_generation",
            "programmatic_tool_calling",
            "tool_search",
            "web_search_2025_08_26",
            "web_search_preview",
            "web_search_preview_2025_03_11",
        }
    ),
    "field": frozenset({"access_programs", "background_options", "image", "moderation", "personality"}),
}
"""Types and keys of the public API that are carried, by kind. Those of `item_field` are the item's typed kind."""

KINDS: Final = (*KNOWN, "item_field")
OUTCOMES: Final = ("opened", "foreign", "damaged")
PURPOSES: Final = ("reasoning", "compaction")


class CarriedMetrics(Collector):
    """Counts what is carried. Safe to use from several threads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers with a registry."""
        self._lock = threading.Lock()
        self._opaque = Counter(
            "turnwire_opaque_total",
            "What clients sent that is carried without being read: items, parts, tools (once per set), keys of the body"
            " (field) and of typed items (item_field), by type.",
            ("kind", "type"),
        )
        self._unsealed = Counter(
            "turnwire_unsealed_total",
            "Sealed items that clients replayed, by whether they could be opened: foreign ones are of other keys.",
            ("purpose", "outcome"),
        )
        registry.register(self)

    def opaque(self, kind: str, type_: str) -> None:
        """Counts something that is carried; see `policy.replays.Notices`."""
        kind = kind if kind in KINDS else OTHER
        known = KNOWN.get(kind)
        # The kinds of typed items are those of the schema.
        label = type_ if known is None or type_ in known else OTHER
        with self._lock:
            self._opaque.add(1, kind, label)

    def unsealed(self, purpose: str, outcome: str) -> None:
        """Counts a sealed item."""
        labels = (purpose if purpose in PURPOSES else OTHER, outcome if outcome in OUTCOMES else OTHER)
        with self._lock:
            self._unsealed.add(1, *labels)

    def collect(self) -> Iterable[Metric]:
        """Yields the families as of now."""
        with self._lock:
            families = [self._opaque.family(), self._unsealed.family()]
        yield from families

    def describe(self) -> Iterable[Metric]:
        """Yields the families."""
        return self.collect()
