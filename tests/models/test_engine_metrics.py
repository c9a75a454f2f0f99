"""What engines tell of themselves is counted, and so is what responses cost."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from turnwire.server.engine.profile import Price
from turnwire.server.engine.tokens.passes import CacheReport
from turnwire.server.engine.tokens.rendering import RenderStats
from turnwire.server.session.effects import ResponseEnded
from turnwire.server.telemetry.engine_metrics import EngineMetrics, PricedMetrics


def stats(**changes: Any) -> RenderStats:
    plain: dict[str, Any] = {"first": False, "prefix_changed": False, "whole": False, "retailed": 0, "skipped": 0}
    return RenderStats(items_rendered=2, **(plain | changes))


def test_prompts_are_counted_by_how_they_were_rendered() -> None:
    registry = CollectorRegistry()
    metrics = EngineMetrics(registry)

    for changes in ({"first": True}, {}, {}, {"prefix_changed": True}, {"whole": True, "skipped": 3}, {"retailed": 9}):
        metrics.rendered(stats(**changes))

    how = [
        registry.get_sample_value("turnwire_prompts_rendered_total", {"how": how})
        for how in ("first", "appended", "prefix_changed", "whole")
    ]
    assert how == [1, 3, 1, 1]
    assert registry.get_sample_value("turnwire_items_rendered_total") == 12
    assert registry.get_sample_value("turnwire_items_skipped_total") == 3
    assert registry.get_sample_value("turnwire_tokens_retailed_total") == 9


def test_what_an_engine_computed_again_is_counted() -> None:
    registry = CollectorRegistry()
    metrics = EngineMetrics(registry)

    metrics.cached(CacheReport(expected=100, reported=96))
    metrics.cached(CacheReport(expected=100, reported=120))

    assert registry.get_sample_value("turnwire_cache_expected_tokens_total") == 200
    assert registry.get_sample_value("turnwire_cache_missing_tokens_total") == 4


def test_models_with_a_price_cost_something() -> None:
    registry = CollectorRegistry()
    prices = {"m": Price(input=2.0, cached=1.0, output=8.0, currency="EUR")}
    metrics = PricedMetrics(registry, EngineMetrics(registry), prices.get)

    for model in ("m", "m", "free"):
        metrics.response_ended(ResponseEnded("completed", "", model, 1000, 400, 100, 1))

    cost = registry.get_sample_value("turnwire_cost_total", {"model": "m", "currency": "EUR"})
    assert cost == pytest.approx(2 * (600 * 2 + 400 + 100 * 8) / 1e6)
    assert registry.get_sample_value("turnwire_cost_total", {"model": "free", "currency": "USD"}) is None
    tokens = registry.get_sample_value("turnwire_tokens_total", {"model": "free", "kind": "output"})
    assert tokens == 100
