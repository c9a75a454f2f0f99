"""The journal and what consumes it, counted.

Above it: the wiring, which hands it to the recorder and shows it its consumer. Below it: `families`.
Records are counted on the event loop's thread; the consumer's own numbers are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnwire.server.telemetry.families import Counter, Histogram

BOUNDS: Final = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.005, 0.02, 0.1, 1.0)
"""Upper ends of the buckets of write times, in seconds: from a write into memory to a flush of a slow disk."""


class Consuming(Protocol):
    """What consumes the journal."""

    failures: int
    rejected: int

    @property
    def lag_bytes(self) -> int:
        """Bytes that it is behind."""
        ...


class LedgerMetrics(Collector):
    """The counts of one server's journal."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Registers with a registry, by default one of its own."""
        registry = registry if registry is not None else CollectorRegistry()
        self._records = Counter("turnwire_journal_records_total", "Records written to the journal.")
        self._bytes = Counter("turnwire_journal_bytes_total", "Bytes of these records.")
        self._errors = Counter(
            "turnwire_journal_errors_total", "Records that could not be written; by default their responses fail."
        )
        self._seconds = Histogram(
            "turnwire_journal_append_seconds", "Time to write a record, before its response is told to be done.", BOUNDS
        )
        self._consumer: Consuming | None = None
        registry.register(self)

    def watch(self, consumer: Consuming) -> None:
        """Takes what consumes the journal."""
        self._consumer = consumer

    def appended(self, size: int, seconds: float) -> None:
        """Counts a record; see `ledger.recorder.Watch`."""
        self._records.add(1)
        self._bytes.add(size)
        self._seconds.distributions[""].observe(seconds)

    def not_appended(self) -> None:
        """Counts a record that could not be written."""
        self._errors.add(1)

    def collect(self) -> Iterable[Metric]:
        """Yields all families as of now."""
        yield from (family.family() for family in (self._records, self._bytes, self._errors, self._seconds))
        consumer = self._consumer
        yield GaugeMetricFamily(
            "turnwire_journal_lag_bytes",
            "Bytes of the journal that are not in the database yet.",
            value=0 if consumer is None else consumer.lag_bytes,
        )
        yield CounterMetricFamily(
            "turnwire_journal_consume_errors",
            "Attempts to write the journal into the database that failed, and are made again.",
            value=0 if consumer is None else consumer.failures,
        )
        yield CounterMetricFamily(
            "turnwire_journal_rejected",
            "Records that can never be written into the database, and were put aside.",
            value=0 if consumer is None else consumer.rejected,
        )
