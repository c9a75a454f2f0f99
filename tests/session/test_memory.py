"""What a session keeps, and what it must not keep."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import gc

from turnwire.server.session.effects import PassEnded, ResponseEnded
from turnwire.server.session.run import Run
from turnwire.v1.response_pb2 import DoneReason

from .core import Core


def runs_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Run) for each in gc.get_objects())


def test_what_answers_repeats_keeps_no_conversation() -> None:
    core = Core()
    for number in range(5):
        request_id = core.create(lane=str(number), hold=True)
        core.call("f", "c1")
        core.finish()
        core.send({"steer": {"previous_response_id": core.id_of(request_id), "input": {"text": "x"}}})
        core.append(core.id_of(request_id), "c1")
        core.finish()
        core.send({"cancel": {"response_id": core.id_of(request_id)}})
    core.effects.clear()
    assert runs_alive() == 0


def test_a_long_session_keeps_no_trace_of_what_ended() -> None:
    core = Core(request_memory=10, max_responses=4)
    for _ in range(300):
        core.create(store=False)
        core.say("x")
        core.finish()
    context = core.session._context
    assert len(context.retention) <= 5
    assert len(context.ended) <= 10
    assert len(context.ended_requests) <= 10
    assert len(context.deadlines) < 150
    assert context.retention.bytes < 20_000


def test_a_continuation_keeps_once_what_it_shares_with_what_it_goes_on_from() -> None:
    core = Core()
    parent_id = core.id_of(core.create())
    core.finish()
    response_id = core.id_of(core.create(previous_response_id=parent_id))
    core.finish()
    parent, state = (core.session._context.retention.find(each) for each in (parent_id, response_id))
    assert parent is not None
    assert state is not None
    assert state.parent_id is parent.id
    assert state.listings is parent.listings


def test_the_request_is_let_go_when_it_was_prepared() -> None:
    core = Core()
    core.create("x" * 100_000)
    (run,) = core.session._context.runs.values()
    assert run.request is None
    assert core.session._context.request_bytes == 0


def test_every_pass_is_reported_once() -> None:
    core = Core()
    request_id = core.create(hold=True)
    core.call("f", "c1")
    core.finish()
    core.append(core.id_of(request_id), "c1")
    core.call("f", "c2")
    core.finish()
    core.send({"cancel": {"response_id": core.id_of(request_id)}})
    assert sum(isinstance(effect, PassEnded) for effect in core.effects) == 2
    (ended,) = [effect for effect in core.effects if isinstance(effect, ResponseEnded)]
    assert (ended.outcome, ended.passes) == ("cancelled", 2)


def test_usage_of_dones_adds_up() -> None:
    core = Core()
    request_id = core.create("one two", hold=True)
    core.call("f", "c1")
    core.finish()
    core.append(core.id_of(request_id), "c1")
    core.finish()
    dones = [event.done for event in core.events if event.WhichOneof("event") == "done"]
    assert [done.reason for done in dones] == [DoneReason.DONE_REASON_TOOL_CALLS, DoneReason.DONE_REASON_COMPLETED]
    assert sum(done.pass_usage.input_tokens for done in dones) == dones[-1].usage.input_tokens


def test_a_lost_client_leaves_nothing_behind() -> None:
    core = Core()
    core.create(lane="a", hold=True)
    core.call("f", "c1")
    core.finish()
    core.create(lane="b")
    core.create(lane="b")
    core.session.lost(core.now)
    core.settle()
    assert not core.prompts
    assert core.session.next_deadline() is None
    assert core.session.gauges().in_flight == core.session.gauges().queued == 0
    core.effects.clear()
    assert runs_alive() == 0
