"""Where the time of a pass went, as its `done` tells it; the clock moves as the tests say."""

from __future__ import annotations

import pytest

from turnwire.v1.usage_pb2 import StageTimes

from .core import Core


def times(core: Core) -> StageTimes:
    found: StageTimes = core.last("done").times
    return found


def paused(core: Core) -> str:
    """Brings a response to a pause at 1 s, and returns its id."""
    request_id = core.create(hold=True)
    core.answer()
    core.call("f", "c1")
    core.advance(1.0)
    core.finish()
    return core.id_of(request_id)


def test_a_create_is_the_servers_work_until_its_prompt_is_in_the_engines_hands() -> None:
    core = Core(manual=True)
    core.create()
    core.advance(0.25)  # it is checked
    core.answer()
    core.advance(0.5)  # the prompt is rendered and handed over
    core.session.engine_started(core.now, core.newest)
    core.advance(1.0)
    core.say("a")
    core.advance(2.0)
    core.finish()
    found = times(core)
    assert (found.pre_inference, found.first_token, found.inference) == (0.75, 1.0, 3.0)
    assert (found.client_wait, found.post_inference) == (0.0, 0.0)


def test_an_append_is_the_servers_work_from_the_moment_it_came() -> None:
    core = Core(manual=True)
    response_id = paused(core)
    core.advance(4.0)  # the client's tool runs
    core.append(response_id, "c1")
    core.advance(0.25)  # its output is checked
    core.answer()
    core.advance(0.5)
    core.session.engine_started(core.now, core.newest)
    core.advance(1.0)
    core.say("a")
    core.finish()
    found = times(core)
    assert (found.client_wait, found.pre_inference, found.first_token) == (4.0, 0.75, 1.0)


def test_an_append_that_was_being_checked_at_the_pause_has_waited_for_that() -> None:
    core = Core(manual=True)
    request_id = core.create(hold=True)
    core.answer()
    core.call("f", "c1")
    core.append(core.id_of(request_id), "c1")
    core.advance(3.0)
    core.finish()
    core.advance(0.5)
    core.answer()
    core.say("a")
    core.finish()
    found = times(core)
    assert (found.client_wait, found.pre_inference) == (0.0, 0.5)


def test_an_engine_that_answered_before_it_said_so_keeps_its_first_token() -> None:
    core = Core()
    core.create()
    core.advance(1.0)
    core.say("a")
    core.advance(1.0)
    core.session.engine_started(core.now, core.newest)
    core.finish()
    assert (times(core).pre_inference, times(core).first_token) == (0.0, 1.0)


def test_a_pass_that_is_gone_cannot_start() -> None:
    core = Core()
    request_id = core.create()
    gone = core.newest
    core.send({"cancel": {"response_id": core.id_of(request_id)}})
    core.session.engine_started(core.now, gone)
    assert core.last("done").times.inference == pytest.approx(0.0)


def test_what_the_core_takes_to_end_a_pass_is_told() -> None:
    ahead = 0.0
    core = Core(moment=lambda: core.now + ahead)
    core.create()
    core.say("a")
    core.advance(2.0)
    ahead = 0.125
    core.finish()
    assert (times(core).inference, times(core).post_inference) == (2.0, 0.125)
