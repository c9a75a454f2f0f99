"""Where passes go: upstreams picked, failed, left, out and back; and reloads of the registry file.

Above it: the wiring, which hands it to pools and to whoever reloads. Below it: `families`. All of it happens on the
event loop's thread. Upstreams are labelled by their configured addresses, the first hundreds of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnwire.server.telemetry.families import OTHER, Bounded, Counter
from turnwire.v1.errors import ERRORS

MAX_UPSTREAMS: Final = 256
_LONGEST: Final = 256


class RoutingMetrics(Collector):
    """The counts of one server's upstreams."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Registers with a registry, by default one of its own."""
        registry = registry if registry is not None else CollectorRegistry()
        self._upstream = Bounded(MAX_UPSTREAMS, _LONGEST)
        self._picks = Counter(
            "turnwire_upstream_picks_total",
            "Passes sent to an upstream, those that moved there included.",
            ("upstream",),
        )
        self._failures = Counter(
            "turnwire_upstream_failures_total", "Passes that an upstream failed, by error code.", ("upstream", "code")
        )
        self._failovers = Counter(
            "turnwire_upstream_failovers_total",
            "Passes that left an upstream for another, before their first token or after it.",
            ("upstream", "when"),
        )
        self._ejections = Counter(
            "turnwire_upstream_ejections_total", "Times that an upstream was taken out for failing.", ("upstream",)
        )
        self._reloads = Counter(
            "turnwire_registry_reloads_total",
            "Times that the registry file was read again: applied, or refused for its mistakes.",
            ("outcome",),
        )
        self._joined: dict[str, int] = {}
        """How many pools an upstream is in."""
        self._out: set[str] = set()
        registry.register(self)

    def joined(self, upstream: str, /) -> None:
        """Counts an upstream as in use."""
        self._joined[upstream] = self._joined.get(upstream, 0) + 1

    def left(self, upstream: str, /) -> None:
        """Counts an upstream as not in use any more."""
        self._joined[upstream] -= 1
        if not self._joined[upstream]:
            del self._joined[upstream]
            self._out.discard(upstream)

    def picked(self, upstream: str, /) -> None:
        """Counts a pass."""
        self._picks.add(1, self._upstream(upstream))

    def failed(self, upstream: str, code: str, /) -> None:
        """Counts a failure."""
        self._failures.add(1, self._upstream(upstream), code if code in ERRORS else OTHER)

    def moved(self, upstream: str, begun: bool, /) -> None:
        """Counts a pass that moves on."""
        self._failovers.add(1, self._upstream(upstream), "begun" if begun else "not_begun")

    def health(self, upstream: str, well: bool, /) -> None:
        """Notes that an upstream goes out, or comes back."""
        if well:
            self._out.discard(upstream)
        else:
            self._out.add(upstream)
            self._ejections.add(1, self._upstream(upstream))

    def reloaded(self, outcome: str) -> None:
        """Counts a reload of the registry file."""
        self._reloads.add(1, outcome)

    def collect(self) -> Iterable[Metric]:
        """Yields all families as of now; only on the event loop's thread."""
        for family in (self._picks, self._failures, self._failovers, self._ejections, self._reloads):
            yield family.family()
        healthy = GaugeMetricFamily(
            "turnwire_upstream_healthy", "Whether an upstream is in use: 1, or 0 while it is out.", labels=("upstream",)
        )
        for upstream in list(self._joined)[:MAX_UPSTREAMS]:
            healthy.add_metric((upstream,), upstream not in self._out)
        yield healthy
