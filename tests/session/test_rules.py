"""The rules of the public API's WebSocket mode, where a transcript would be long; and what is stored of failures."""

from __future__ import annotations

from typing import Any

import pytest

from turnwire.server.session.chunks import EngineFailure
from turnwire.v1.response_pb2 import ResponseStatus

from .core import Core

_OPEN = {"open": {"rules": "SESSION_RULES_WEBSOCKET"}}


def _websocket(**limits: Any) -> Core:
    core = Core(**limits)
    core.send(_OPEN)
    return core


def test_the_thirty_third_named_lane_is_one_too_many() -> None:
    core = _websocket()
    for number in range(32):
        core.create(lane=f"lane_{number}", generate=False)
    core.create(generate=False)
    core.create(lane="lane_0", generate=False)
    assert "rejected" not in core.kinds()
    core.create(lane="lane_32", generate=False)
    error = core.last("rejected").error
    assert (error.code, error.param) == ("websocket_stream_limit_reached", "stream_id")
    assert error.message == (
        "This WebSocket connection has reached its maximum number of distinct stream IDs (32). Reuse an existing"
        " stream_id or open a new WebSocket connection."
    )


@pytest.mark.parametrize(("configured", "allowed"), [(3, 3), (40, 40)], ids=["less", "more"])
def test_an_operator_says_how_many_lanes_and_responses_a_socket_may_have(configured: int, allowed: int) -> None:
    core = _websocket(websocket_lanes=configured, websocket_in_flight=configured)
    requests = [core.create(lane=f"lane_{number}") for number in range(allowed)]
    assert len({core.handle_of(request) for request in requests}) == allowed
    core.create(lane="one_more")
    assert core.last("rejected").error.code == "websocket_stream_limit_reached"


def test_a_continuation_that_came_too_early_keeps_its_parent() -> None:
    core = _websocket(max_in_flight=1, max_queued=0)
    parent = core.create(lane="a", generate=False, store=False)
    core.create(lane="b")
    core.create(lane="a", previous_response_id=core.id_of(parent))
    assert core.last("rejected").error.code == "too_many_requests"
    assert core.session.find(core.id_of(parent)) is not None


def test_a_held_response_that_is_continued_by_a_bad_create_stays_held_and_remembered() -> None:
    core = _websocket()
    held = core.id_of(core.create(hold=True))
    core.call("f", "call_1")
    core.finish()
    # The output of another call: found bad in its turn, while the hold lasts.
    stray = {"function_call_output": {"call_id": "call_x", "output": {"text": "1"}}}
    core.create(previous_response_id=held, input={"items": {"items": [stray]}})
    assert core.last("rejected").error.param == "input"
    assert core.session.find(held) is not None
    good = {"function_call_output": {"call_id": "call_1", "output": {"text": "1"}}}
    following = core.create(previous_response_id=held, input={"items": {"items": [good]}})
    assert core.handle_of(following)


def test_memory_over_its_bound_goes_by_lanes_and_spares_what_is_held() -> None:
    core = _websocket(max_state_bytes=6_500)
    held = core.id_of(core.create(lane="held", hold=True, store=False))
    core.call("f", "call_1")
    core.finish()
    ids = [core.id_of(core.create("x" * 1_500, lane=f"l{n}", generate=False, store=False)) for n in range(4)]
    assert [core.session.find(each) is not None for each in ids] == [False, False, True, True]
    assert core.session.find(held) is not None


def test_a_response_that_failed_is_stored_to_be_retrieved_and_for_nothing_else() -> None:
    core = Core()
    failed = core.id_of(core.create())
    core.say("part")
    core.end(EngineFailure("server_error", "broken"))
    state = core.store[failed]
    assert (state.status, state.continuable) == (ResponseStatus.RESPONSE_STATUS_FAILED, False)
    assert state.error is not None
    assert state.error.code == "server_error"
    core.create(previous_response_id=failed)
    assert core.last("rejected").error.code == "previous_response_not_found"


@pytest.mark.parametrize("store", [True, False])
def test_what_may_not_be_stored_is_not_stored_when_it_fails_either(store: bool) -> None:
    core = Core()
    running = core.create(store=store)
    waiting = core.create(store=store)
    for request in (waiting, running):
        core.send({"cancel": {"target_request_id": request}})
    assert (core.id_of(running) in core.store) == store
    # Of what had not begun nobody knows whether it may be.
    assert core.id_of(waiting) not in core.store


def test_a_held_response_that_failed_shows_what_it_had_finished_and_goes_on_from_its_pause() -> None:
    core = Core()
    held = core.id_of(core.create(hold=True))
    core.call("f", "call_1")
    core.finish()
    core.append(held, "call_1")
    core.call("f", "call_2")
    core.end(EngineFailure("server_error", "broken"))
    state = core.store[held]
    shown = [item.WhichOneof("kind") for item in state.response().output]
    assert shown == ["function_call", "function_call_output", "function_call"]
    assert state.continuable
    assert state.transcript.length == 3


def test_a_response_at_work_is_seen_as_it_is() -> None:
    core = Core()
    running = core.id_of(core.create(instructions="be brief"))
    core.create()
    (waiting,) = [run for run in core.session._context.by_id if run != running]  # pyright: ignore[reportPrivateUsage]
    core.say("half")
    core.call("f", "call_1")
    seen = core.session.snapshot(running)
    assert seen is not None
    response = seen.response()
    assert response.status == ResponseStatus.RESPONSE_STATUS_IN_PROGRESS
    assert [item.WhichOneof("kind") for item in response.output] == ["message", "function_call"]
    assert response.instructions == "be brief"
    assert not response.HasField("usage")
    queued = core.session.snapshot(waiting)
    assert queued is not None
    assert queued.status == ResponseStatus.RESPONSE_STATUS_QUEUED
    core.finish(pass_id=1)
    assert core.session.snapshot(running) is None
