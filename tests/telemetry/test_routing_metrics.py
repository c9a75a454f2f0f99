"""Where passes go is counted by upstream, and upstreams are bounded."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from turnwire.server.routing.health import RoutingPolicy
from turnwire.server.routing.pool import Pool, Routing
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import EngineFailure
from turnwire.server.telemetry.routing_metrics import MAX_UPSTREAMS, RoutingMetrics

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
LOST = EngineFailure("engine_unavailable", "gone")


def test_the_life_of_an_upstream_is_told() -> None:
    registry = CollectorRegistry()
    metrics = RoutingMetrics(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"turnwire_upstream_{name}", {"upstream": "a:1", **labels})

    pool = Pool([("a:1", "a", 1.0)], RoutingPolicy(max_failures=2), Routing(observer=metrics))
    (member,) = pool.members
    assert value("healthy") == 1
    for _ in range(2):
        pool.begin(member)
        pool.failed(member, LOST, trial=False)
    pool.moved(member, begun=False)
    pool.moved(member, begun=True)
    assert value("healthy") == 0
    assert value("picks_total") == 2
    assert value("failures_total", code="engine_unavailable") == 2
    assert value("failovers_total", when="not_begun") == value("failovers_total", when="begun") == 1
    assert value("ejections_total") == 1
    pool.served(member, Chain("resp_1"))
    assert value("healthy") == 1
    # A reload has the same upstream in two pools for a while.
    second = Pool([("a:1", "a", 1.0)], routing=Routing(observer=metrics))
    pool.leave()
    assert value("healthy") == 1
    second.leave()
    assert value("healthy") is None


def test_upstreams_beyond_all_bounds_are_others() -> None:
    registry = CollectorRegistry()
    metrics = RoutingMetrics(registry)
    for number in range(MAX_UPSTREAMS + 10):
        metrics.picked(f"10.0.0.{number}:1")
    metrics.failed("a:1", "an invention")
    assert registry.get_sample_value("turnwire_upstream_picks_total", {"upstream": "other"}) == 10
    assert registry.get_sample_value("turnwire_upstream_failures_total", {"upstream": "other", "code": "other"}) == 1
    assert len(re.findall(rb"turnwire_upstream_picks_total\{", generate_latest(registry))) == MAX_UPSTREAMS + 1


def test_the_page_for_operators_lists_what_is_told() -> None:
    for family in RoutingMetrics().collect():
        kind = "counter" if family.type == "counter" else "gauge"
        name = family.name + ("_total" if kind == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in vars(family)["_labelnames"])
        assert f"| `{name}` | {kind} | {labels} | {family.documentation} |" in PAGE
