"""Figures against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from turnwire.bench.metrics.statistics import Interval, bootstrap, median, paired_bootstrap, percentile
from turnwire.bench.metrics.turns import Moments, distance, faster_by, floor, turn_figures


def test_the_figures_of_a_turn() -> None:
    # Sent at 10; a round trip of 50 ms; the first token is due 30 ms later, the other four after 10 ms each: 70 ms.
    moments = Moments(10.0, [10.085, 10.095, 10.105, 10.105, 10.130], 10.131)
    figures = turn_figures(moments, tokens=5, inference=0.070, round_trip=0.050)
    assert figures.ttft == pytest.approx(0.085)
    assert figures.tpot == pytest.approx(0.045 / 4)
    # Gaps of 10, 10, 0 and 25 ms.
    assert figures.itl_p50 == pytest.approx(0.010)
    assert figures.itl_p99 == pytest.approx(0.010 + 0.97 * 0.015)
    assert figures.itl_max == pytest.approx(0.025)
    assert figures.took == pytest.approx(0.131)
    assert figures.overhead == pytest.approx(0.011)


def test_a_turn_of_which_no_token_was_seen() -> None:
    figures = turn_figures(Moments(1.0, [], 1.5), tokens=20, inference=0.4, round_trip=0.0)
    assert (figures.ttft, figures.tpot, figures.itl_max) == (0.5, 0.0, 0.0)
    assert figures.overhead == pytest.approx(0.1)


def test_tokens_that_came_together_count_each() -> None:
    # Ten tokens in two pieces, 90 ms apart.
    assert turn_figures(Moments(0.0, [0.01, 0.1], 0.1), 10, 0.0, 0.0).tpot == pytest.approx(0.01)


def test_the_floor_is_inference_tools_and_a_round_trip_a_turn() -> None:
    assert floor([0.1, 0.2, 0.3], [1.0, 0.5, 0.0], 0.05) == pytest.approx(0.6 + 1.5 + 0.15)
    assert distance(2.3175, 2.25) == pytest.approx(0.03)


def test_there_is_no_distance_from_nothing() -> None:
    with pytest.raises(ValueError, match="floor of 0"):
        distance(1.0, 0.0)


def test_forty_percent_faster_is_sixty_percent_of_the_time() -> None:
    assert faster_by(6.0, 10.0) == pytest.approx(0.4)
    assert faster_by(12.0, 10.0) == pytest.approx(-0.2)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)])
def test_percentiles_lie_between_neighbours(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(expected)


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="found 0 values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match=r"1\.5"):
        percentile([1.0], 1.5)


def test_one_run_says_nothing_of_how_sure_it_is() -> None:
    assert bootstrap([[1.0, 2.0, 3.0], []]) == Interval(2.0, -math.inf, math.inf)


def test_runs_that_agree_leave_no_doubt() -> None:
    assert bootstrap([[2.0], [2.0], [2.0]]) == Interval(2.0, 2.0, 2.0)


def test_the_interval_holds_the_figure_and_grows_with_the_spread() -> None:
    narrow = bootstrap([[10.0], [10.1], [9.9], [10.05], [9.95]])
    wide = bootstrap([[10.0], [14.0], [6.0], [12.0], [8.0]])
    assert narrow.low <= narrow.value <= narrow.high
    assert wide.high - wide.low > 10 * (narrow.high - narrow.low)
    assert bootstrap([[10.0], [14.0], [6.0], [12.0], [8.0]]) == wide


def test_whole_runs_are_drawn() -> None:
    # Within a run all values are the same: a thousand of them say no more than one.
    few, many = ([[float(n)] * times for n in range(5)] for times in (1, 1000))
    assert bootstrap(few, resamples=200) == bootstrap(many, resamples=200)


def test_the_interval_of_two_equally_likely_runs_is_known() -> None:
    # The mean of two draws from {0, 1} is 0, 0.5 or 1 with 1/4, 1/2 and 1/4.
    assert bootstrap([[0.0], [1.0]], lambda values: sum(values) / len(values)) == Interval(0.5, 0.0, 1.0)


def test_what_slowed_down_both_is_no_difference() -> None:
    pairs = [(6.0, 10.0), (12.0, 20.0), (60.0, 100.0)]
    compared = paired_bootstrap(pairs, faster_by)
    assert [compared.value, compared.low, compared.high] == pytest.approx([0.4, 0.4, 0.4])


def test_the_median_of_an_even_number_is_between_both() -> None:
    assert median([1.0, 2.0, 10.0, 20.0]) == 6.0
