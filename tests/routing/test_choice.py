"""Chains go to upstreams in proportion to weights, and move only when they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from turnwire.server.routing.choice import score

KEYS = [f"resp_{number}" for number in range(20_000)]


def homes(weights: Mapping[str, float]) -> dict[str, str]:
    return {key: max(weights, key=lambda address: score(key, address, weights[address])) for key in KEYS}


@pytest.mark.parametrize(
    "weights",
    [{"a:1": 1, "b:1": 1, "c:1": 1}, {"a:1": 1, "b:1": 2, "c:1": 5}, {"a:1": 0.25, "b:1": 0.75}],
    ids=str,
)
def test_chains_are_shared_out_by_weight(weights: dict[str, float]) -> None:
    taken = Counter(homes(weights).values())
    total = sum(weights.values())
    for address, weight in weights.items():
        share = weight / total
        # Four standard deviations of so many draws; the keys are fixed, so that this is no matter of luck.
        allowed = 4 * (share * (1 - share) / len(KEYS)) ** 0.5
        assert taken[address] / len(KEYS) == pytest.approx(share, abs=allowed)


def test_an_upstream_that_leaves_moves_its_own_chains_and_no_others() -> None:
    before = homes({"a:1": 1, "b:1": 2, "c:1": 3})
    after = homes({"a:1": 1, "c:1": 3})
    assert {before[key] for key in KEYS if before[key] != after[key]} == {"b:1"}
    moved = Counter(after[key] for key in KEYS if before[key] == "b:1")
    assert moved["c:1"] / moved["a:1"] == pytest.approx(3, rel=0.15)


def test_an_upstream_that_comes_takes_what_it_gets_and_moves_nothing_else() -> None:
    before = homes({"a:1": 1, "b:1": 1})
    after = homes({"a:1": 1, "b:1": 1, "c:1": 1})
    assert {after[key] for key in KEYS if before[key] != after[key]} == {"c:1"}


def test_more_weight_takes_chains_and_gives_none_away() -> None:
    before = homes({"a:1": 1, "b:1": 1})
    after = homes({"a:1": 1, "b:1": 2})
    assert {after[key] for key in KEYS if before[key] != after[key]} == {"b:1"}


def test_no_weight_is_wanted_by_nobody_who_has_a_choice() -> None:
    assert set(homes({"a:1": 0, "b:1": 0.001}).values()) == {"b:1"}
