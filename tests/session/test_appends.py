"""Appends and steers that are checked apart, so that answers come late."""

from __future__ import annotations

from typing import Any

from turnwire.server.session.effects import PrepareAppend
from turnwire.v1.error_pb2 import Error
from turnwire.v1.response_pb2 import DoneReason

from .core import Core


def held(core: Core, *call_ids: str) -> str:
    """Brings a response to a pause and returns its id."""
    request_id = core.create(hold=True)
    core.answer()
    for call_id in call_ids:
        core.call("f", call_id)
    core.finish()
    return core.id_of(request_id)


def test_appends_are_taken_in_the_order_they_came_one_at_a_time() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1", "c2")
    core.append(response_id, "c1")
    core.append(response_id, "c2")
    assert len(core.todo) == 1
    core.answer()
    assert core.last("appended").append_index == 0
    core.answer()
    assert core.last("appended").append_index == 1
    assert len(core.prompts) == 1


def test_a_refused_append_lets_the_next_one_be_checked() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1")
    first = core.append(response_id, "c1")
    core.append(response_id, "c1")
    effect = core.todo.pop()
    assert isinstance(effect, PrepareAppend)
    core.session.append_refused(core.now, effect.handle, effect.ticket, Error(code="invalid_value"))
    core.settle()
    assert core.last("rejected").request_id == first
    core.answer()
    assert core.last("appended").append_index == 0


def test_appends_under_check_are_refused_when_their_response_ends() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1")
    core.append(response_id, "c1")
    core.send({"steer": {"previous_response_id": response_id, "input": {"text": "x"}}})
    core.send({"cancel": {"response_id": response_id}})
    assert core.last("rejected").error.code == "response_already_completed"
    assert core.last("steer_failed").error.code == "response_already_completed"
    assert core.last("done").reason == DoneReason.DONE_REASON_CANCELLED
    core.answer()
    assert core.kinds()[-1] == "done"


def test_a_steer_that_comes_too_late_fails() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1")
    core.append(response_id, "c1")
    core.send({"steer": {"previous_response_id": response_id, "input": {"text": "x"}}})
    core.answer()
    assert len(core.prompts) == 1
    core.answer()
    assert core.last("steer_failed").error.code == "steering_not_supported"


def test_an_append_that_was_sent_before_the_pause_and_checked_after_it_counts() -> None:
    core = Core(manual=True)
    request_id = core.create(hold=True)
    core.answer()
    core.call("f", "c1")
    core.append(core.id_of(request_id), "c1")
    core.finish()
    assert core.last("done").reason == DoneReason.DONE_REASON_TOOL_CALLS
    core.answer()
    assert core.last("appended").append_index == 0
    assert len(core.prompts) == 1


def test_appends_under_check_are_bounded_by_bytes() -> None:
    core = Core(manual=True, max_request_bytes=10_000)
    response_id = held(core, *[f"c{number}" for number in range(10)])
    for number in range(10):
        core.append(response_id, f"c{number}", text="x" * 3_000)
    refused = [e.rejected for e in core.events if e.WhichOneof("event") == "rejected"]
    assert len(refused) == 7
    assert {rejected.error.code for rejected in refused} == {"too_many_requests"}
    for _ in range(3):
        core.answer()
    assert core.kinds().count("appended") == 3


def test_waiting_creates_are_bounded_by_bytes() -> None:
    core = Core(manual=True, max_state_bytes=50_000)
    for _ in range(10):
        core.create("x" * 12_000)
    refused = [e.rejected.error.code for e in core.events if e.WhichOneof("event") == "rejected"]
    assert refused == ["too_many_requests"] * 6
    core.answer()
    core.create("x" * 12_000, lane="other")
    assert core.kinds().count("rejected") == 6


def test_the_number_of_appends_is_bounded() -> None:
    core = Core(max_appends=1)
    request_id = core.create(hold=True)
    core.call("f", "c1")
    core.call("f", "c2")
    core.finish()
    core.append(core.id_of(request_id), "c1")
    core.append(core.id_of(request_id), "c2")
    assert core.last("rejected").error.code == "too_many_requests"
    core.append(core.id_of(request_id), "c1", index=0)
    assert core.last("appended").duplicate


def test_a_repeat_compares_the_items_and_nothing_else() -> None:
    core = Core()
    request_id = core.create(hold=True)
    core.call("f", "c1")
    core.call("f", "c2")
    core.finish()
    response_id = core.id_of(request_id)
    core.append(response_id, "c1", index=0)
    core.append(response_id, "c1", index=0, text="other")
    assert core.last("rejected").error.code == "append_index_conflict"
    core.append(response_id, "c2")
    core.append(response_id, "c1", index=0)
    appended: Any = core.last("appended")
    assert appended.duplicate
    assert list(appended.awaiting_call_ids) == []
