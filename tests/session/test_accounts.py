"""The core asks for a record before it announces how a response stands, and goes by the answer."""

from __future__ import annotations

import pytest

from turnwire.server.session.accounts import Spending
from turnwire.server.session.chunks import Finish, PassUsage
from turnwire.server.session.effects import Persist
from turnwire.server.session.screens import Direction, Hit, Safety
from turnwire.server.session.state import State
from turnwire.v1.response_pb2 import DoneReason, ResponseStatus

from .core import Core, tool
from .screening import LetterScreener


class Keeper:
    """Keeps records, unless it is told to refuse."""

    def __init__(self) -> None:
        self.records: list[tuple[Spending, State | None]] = []
        self.refuses = False

    def __call__(self, spent: Spending, state: State | None) -> bool:
        self.records.append((spent, state))
        return not self.refuses

    @property
    def outcomes(self) -> list[tuple[str, int, int, int]]:
        return [(spent.outcome, spent.passes, spent.input_tokens, spent.output_tokens) for spent, _ in self.records]


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


@pytest.fixture
def core(keeper: Keeper) -> Core:
    return Core(keep=keeper)


def persisted(core: Core) -> list[tuple[ResponseStatus.ValueType, bool]]:
    return [(effect.state.status, effect.recorded) for effect in core.effects if isinstance(effect, Persist)]


def test_a_response_is_recorded_once_with_its_state(core: Core, keeper: Keeper) -> None:
    request = core.create()
    core.say("well")
    core.finish()

    ((spent, state),) = keeper.records
    assert (spent.response_id, spent.outcome, spent.passes) == (core.id_of(request), "completed", 1)
    assert state is core.session.find(spent.response_id)
    assert persisted(core) == [(ResponseStatus.RESPONSE_STATUS_COMPLETED, True)]


def test_a_response_that_is_not_stored_is_recorded_without_its_state(core: Core, keeper: Keeper) -> None:
    core.create(store=False)
    core.finish()

    assert [state for _, state in keeper.records] == [None]
    assert persisted(core) == []


def test_nobody_hears_of_what_was_not_recorded(core: Core, keeper: Keeper) -> None:
    first = core.create()
    core.finish()
    keeper.refuses = True

    second = core.create(previous_response_id=core.id_of(first))
    core.finish()

    done = core.last("done")
    assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "server_error")
    assert not done.continuable
    assert core.session.find(core.id_of(second)) is None
    assert core.session.find(core.id_of(first)) is not None
    # It tried to record the failure too.
    assert [outcome for outcome, *_ in keeper.outcomes] == ["completed", "completed", "failed"]


def test_what_waits_for_a_response_that_was_not_recorded_cannot_go_on_from_it(core: Core, keeper: Keeper) -> None:
    first = core.create()
    core.create(previous_response_id=core.id_of(first))
    keeper.refuses = True

    core.finish()

    assert core.last("rejected").error.code == "previous_response_not_found"


def test_a_pause_that_was_not_recorded_ends_the_hold(core: Core, keeper: Keeper) -> None:
    keeper.refuses = True
    core.create(hold=True, tools={"tools": [tool("look")]})
    core.call("look", "call_1")

    core.finish()

    done = core.last("done")
    assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "server_error")
    assert list(done.void_call_ids) == ["call_1"]
    assert core.kinds().count("done") == 1
    keeper.refuses = False
    core.create()
    core.finish()
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED


def test_a_hold_that_ends_after_a_pause_costs_nothing_more(core: Core, keeper: Keeper) -> None:
    request = core.create(hold=True, tools={"tools": [tool("look")]})
    core.call("look", "call_1")
    core.finish()
    core.send({"cancel": {"response_id": core.id_of(request)}})

    paused, cancelled = keeper.outcomes
    assert paused[:2] == ("paused", 1)
    assert cancelled == ("cancelled", 1, 0, 0)
    assert sum(paused[2:]) > 0


def test_what_is_refused_is_not_recorded(core: Core, keeper: Keeper) -> None:
    core.create(previous_response_id="resp_none")

    assert core.last("rejected").error.code == "previous_response_not_found"
    assert keeper.records == []


def test_one_that_was_cancelled_while_it_waited_is_recorded_and_cost_nothing(core: Core, keeper: Keeper) -> None:
    core.create()
    waiting = core.create()
    core.send({"cancel": {"target_request_id": waiting}})

    assert keeper.outcomes == [("cancelled", 0, 0, 0)]


def test_a_session_that_is_lost_records_what_it_had_at_work(core: Core, keeper: Keeper) -> None:
    core.create(lane="a")
    core.say("said so far")
    core.create(lane="b")

    core.session.lost(core.now)

    assert sorted(outcome for outcome, *_ in keeper.outcomes) == ["cancelled", "cancelled"]
    said = next(spent for spent, _ in keeper.records if spent.output_tokens)
    assert said.estimated


def lines(keeper: Keeper) -> list[tuple[str, bool, bool, int, int]]:
    """What was recorded last: the outcome, whether it is an estimate and has a prompt, cached and output tokens."""
    spent = keeper.records[-1][0]
    return [(spent.outcome, spent.estimated, spent.input_tokens > 0, spent.cached_tokens, spent.output_tokens)]


def test_what_was_sampled_before_the_input_was_flagged_is_counted(keeper: Keeper) -> None:
    core = Core(keep=keeper, safety=Safety(remote=frozenset({Direction.INPUT})))
    core.create("hello")
    core.say("two", "tokens")
    core.judge(Hit("weapons", blocks=True, code="cyber_policy"))

    assert lines(keeper) == [("failed", True, True, 0, 2)]


def test_what_an_engine_told_before_the_verdict_is_what_is_counted(keeper: Keeper) -> None:
    core = Core(keep=keeper, safety=Safety(remote=frozenset({Direction.INPUT})))
    request = core.create("hello")
    core.say("all of it")
    core.end(Finish(usage=PassUsage(input_tokens=100, cached_tokens=40, output_tokens=7)))
    core.send({"cancel": {"response_id": core.id_of(request)}})

    ((spent, _),) = keeper.records
    assert (spent.input_tokens, spent.cached_tokens, spent.output_tokens) == (100, 40, 7)
    assert not spent.estimated


def test_an_answer_that_is_cut_off_costs_what_was_sampled_and_leaves_what_was_said(keeper: Keeper) -> None:
    core = Core(keep=keeper, safety=Safety(screener=LetterScreener()))
    first = core.create("hello")
    core.say("well")
    core.end(Finish(usage=PassUsage(input_tokens=100, output_tokens=1)))
    second = core.create("more", previous_response_id=core.id_of(first))
    core.say("well ")
    core.say("z and a lot more that nobody is told")

    state = core.session.find(core.id_of(second))
    assert state is not None
    (outcome, estimated, prompted, cached, output), *_ = lines(keeper)
    assert (outcome, estimated, prompted, output) == ("incomplete", True, True, 2)
    assert 0 < cached <= state.transcript.tokens
    # The prompt as it was counted, and the one token that was said.
    assert state.context_tokens == keeper.records[-1][0].input_tokens + 1
