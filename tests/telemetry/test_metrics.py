from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Mapping

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from turnwire.server.runtime.services import Observer
from turnwire.server.session.effects import PassEnded, ResponseEnded
from turnwire.server.session.gauges import Gauges
from turnwire.server.telemetry.metrics import MAX_MODELS, Metrics

Read = Callable[..., float | None]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest.fixture
def read(metrics: Metrics) -> Read:
    """Reads one value as Prometheus would."""

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    return value


def ended(outcome: str = "completed", code: str = "", model: str = "m", tokens: int = 1) -> ResponseEnded:
    return ResponseEnded(outcome, code, model, tokens * 100, tokens * 40, tokens * 7, passes=1)


def a_pass(**stages: float | None) -> PassEnded:
    times: Mapping[str, float | None] = {
        "queued": 0.0,
        "pre_inference": 0.002,
        "first_token": 0.2,
        "inference": 1.0,
        "hosted_tools": 0.0,
        "client_wait": 0.0,
        "stalled": 0.0,
        **stages,
    }
    return PassEnded(**times)  # type: ignore[arg-type]


def test_the_runtime_can_be_observed_by_it(metrics: Metrics) -> None:
    observer: Observer = metrics

    for name, method in inspect.getmembers(Observer, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(type(observer), name)) == inspect.signature(method), name


def test_tokens_are_counted_by_model_and_kind(metrics: Metrics, read: Read) -> None:
    metrics.response_ended(ended(tokens=1))
    metrics.response_ended(ended(tokens=2))

    assert read("turnwire_tokens_total", model="m", kind="input") == 300
    assert read("turnwire_tokens_total", model="m", kind="reused") == 120
    assert read("turnwire_tokens_total", model="m", kind="output") == 21


def test_responses_are_counted_by_outcome_and_code(metrics: Metrics, read: Read) -> None:
    metrics.response_ended(ended())
    metrics.response_ended(ended("failed", "server_error"))
    metrics.response_ended(ended("failed", "made_up_by_an_upstream"))
    metrics.response_ended(ended("made up"))

    assert read("turnwire_responses_total", outcome="completed", code="") == 1
    assert read("turnwire_responses_total", outcome="failed", code="server_error") == 1
    assert read("turnwire_responses_total", outcome="failed", code="other") == 1
    assert read("turnwire_responses_total", outcome="other", code="") == 1


def test_a_flood_of_model_names_is_bounded(metrics: Metrics, read: Read) -> None:
    for number in range(MAX_MODELS + 10):
        metrics.response_ended(ended(model=f"m{number}"))
    metrics.response_ended(ended(model="m0"))

    assert read("turnwire_tokens_total", model="m0", kind="output") == 14
    assert read("turnwire_tokens_total", model="other", kind="output") == 70
    assert read("turnwire_tokens_total", model=f"m{MAX_MODELS}", kind="output") is None


def test_a_model_that_was_never_served_takes_no_label(metrics: Metrics) -> None:
    for number in range(MAX_MODELS + 10):
        metrics.response_ended(ended("failed", "model_not_found", model=f"bogus{number}", tokens=0))

    assert b"bogus" not in generate_latest(metrics.registry)


def test_stages_and_time_to_first_token_are_counted_per_pass(metrics: Metrics, read: Read) -> None:
    metrics.pass_ended(a_pass(queued=0.1, stalled=0.5))
    metrics.pass_ended(a_pass(client_wait=3.0, hosted_tools=0.25, first_token=None))

    assert read("turnwire_passes_total") == 2
    for stage, total in (("pre_inference", 0.004), ("inference", 2.0), ("queued", 0.1), ("client_wait", 3.0)):
        assert read("turnwire_stage_seconds_sum", stage=stage) == pytest.approx(total)
    assert read("turnwire_stage_seconds_count", stage="first_token") == 1
    assert read("turnwire_stage_seconds_count", stage="stalled") == 1
    assert read("turnwire_stage_seconds_count", stage="hosted_tools") == 1
    assert read("turnwire_time_to_first_token_seconds_count") == 1
    assert read("turnwire_time_to_first_token_seconds_sum") == pytest.approx(0.302)


