"""Links by hand: arrival times in, departure times out."""

from __future__ import annotations

import random

import pytest

from turnwire.bench.network.link import INITIAL_WINDOW, SEGMENT, Link, Path, SlowStart


def times(pieces: list[tuple[float, int]]) -> list[float]:
    return [when for when, _ in pieces]


def open_link(path: Path) -> Link:
    """A link whose handshake is long over."""
    return Link(path, -1000.0)


def test_a_link_without_delay_or_limit_is_transparent() -> None:
    assert Link(Path(), 0.0).transparent
    assert not Link(Path(rtt=0.001), 0.0).transparent
    assert not Link(Path(bandwidth=1e6), 0.0).transparent


def test_each_way_takes_half_a_round_trip() -> None:
    link = open_link(Path(rtt=0.05))
    assert link.enter(1.0, 100) == [(1.025, 100)]
    assert times(link.enter(1.001, 100)) == [pytest.approx(1.026)]


def test_bytes_wait_for_those_before_them_where_bandwidth_is_limited() -> None:
    # 1,000 bytes at 8 Mbit/s take a millisecond.
    link = open_link(Path(rtt=0.1, bandwidth=8e6))
    assert times(link.enter(0.0, 1000)) == [pytest.approx(0.051)]
    assert times(link.enter(0.0, 1000)) == [pytest.approx(0.052)]
    assert times(link.enter(0.01, 1000)) == [pytest.approx(0.061)]


def test_what_is_sent_at_once_after_connecting_waits_for_the_handshake() -> None:
    assert times(Link(Path(rtt=0.1), 10.0).enter(10.0, 1)) == [pytest.approx(10.15)]
    assert times(Link(Path(rtt=0.1), 10.0).enter(10.3, 1)) == [pytest.approx(10.35)]


def test_the_end_of_a_stream_leaves_after_all_bytes() -> None:
    link = open_link(Path(rtt=0.1, bandwidth=8e3))
    [(last, _)] = link.enter(0.0, 1000)
    assert link.end(0.0) == last == pytest.approx(1.05)
    assert link.end(5.0) == pytest.approx(5.05)


def test_a_new_connection_sends_ten_segments_and_twice_as_much_each_round_trip() -> None:
    assert SlowStart(0.1).admit(0.0, 7 * INITIAL_WINDOW) == [
        (0.0, INITIAL_WINDOW),
        (0.1, 2 * INITIAL_WINDOW),
        (0.2, 4 * INITIAL_WINDOW),
    ]


def test_a_window_that_has_grown_stays_while_there_is_something_to_send() -> None:
    window = SlowStart(0.1)
    window.admit(0.0, 3 * INITIAL_WINDOW)
    assert window.admit(0.25, 4 * INITIAL_WINDOW) == [(0.25, 4 * INITIAL_WINDOW)]


def test_a_window_is_halved_for_each_time_out_of_quiet() -> None:
    # The time-out is 300 ms here; the last piece is sent at 0.2 and leaves a window of eight times the initial one.
    window = SlowStart(0.1)
    window.admit(0.0, 7 * INITIAL_WINDOW)
    assert window.admit(0.49, 1) == [(0.49, 1)]
    assert window.window == 8 * INITIAL_WINDOW
    assert window.admit(0.49 + 0.31, 1) == [(0.80, 1)]
    assert window.window == 4 * INITIAL_WINDOW
    window.admit(0.80 + 0.61, 1)
    assert window.window == INITIAL_WINDOW


def test_a_window_never_falls_below_its_beginning() -> None:
    window = SlowStart(0.1)
    window.admit(0.0, 3 * INITIAL_WINDOW)
    assert window.admit(1e6, 2 * INITIAL_WINDOW) == [(1e6, INITIAL_WINDOW), (1e6 + 0.1, INITIAL_WINDOW)]


def test_a_window_that_is_not_made_use_of_does_not_grow() -> None:
    window = SlowStart(0.1)
    for turn in range(100):
        window.admit(turn * 0.2, SEGMENT)
    assert window.window == INITIAL_WINDOW


def test_a_sender_waits_for_room_for_a_segment() -> None:
    window = SlowStart(0.1)
    window.admit(0.0, INITIAL_WINDOW - 1)
    # One byte of room is no reason to send a crumb of two segments.
    assert window.admit(0.01, 2 * SEGMENT) == [(0.1, 2 * SEGMENT)]


def test_a_link_with_slow_start_takes_round_trips_for_a_large_message() -> None:
    link = open_link(Path(rtt=0.1, slow_start=True))
    assert times(link.enter(0.0, 3 * INITIAL_WINDOW)) == [pytest.approx(0.05), pytest.approx(0.15)]


@pytest.mark.parametrize("path", [Path(0.05), Path(0.05, 1e6), Path(0.05, 1e6, True), Path(0.0, 5e5)])
def test_nothing_is_lost_and_nothing_overtakes(path: Path) -> None:
    choice = random.Random(3)
    link, now, last = Link(path, 0.0), 0.0, 0.0
    for _ in range(300):
        now += choice.random() * 0.02
        size = choice.randint(1, 40_000)
        pieces = link.enter(now, size)
        assert sum(piece for _, piece in pieces) == size
        for when, _ in pieces:
            assert when >= max(last, now + path.rtt / 2)
            last = when
    assert link.end(now) >= last
