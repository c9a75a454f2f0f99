"""Counters and histograms as plain numbers, turned into Prometheus families only when somebody looks.

Above it: `metrics`. Below it: prometheus-client's family classes. prometheus-client's own counters take a lock and a
label look-up per call, several times what is affordable per delivered token. Plain numbers need neither, since all of
them are changed and read on the event loop's thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

OTHER: Final = "other"
"""Label of everything beyond what a label may tell apart."""


class Counter:
    """A family of counts that only grow, by label values."""

    __slots__ = ("help", "labels", "name", "values")

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        """Makes a family; its name ends in `_total`. Without labels it starts at 0."""
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, amount: float, *labels: str) -> None:
        """Adds to the count of some label values."""
        self.values[labels] = self.values.get(labels, 0) + amount

    def family(self) -> CounterMetricFamily:
        """Returns the family as of now."""
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class Distribution:
    """Counts of observations by size: one histogram."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Makes an empty one; `bounds` are the upper ends of the buckets, infinity left out."""
        self.bounds = tuple(map(float, bounds))
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value, as often as it was seen."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Returns the upper ends with how many values were no larger."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class Histogram:
    """A family of distributions, by the value of at most one label."""

    __slots__ = ("distributions", "help", "label", "name")

    def __init__(
        self, name: str, help: str, bounds: Sequence[float], label: str = "", values: Sequence[str] = ("",)
    ) -> None:
        """Makes a family with a distribution for each value of the label."""
        self.name = name
        self.help = help
        self.label = label
        self.distributions = {value: Distribution(bounds) for value in values}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels."""
        return (self.label,) if self.label else ()

    def family(self) -> HistogramMetricFamily:
        """Returns the family as of now."""
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for value, distribution in self.distributions.items():
            family.add_metric((value,) if self.label else (), distribution.buckets(), distribution.sum)
        return family


class Bounded:
    """Keeps a label from growing without end: the first so many values stay, all later ones are `other`."""

    __slots__ = ("_limit", "_longest", "_seen")

    def __init__(self, limit: int, longest: int = 128) -> None:
        """Tells `limit` values of at most `longest` characters apart."""
        self._limit = limit
        self._longest = longest
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Returns the value, or `other`."""
        if value in self._seen:
            return value
        if len(self._seen) >= self._limit or len(value) > self._longest:
            return OTHER
        self._seen.add(value)
        return value
