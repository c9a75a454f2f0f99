"""What conversations cost in memory, and how much the stages of turns looked at, for Prometheus.

Above it: `app`. Below it: the core's own counts, read when somebody looks; nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnwire.server.session.budget import Budget
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.visits import STAGES, Visits

_GAUGES: Final = {
    "turnwire_kept_bytes": "Bytes kept for continuation by all sessions together, shared history counted once.",
    "turnwire_known_conversations": "Points of conversations that requests without an id can go on from.",
    "turnwire_known_bytes": "Bytes of items of these, shared history counted once.",
}


class KeptMetrics(Collector):
    """Tells what is kept. Read on the event loop's thread only."""

    def __init__(
        self, registry: CollectorRegistry, budget: Budget, conversations: Conversations | None, visits: Visits
    ) -> None:
        """Takes what there is to tell, and registers."""
        self._budget = budget
        self._conversations = conversations
        self._visits = visits
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Yields all families as of now."""
        known = self._conversations
        values = (
            self._budget.shared.total,
            0 if known is None else len(known),
            0 if known is None else known.kept_bytes,
        )
        for (name, text), value in zip(_GAUGES.items(), values, strict=True):
            yield GaugeMetricFamily(name, text, value)
        family = CounterMetricFamily(
            "turnwire_visited_items", "Items that the stages of turns looked at.", labels=("stage",)
        )
        for stage in STAGES:
            family.add_metric((stage,), self._visits.items[stage])
        yield family
