"""Upstreams go out after failures in a row, stay out for longer and longer, and come back after one trial."""

from __future__ import annotations

from turnwire.server.routing.health import Health, RoutingPolicy

POLICY = RoutingPolicy(max_failures=2, ejection_time=1.0, max_ejection_time=5.0)


def fallen(now: float = 0.0) -> Health:
    health = Health(POLICY)
    health.failed(now)
    assert health.failed(now)
    return health


def test_failures_count_only_in_a_row() -> None:
    health = Health(POLICY)
    for _ in range(5):
        assert not health.failed(0.0)
        assert not health.succeeded()
    assert health.well


def test_an_upstream_is_out_for_its_time_and_then_one_pass_tries_it() -> None:
    health = fallen()
    assert not health.usable(0.9)
    assert not health.begin(0.9)
    assert health.usable(1.0)
    assert health.begin(1.0)
    # Others wait for the outcome.
    assert not health.usable(1.0)
    assert not health.begin(1.0)
    assert health.succeeded()
    assert health.well


def test_each_trial_that_fails_doubles_the_time_up_to_the_longest() -> None:
    health = fallen()
    now = 0.0
    for out_for in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert not health.usable(now + out_for - 0.01)
        now += out_for
        assert health.begin(now)
        assert health.failed(now, trial=True)
    health.succeeded()
    health.failed(now)
    health.failed(now)
    assert health.usable(now + 1.0)


def test_passes_that_began_before_it_went_out_do_not_keep_it_out_for_longer() -> None:
    health = fallen()
    for _ in range(50):
        assert not health.failed(0.5)
    assert health.usable(1.0)


def test_a_trial_that_tells_nothing_leaves_room_for_the_next() -> None:
    health = fallen()
    assert health.begin(1.0)
    health.abandoned()
    assert health.begin(1.0)


def test_an_upstream_that_asks_to_be_left_alone_is_within_bounds() -> None:
    for pause, out_for in ((3.0, 3.0), (600.0, 5.0)):
        health = Health(POLICY)
        health.failed(0.0)
        health.failed(0.0, pause=pause)
        assert not health.usable(out_for - 0.01)
        assert health.usable(out_for)
