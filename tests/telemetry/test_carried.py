"""What is carried is counted under labels that clients cannot multiply."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry

from turnwire.server.telemetry.carried import CarriedMetrics


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0


def test_known_types_are_told_apart_and_all_others_are_one() -> None:
    registry = CollectorRegistry()
    carried = CarriedMetrics(registry)
    for n in range(1_000):
        carried.opaque("item", f"made-up-{n}")
    carried.opaque("item", "program")
    carried.opaque("item_field", "message")
    carried.opaque("made up", "made up")
    assert value(registry, "turnwire_opaque_total", kind="item", type="other") == 1_000
    assert value(registry, "turnwire_opaque_total", kind="item", type="program") == 1
    assert value(registry, "turnwire_opaque_total", kind="item_field", type="message") == 1
    (family,) = [each for each in registry.collect() if each.name == "turnwire_opaque"]
    assert len(family.samples) == 4


def test_sealed_items_are_counted_by_outcome() -> None:
    registry = CollectorRegistry()
    carried = CarriedMetrics(registry)
    carried.unsealed("reasoning", "opened")
    carried.unsealed("reasoning", "foreign")
    carried.unsealed("made up", "made up")
    assert value(registry, "turnwire_unsealed_total", purpose="reasoning", outcome="opened") == 1
    assert value(registry, "turnwire_unsealed_total", purpose="other", outcome="other") == 1


def test_no_count_is_lost_between_threads() -> None:
    registry = CollectorRegistry()
    carried = CarriedMetrics(registry)

    def count(_: int) -> None:
        for _ in range(500):
            carried.opaque("tool", "tool_search")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    assert value(registry, "turnwire_opaque_total", kind="tool", type="tool_search") == 4_000
