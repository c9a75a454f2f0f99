"""What safety classifiers do: flags, how long it takes, and what could not be classified.

Above it: the wiring. Below it: `families`. The local classifier tells of itself from any thread, so here is a lock.
Categories are those of the operator's file, or of the remote classifier, of which the first hundred are told apart.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnwire.server.session.screens import Flagged
from turnwire.server.telemetry.families import OTHER, Bounded, Counter, Histogram

MAX_CATEGORIES: Final = 100
CLASSIFIERS: Final = ("rules", "remote")
KINDS: Final = ("timeout", "unreachable", "status", "garbage", "crash")

_SECONDS: Final = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class SafetyMetrics(Collector):
    """The counts of one server's classifiers. Safe to use from several threads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers with a registry."""
        self._lock = threading.Lock()
        self._category = Bounded(MAX_CATEGORIES)
        self._flags = Counter(
            "turnwire_flags_total",
            "What classifiers flagged, once per response: that stopped it, or was counted.",
            ("category", "direction", "action"),
        )
        self._seconds = Histogram(
            "turnwire_classifier_seconds",
            "How long classifiers took: rules for the input of a request, remote ones for an answer.",
            _SECONDS,
            "classifier",
            CLASSIFIERS,
        )
        self._failures = Counter(
            "turnwire_classifier_failures_total",
            "Questions that a remote classifier did not answer, by what happened, and whether the response went on.",
            ("kind", "outcome"),
        )
        registry.register(self)

    def flagged(self, flag: Flagged) -> None:
        """Counts a flag."""
        with self._lock:
            labels = (self._category(flag.category), flag.direction.value, "stopped" if flag.stopped else "counted")
            self._flags.add(1, *labels)

    def screened(self, seconds: float) -> None:
        """Counts a request that the rules were applied to."""
        with self._lock:
            self._seconds.distributions["rules"].observe(seconds)

    def classified(self, seconds: float) -> None:
        """Counts an answer of a remote classifier."""
        with self._lock:
            self._seconds.distributions["remote"].observe(seconds)

    def unclassified(self, kind: str, *, went_on: bool) -> None:
        """Counts a question without an answer."""
        with self._lock:
            self._failures.add(1, kind if kind in KINDS else OTHER, "open" if went_on else "closed")

    def collect(self) -> Iterable[Metric]:
        """Yields the families as of now."""
        with self._lock:
            families = [self._flags.family(), self._seconds.family(), self._failures.family()]
        yield from families

    def describe(self) -> Iterable[Metric]:
        """Yields the families."""
        return self.collect()
