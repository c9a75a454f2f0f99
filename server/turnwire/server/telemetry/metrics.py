"""Everything a server counts, and how Prometheus sees it.

Above it: the runtime and the doors, which call these methods as things happen, all on the event loop's thread. Below
it: `families`. Labels are bounded: doors, outcomes and stages are fixed, codes are those of the error table, and models
are counted as `other` beyond the first fifty.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnwire.server.session.effects import PassEnded, ResponseEnded
from turnwire.server.session.gauges import Gauges
from turnwire.server.telemetry.families import OTHER, Bounded, Counter, Histogram
from turnwire.v1.errors import ERRORS

DOORS: Final = ("grpc", "grpc-oneshot", "websocket", "http", "background")
OUTCOMES: Final = ("completed", "incomplete", "failed", "cancelled")
STAGES: Final = ("queued", "pre_inference", "first_token", "inference", "hosted_tools", "client_wait", "stalled")
MAX_MODELS: Final = 50

_SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
)  # fmt: skip
_GAPS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 5,
)  # fmt: skip

_GAUGES: Final = {
    "lanes": ("turnwire_lanes", "Named lanes of the sessions that are open."),
    "in_flight": ("turnwire_responses_in_flight", "Responses at work, held ones included."),
    "queued": ("turnwire_requests_queued", "Requests waiting for their lanes."),
    "held": ("turnwire_responses_held", "Responses waiting for their client's tool outputs."),
    "responses": ("turnwire_responses_retained", "Responses that can be continued from."),
    "state_bytes": ("turnwire_state_bytes", "Bytes of items kept for continuation."),
    "outstanding_bytes": ("turnwire_outstanding_bytes", "Bytes sent and not yet acknowledged."),
}

GaugeSource = Callable[[], Iterable[Gauges]]


class Metrics(Collector):
    """The counts of one server. What is called per delivery of tokens costs half a microsecond, the rest a few."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Registers with a registry, by default one of its own; the process is told about there too."""
        registry = registry if registry is not None else CollectorRegistry()
        ProcessCollector(registry=registry)
        self.registry = registry
        """What `MetricsEndpoint` serves."""
        self._stage_seconds = Histogram(
            "turnwire_stage_seconds",
            "Where the time of a pass went; stages a pass did not have are not counted.",
            _SECONDS,
            "stage",
            STAGES,
        )
        self._ttft = Histogram(
            "turnwire_time_to_first_token_seconds",
            "From a request, or the last awaited tool output, to the first token of its pass.",
            _SECONDS,
        )
        self._gaps = Histogram(
            "turnwire_inter_token_seconds",
            "Between tokens of a pass as the engine delivers them; those that come together share the gap before them.",
            _GAPS,
        )
        self._tokens = Counter(
            "turnwire_tokens_total",
            "Tokens by model and kind: input, reused (of the input, from a cache), output.",
            ("model", "kind"),
        )
        self._responses = Counter(
            "turnwire_responses_total",
            "Responses that ended, by outcome and, where they failed, by error code.",
            ("outcome", "code"),
        )
        self._passes = Counter("turnwire_passes_total", "Passes of a model that ended.")
        self._rejected = Counter("turnwire_requests_rejected_total", "Requests refused, by error code.", ("code",))
        self._engine_errors = Counter("turnwire_engine_errors_total", "Passes that the engine failed.", ("code",))
        self._auth_failures = Counter(
            "turnwire_auth_failures_total", "Calls without an API key or with a wrong one.", ("door",)
        )
        self._credit_stalls = Counter(
            "turnwire_credit_stalls_total", "Times that an engine was paused because its client took no output."
        )
        self._sessions_opened = Counter("turnwire_sessions_opened_total", "Sessions that began.", ("door",))
        self._received = Counter("turnwire_received_messages_total", "Messages from clients.", ("door",))
        self._received_bytes = Counter("turnwire_received_bytes_total", "Bytes of messages from clients.", ("door",))
        self._sent = Counter("turnwire_sent_batches_total", "Batches to clients, a message each.", ("door",))
        self._sent_events = Counter("turnwire_sent_events_total", "Events in the batches to clients.", ("door",))
        self._sent_bytes = Counter("turnwire_sent_bytes_total", "Bytes of batches to clients.", ("door",))
        self._sessions: dict[str, int] = dict.fromkeys(DOORS, 0)
        self._model = Bounded(MAX_MODELS)
        self._sources: list[GaugeSource] = []
        self._build_info = _build_info()
        gaps = self._gaps.distributions[""]
        self._gap = gaps
        self._gap_bounds = gaps.bounds
        self._gap_counts = gaps.counts
        registry.register(self)

    # What happens

    def session_opened(self, door: str) -> None:
        """Counts a session that began."""
        door = _door(door)
        self._sessions[door] = self._sessions.get(door, 0) + 1
        self._sessions_opened.add(1, door)

    def session_closed(self, door: str) -> None:
        """Counts a session that ended."""
        self._sessions[_door(door)] -= 1

    def response_ended(self, ended: ResponseEnded) -> None:
        """Counts an ended response and its tokens."""
        outcome = ended.outcome if ended.outcome in OUTCOMES else OTHER
        self._responses.add(1, outcome, _code(ended.code) if ended.code else "")
        # A model that was never served has no tokens, and its name, which a client made up, takes no place.
        if ended.input_tokens or ended.output_tokens:
            model = self._model(ended.model)
            self._tokens.add(ended.input_tokens, model, "input")
            self._tokens.add(ended.cached_tokens, model, "reused")
            self._tokens.add(ended.output_tokens, model, "output")

    def pass_ended(self, ended: PassEnded) -> None:
        """Counts the stages of a pass."""
        self._passes.add(1)
        stages = self._stage_seconds.distributions
        stages["pre_inference"].observe(ended.pre_inference)
        stages["inference"].observe(ended.inference)
        if ended.first_token is not None:
            stages["first_token"].observe(ended.first_token)
            self._ttft.distributions[""].observe(ended.queued + ended.pre_inference + ended.first_token)
        for stage, seconds in (
            ("queued", ended.queued),
            ("hosted_tools", ended.hosted_tools),
            ("client_wait", ended.client_wait),
            ("stalled", ended.stalled),
        ):
            if seconds > 0:
                stages[stage].observe(seconds)

    def observe_gap(self, gap: float, tokens: int) -> None:
        """Counts tokens that came `gap` seconds after the ones before them in the same pass; called per delivery."""
        if tokens > 0:
            self._gap_counts[bisect_left(self._gap_bounds, gap / tokens)] += tokens
            self._gap.sum += gap

    def rejected(self, code: str) -> None:
        """Counts a refused request."""
        self._rejected.add(1, _code(code))

    def engine_error(self, code: str) -> None:
        """Counts a pass that the engine failed."""
        self._engine_errors.add(1, _code(code))

    def auth_failed(self, door: str) -> None:
        """Counts a call without a key or with a wrong one."""
        self._auth_failures.add(1, _door(door))

    def credit_stall(self) -> None:
        """Counts a pause of an engine because its client took no output."""
        self._credit_stalls.add(1)

    def received(self, door: str, size: int) -> None:
        """Counts a message from a client."""
        door = _door(door)
        self._received.add(1, door)
        self._received_bytes.add(size, door)

    def sent(self, door: str, size: int, events: int) -> None:
        """Counts a batch to a client."""
        door = _door(door)
        self._sent.add(1, door)
        self._sent_events.add(events, door)
        self._sent_bytes.add(size, door)

    def watch(self, source: GaugeSource) -> None:
        """Adds what open sessions have in use: `source` is called whenever somebody reads the metrics."""
        self._sources.append(source)

    # What Prometheus sees

    def collect(self) -> Iterable[Metric]:
        """Yields all families as of now; only on the event loop's thread."""
        for family in self._families():
            yield family.family()
        sessions = GaugeMetricFamily("turnwire_sessions", "Sessions that are open.", labels=("door",))
        for door, count in self._sessions.items():
            sessions.add_metric((door,), count)
        yield sessions
        sums: dict[str, int] = dict.fromkeys(_GAUGES, 0)
        for source in self._sources:
            for gauges in source():
                for field in sums:
                    sums[field] += getattr(gauges, field)
        for field, (name, text) in _GAUGES.items():
            yield GaugeMetricFamily(name, text, sums[field])
        yield self._build_info

    def describe(self) -> Iterable[Metric]:
        """Yields the families without values, so that registering does not call the watched sources."""
        for family in self._families():
            yield family.family()
        yield GaugeMetricFamily("turnwire_sessions", "Sessions that are open.", labels=("door",))
        for name, text in _GAUGES.values():
            yield GaugeMetricFamily(name, text)
        yield self._build_info

    def _families(self) -> tuple[Counter | Histogram, ...]:
        return (
            self._stage_seconds,
            self._ttft,
            self._gaps,
            self._tokens,
            self._responses,
            self._passes,
            self._rejected,
            self._engine_errors,
            self._auth_failures,
            self._credit_stalls,
            self._sessions_opened,
            self._received,
            self._received_bytes,
            self._sent,
            self._sent_events,
            self._sent_bytes,
        )


def _door(door: str) -> str:
    return door if door in DOORS else OTHER


def _code(code: str) -> str:
    return code if code in ERRORS else OTHER


def _build_info() -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "turnwire_build_info", "Always 1; versions of what runs.", labels=("version", "python", "grpcio")
    )
    family.add_metric((_version("turnwire"), platform.python_version(), _version("grpcio")), 1)
    return family


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
