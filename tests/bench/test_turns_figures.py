"""Repeated measurements of continued turns: what they come to, and what a file says of them."""

from __future__ import annotations

import math
import os

import pytest

from turnwire.bench.command import apart
from turnwire.bench.intervals import listed, spread, taken
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.turns_figures import behind, figures

VISITED = {"validate": 1}


def run(shortest: float, longest: float) -> list[tuple[int, list[float], dict[str, int]]]:
    return [(1, [shortest] * 3, VISITED), (10240, [longest - 1, longest, longest + 1], VISITED)]


def test_ratios_are_taken_within_runs_so_that_a_slow_run_is_no_difference() -> None:
    lines = behind([run(100, 110), run(200, 220), run(100, 110)])
    assert [line.kilobytes for line in lines] == [1, 10240]
    assert lines[1].ratio == Interval(1.1, 1.1, 1.1)
    assert (lines[1].microseconds.low, lines[1].microseconds.value, lines[1].microseconds.high) == (110, 111, 220)


def test_one_run_has_no_interval_and_the_file_says_none() -> None:
    (line, _) = figures(behind([run(100, 110)])).values()
    assert line == {"median_us": 100, "ratio": [1.0], "visited": VISITED}


def test_a_file_keeps_the_interval_beside_the_median() -> None:
    found = figures(behind([run(100, 110), run(120, 130)]))["1"]
    assert (found["low_us"], found["median_us"], found["high_us"]) == (100, 110, 120)


def test_no_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        behind([])


@pytest.mark.parametrize("figure", [Interval(1.5, 1.0, 2.0), Interval(1.5, -math.inf, math.inf)], ids=["runs", "one"])
def test_an_interval_comes_back_from_a_file_as_it_was(figure: Interval) -> None:
    assert taken(listed(figure)) == figure


def test_a_list_of_two_numbers_is_no_figure() -> None:
    with pytest.raises(ValueError, match="found 2 numbers"):
        taken([1.0, 2.0])


@pytest.mark.parametrize(
    ("figure", "words"),
    [(Interval(0.5, 0.25, 0.75), "50.0 (25.0 to 75.0)"), (Interval(0.5, -math.inf, math.inf), "50.0")],
    ids=["runs", "one"],
)
def test_a_table_shows_an_interval_only_where_there_is_one(figure: Interval, words: str) -> None:
    assert spread(figure, 100) == words


def test_work_apart_is_done_by_another_process() -> None:
    assert apart(os.getpid) != os.getpid()
