"""Where the time of a turn went, against sums worked out by hand."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from turnwire.bench.drivers.compact import stages
from turnwire.bench.metrics.stages import split, typical
from turnwire.bench.metrics.turns import Moments, Stages, TurnFigures, turn_figures
from turnwire.v1.server_event_pb2 import ResponseDone
from turnwire.v1.usage_pb2 import StageTimes


def turn(took: float, told: Stages | None = None) -> TurnFigures:
    """A turn of 70 ms of inference, a round trip of 50 ms, and a tool of 30 ms."""
    return turn_figures(Moments(10.0, [10.1], 10.0 + took, told), 5, 0.070, 0.050, client=0.030)


def test_the_parts_of_a_turn_add_up_to_it() -> None:
    parts = split(turn(0.131, Stages(pre_inference=0.003, inference=0.072, post_inference=0.001)))
    assert parts.api == pytest.approx(0.004)
    assert parts.late == pytest.approx(0.002)
    # 131 less 70, 50, 4 and 2.
    assert parts.rest == pytest.approx(0.005)
    assert sum(astuple(parts)) == pytest.approx(0.131 + 0.030)


def test_what_a_transport_does_not_tell_is_part_of_the_rest() -> None:
    parts = split(turn(0.131))
    assert (parts.api, parts.late) == (None, None)
    assert parts.rest == pytest.approx(0.011)


def test_each_part_has_a_median_of_its_own_over_the_turns_that_tell_it() -> None:
    turns = [turn(0.130, Stages(0.001, 0.070, 0.0)), turn(0.150, Stages(0.003, 0.071, 0.0)), turn(0.140)]
    parts = typical(turns)
    assert parts.api == pytest.approx(0.002)
    assert parts.late == pytest.approx(0.0005)
    # 9, 26 and 20 ms.
    assert parts.rest == pytest.approx(0.020)
    assert typical([turn(0.130)]).api is None


def test_no_turns_have_no_parts() -> None:
    with pytest.raises(ValueError, match="found 0 values"):
        typical([])


def test_the_queue_of_a_lane_is_before_inference() -> None:
    told = StageTimes(queued=0.25, pre_inference=0.5, inference=2.0, post_inference=0.125, client_wait=9.0)
    assert stages(ResponseDone(times=told)) == Stages(0.75, 2.0, 0.125)
    assert stages(ResponseDone()) is None
