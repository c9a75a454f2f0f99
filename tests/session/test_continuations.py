"""Creates that continue from a pause of their own lane, checked apart so that other things come first."""

from __future__ import annotations

from typing import Any

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


def go_on(core: Core, response_id: str, *call_ids: str) -> str:
    """Continues with outputs of calls."""
    items = [{"function_call_output": {"call_id": call_id, "output": {"text": "1"}}} for call_id in call_ids]
    body: dict[str, Any] = {"items": {"items": items}} if items else {"text": "no output"}
    return core.create(previous_response_id=response_id, input=body)


def test_the_hold_ends_when_the_create_turned_out_valid() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1")
    request_id = go_on(core, response_id, "c1")
    assert core.last("done").reason == DoneReason.DONE_REASON_TOOL_CALLS
    core.answer()
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED
    assert core.handle_of(request_id)
    assert len(core.prompts) == 1


def test_an_append_that_completes_the_outputs_first_lets_the_create_wait() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1")
    request_id = go_on(core, response_id, "c1")
    core.append(response_id, "c1")
    core.answer(1)
    assert core.last("appended").append_index == 0
    core.answer()
    assert len(core.prompts) == 1
    assert "rejected" not in core.kinds()
    core.finish()
    core.answer()
    assert core.last("rejected").request_id == request_id
    assert core.last("rejected").error.message == "No tool call found for function call output with call_id c1."


def test_a_partial_append_has_the_create_checked_again() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1", "c2")
    request_id = go_on(core, response_id, "c2")
    core.append(response_id, "c1")
    core.answer(1)
    core.answer()
    assert core.last("rejected").request_id == request_id
    request_id = go_on(core, response_id, "c2")
    core.answer()
    assert core.handle_of(request_id)


def test_what_waits_behind_a_refused_continuation_has_its_turn() -> None:
    core = Core(manual=True)
    response_id = held(core, "c1")
    go_on(core, response_id)
    unrelated = core.create()
    right = go_on(core, response_id, "c1")
    core.answer()
    rejected = [e.rejected for e in core.events if e.WhichOneof("event") == "rejected"]
    assert rejected[-1].request_id == unrelated
    assert rejected[-1].error.code == "lane_held"
    core.answer()
    assert core.handle_of(right)


def test_a_hold_that_ends_meanwhile_gives_its_place_to_the_create() -> None:
    core = Core(manual=True, max_in_flight=1)
    response_id = held(core, "c1")
    other = core.create(lane="other")
    request_id = go_on(core, response_id, "c1")
    core.send({"cancel": {"response_id": response_id}})
    core.answer()
    assert core.handle_of(request_id)
    core.finish()
    core.answer()
    assert core.handle_of(other)