def test_tokens_that_come_together_share_the_gap_before_them(metrics: Metrics, read: Read) -> None:
    metrics.observe_gap(0.004, 4)
    metrics.observe_gap(0.1, 1)
    metrics.observe_gap(0.1, 0)

    assert read("turnwire_inter_token_seconds_bucket", le="0.0005") == 0
    assert read("turnwire_inter_token_seconds_bucket", le="0.001") == 4
    assert read("turnwire_inter_token_seconds_bucket", le="+Inf") == 5
    assert read("turnwire_inter_token_seconds_sum") == pytest.approx(0.104)


def test_sessions_traffic_and_trouble_are_counted_by_door(metrics: Metrics, read: Read) -> None:
    metrics.session_opened("grpc")
    metrics.session_opened("grpc")
    metrics.session_closed("grpc")
    metrics.received("grpc", 100)
    metrics.sent("grpc", 1000, 20)
    metrics.sent("carrier pigeon", 1, 1)
    metrics.rejected("lane_held")
    metrics.engine_error("server_error")
    metrics.auth_failed("grpc")
    metrics.credit_stall()

    assert read("turnwire_sessions", door="grpc") == 1
    assert read("turnwire_sessions_opened_total", door="grpc") == 2
    assert read("turnwire_received_messages_total", door="grpc") == 1
    assert read("turnwire_received_bytes_total", door="grpc") == 100
    assert read("turnwire_sent_batches_total", door="grpc") == 1
    assert read("turnwire_sent_events_total", door="grpc") == 20
    assert read("turnwire_sent_bytes_total", door="grpc") == 1000
    assert read("turnwire_sent_bytes_total", door="other") == 1
    assert read("turnwire_requests_rejected_total", code="lane_held") == 1
    assert read("turnwire_engine_errors_total", code="server_error") == 1
    assert read("turnwire_auth_failures_total", door="grpc") == 1
    assert read("turnwire_credit_stalls_total") == 1


def test_what_sessions_have_in_use_is_summed_when_somebody_looks(metrics: Metrics, read: Read) -> None:
    sessions = [Gauges(1, 2, 3, 4, 5, 6, 7)]
    metrics.watch(lambda: sessions)
    metrics.watch(lambda: [Gauges(10, 0, 0, 0, 0, 0, 0)])
    names = ("lanes", "responses_in_flight", "requests_queued", "responses_held", "responses_retained", "state_bytes")

    assert [read(f"turnwire_{name}") for name in names] == [11, 2, 3, 4, 5, 6]
    sessions.append(Gauges(1, 1, 1, 1, 1, 1, 1))
    assert [read(f"turnwire_{name}") for name in (*names, "outstanding_bytes")] == [12, 3, 4, 5, 6, 7, 8]


def test_registering_does_not_ask_the_sessions(metrics: Metrics) -> None:
    metrics.watch(lambda: pytest.fail("asked"))

    CollectorRegistry(auto_describe=True).register(metrics)


def test_what_prometheus_reads_can_be_parsed(metrics: Metrics) -> None:
    metrics.response_ended(ended(model='na"me\n'))
    metrics.pass_ended(a_pass())

    text = generate_latest(metrics.registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}

    assert {family.name for family in metrics.describe()} == {name for name in families if name[:8] == "turnwire"}
    assert families["turnwire_build_info"].samples[0].value == 1


def test_names_follow_the_conventions(metrics: Metrics) -> None:
    for family in metrics.describe():
        assert re.fullmatch(r"turnwire(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


def test_the_process_is_told_about_and_no_thread_started() -> None:
    threads = threading.active_count()

    assert b"process_cpu_seconds_total" in generate_latest(Metrics().registry)
    assert threading.active_count() == threads
