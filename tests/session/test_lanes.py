from __future__ import annotations

import pytest

from .core import Core


def test_a_lane_is_counted_only_when_a_request_of_it_was_taken() -> None:
    core = Core(max_lanes=1)
    core.create(lane="refused", background=True)
    assert core.last("rejected").error.code == "unsupported_parameter"
    core.create(lane="taken")
    assert core.session.gauges().lanes == 1


def test_room_goes_round_among_lanes_that_wait_for_it() -> None:
    core = Core(max_in_flight=1)
    requests = [core.create(lane=lane) for lane in ("a", "a", "a", "b", "c")]
    order: list[str] = []
    while core.prompts:
        order.append(core.last("created").request_id)
        core.finish()
    assert [requests.index(request) for request in order] == [0, 3, 4, 1, 2]


def test_a_lane_that_waited_for_room_and_was_cancelled_does_not_block_the_next_one() -> None:
    core = Core(max_in_flight=1)
    core.create(lane="a")
    doomed = core.create(lane="b")
    waiting = core.create(lane="c")
    core.send({"cancel": {"target_request_id": doomed}})
    core.finish()
    assert core.handle_of(waiting)
    assert len(core.prompts) == 1


def test_a_refused_request_behind_a_hold_does_not_lose_the_lane_that_waits_for_room() -> None:
    core = Core(max_in_flight=2)
    held = core.create(lane="a", hold=True)
    core.create(lane="a")
    second = core.create(lane="b")
    waiting = core.create(lane="c")
    core.call("f", "call_1", pass_id=1)
    core.finish(pass_id=1)
    assert core.last("rejected").error.code == "lane_held"
    core.finish(pass_id=2)
    assert core.kinds(core.handle_of(second))[-1] == "done"
    assert core.handle_of(waiting)
    assert core.kinds(core.handle_of(held))[-1] == "done"


def test_many_requests_that_fail_at_once_are_answered_without_recursion() -> None:
    core = Core(max_state_bytes=10_000, manual=True)
    core.create("x")
    core.answer()
    for _ in range(600):
        core.create("y" * 20_000)
    core.finish()
    assert core.kinds().count("rejected") == 600
    assert core.session.gauges().queued == 0


def test_a_continuation_of_a_hold_needs_no_room_in_the_queue() -> None:
    core = Core(max_queued=0)
    held = core.create(hold=True)
    core.call("f", "call_1")
    core.finish()
    output = {"function_call_output": {"call_id": "call_1", "output": {"text": "1"}}}
    following = core.create(previous_response_id=core.id_of(held), input={"items": {"items": [output]}})
    assert core.handle_of(following)


@pytest.mark.parametrize("name", ["a b", "a/b", "x" * 257, "ü", "a\n"])
def test_an_invalid_lane_name_is_refused_and_not_repeated(name: str) -> None:
    core = Core()
    core.create(lane=name)
    rejected = core.last("rejected")
    assert rejected.error.code == "invalid_stream_id"
    assert rejected.lane == ""


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 256])
def test_a_valid_lane_name_is_taken(name: str) -> None:
    core = Core()
    assert core.created(core.create(lane=name)).created.lane == name


def test_an_answer_does_not_grow_with_the_request_it_refuses() -> None:
    core = Core()
    huge = "x" * 1_000_000
    core.create(previous_response_id=huge)
    core.send({"append": {"response_id": huge}})
    core.send({"cancel": {"response_id": huge}})
    core.send({"steer": {"previous_response_id": huge}})
    core.create(lane=huge)
    core.create(request_id=huge)
    core.create(inherit=True, reset=[huge])
    rejected = [event for event in core.events if event.WhichOneof("event") == "rejected"]
    assert len(rejected) == 7
    assert max(event.ByteSize() for event in rejected) < 2_000
    with pytest.raises(LookupError):
        core.last("created")


def test_a_refusal_of_an_acknowledgement_does_not_answer_for_the_create_with_the_same_id() -> None:
    core = Core()
    core.create(request_id="r1")
    core.send({"ack": {"last_event_id": 10_000}}, request_id="r1")
    core.create(request_id="r1")
    assert core.last("created").duplicate
