"""What the journal counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from turnwire.server.telemetry.ledger_metrics import LedgerMetrics


class Consumer:
    failures = 2
    rejected = 1
    lag_bytes = 700


def text(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_records_are_counted_with_their_bytes_and_times() -> None:
    registry = CollectorRegistry()
    metrics = LedgerMetrics(registry)

    metrics.appended(1_000, 0.000_015)
    metrics.appended(500, 0.003)
    metrics.not_appended()

    said = text(registry)
    assert "turnwire_journal_records_total 2.0" in said
    assert "turnwire_journal_bytes_total 1500.0" in said
    assert "turnwire_journal_errors_total 1.0" in said
    assert 'turnwire_journal_append_seconds_bucket{le="2e-05"} 1.0' in said
    assert 'turnwire_journal_append_seconds_bucket{le="0.005"} 2.0' in said


def test_what_consumes_the_journal_is_shown_as_it_is() -> None:
    registry = CollectorRegistry()
    metrics = LedgerMetrics(registry)
    assert "turnwire_journal_lag_bytes 0.0" in text(registry)

    metrics.watch(Consumer())

    said = text(registry)
    assert "turnwire_journal_lag_bytes 700.0" in said
    assert "turnwire_journal_consume_errors_total 2.0" in said
    assert "turnwire_journal_rejected_total 1.0" in said
