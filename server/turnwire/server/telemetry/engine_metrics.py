"""What the engines of a server tell of themselves: rendering, caches, and what responses cost.

Above it: the wiring, which hands it to engines and has it collected beside `metrics`. Below it: `families`. All of it
happens on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnwire.server.engine.profile import Price
from turnwire.server.session.effects import ResponseEnded
from turnwire.server.telemetry.families import Counter
from turnwire.server.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from turnwire.server.engine.tokens.passes import CacheReport
    from turnwire.server.engine.tokens.rendering import RenderStats


class EngineMetrics(Collector):
    """The counts of one server's engines."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Registers with a registry, by default one of its own."""
        registry = registry if registry is not None else CollectorRegistry()
        self._prompts = Counter(
            "turnwire_prompts_rendered_total",
            "Prompts put into tokens: of a new chain (first), appended to what the chain had (appended), or from the"
            " beginning since the prefix changed (prefix_changed) or the template is not append-only (whole).",
            ("how",),
        )
        self._items = Counter("turnwire_items_rendered_total", "Items put into tokens; sampled ones are not.")
        self._skipped = Counter(
            "turnwire_items_skipped_total", "Items and parts left out of prompts, since the model's format has no word."
        )
        self._retailed = Counter(
            "turnwire_tokens_retailed_total", "Tokens of finished turns gone through again, to drop their reasoning."
        )
        self._expected = Counter(
            "turnwire_cache_expected_tokens_total", "Tokens of prompts that engines should have found in their caches."
        )
        self._missing = Counter(
            "turnwire_cache_missing_tokens_total", "Of these, how many engines report to have computed again."
        )
        self._cost = Counter(
            "turnwire_cost_total", "Cost of responses, for models with a price.", ("model", "currency")
        )
        registry.register(self)

    def rendered(self, stats: RenderStats) -> None:
        """Counts a prompt."""
        if stats.first:
            how = "first"
        elif stats.prefix_changed:
            how = "prefix_changed"
        else:
            how = "whole" if stats.whole else "appended"
        self._prompts.add(1, how)
        self._items.add(stats.items_rendered)
        self._skipped.add(stats.skipped)
        self._retailed.add(stats.retailed)

    def cached(self, report: CacheReport) -> None:
        """Counts what an engine's cache gave."""
        self._expected.add(report.expected)
        self._missing.add(report.missing)

    def spent(self, ended: ResponseEnded, price: Price | None) -> None:
        """Counts what a response cost; models are those of the registry, so their labels are bounded."""
        if price is not None:
            amount = price.of(ended.input_tokens, ended.cached_tokens, ended.output_tokens)
            self._cost.add(amount, ended.model, price.currency)

    def collect(self) -> Iterable[Metric]:
        """Yields all families as of now; only on the event loop's thread."""
        for family in (
            self._prompts,
            self._items,
            self._skipped,
            self._retailed,
            self._expected,
            self._missing,
            self._cost,
        ):
            yield family.family()


class PricedMetrics(Metrics):
    """The counts of a server that knows prices."""

    def __init__(
        self, registry: CollectorRegistry, engines: EngineMetrics, price: Callable[[str], Price | None]
    ) -> None:
        """Takes where costs are counted, and what says the price of a model."""
        super().__init__(registry)
        self._engines = engines
        self._price = price

    def response_ended(self, ended: ResponseEnded) -> None:
        """Counts an ended response, its tokens and its cost."""
        super().response_ended(ended)
        self._engines.spent(ended, self._price(ended.model))
