"""Verdicts: what a flag ends, what waits for an answer, and that nothing else is held up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from turnwire.server.session.chunks import FinishReason
from turnwire.server.session.effects import AbortPass, StartPass, ToolResult
from turnwire.server.session.screens import SILENCE, Classify, Direction, Flagged, Hit, Overlap, Safety, Screened, Tails
from turnwire.server.session.verdicts import METADATA_KEY
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import DoneReason, IncompleteDetails

from .core import Core, tool
from .screening import LetterScreener

LOCAL = Safety(screener=LetterScreener())
INPUT = Safety(remote=frozenset({Direction.INPUT}))
OUTPUT = Safety(remote=frozenset({Direction.OUTPUT}), piece=10, overlap=3)
BAD = Hit("weapons", blocks=True, code="cyber_policy")
ODD = Hit("odd", blocks=False)


def said(core: Core) -> str:
    return "".join(event.output_text_delta.delta for event in core.events)


def flags(core: Core) -> list[tuple[str, str, bool]]:
    return [(e.direction.value, e.category, e.stopped) for e in core.effects if isinstance(e, Flagged)]


def aborted(core: Core) -> bool:
    return any(isinstance(effect, AbortPass) for effect in core.effects)


def started(core: Core) -> int:
    return sum(isinstance(effect, StartPass) for effect in core.effects)


def test_a_flag_of_the_local_classifier_refuses_a_request_before_a_response_exists() -> None:
    core = Core(safety=LOCAL)
    core.create("z")
    assert core.kinds() == ["rejected"]
    error = core.last("rejected").error
    assert (error.code, error.metadata["category"]) == ("invalid_prompt", "z")
    assert not started(core)
    assert flags(core) == [("input", "z", True)]


def test_inference_starts_before_the_verdict_and_nothing_leaves_before_it() -> None:
    core = Core(safety=INPUT)
    core.create("hello")
    # The question goes out first, and the pass does not wait for the answer.
    order = [type(effect) for effect in core.effects if isinstance(effect, (Classify, StartPass))]
    assert order == [Classify, StartPass]
    core.say("one ", "two")
    assert said(core) == ""
    core.judge()
    assert said(core) == "one two"
    core.say(" three")
    core.finish()
    assert said(core) == "one two three"
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED


def test_a_flag_that_comes_after_inference_began_fails_the_response_and_frees_the_engine() -> None:
    core = Core(safety=INPUT)
    request = core.create("hello")
    core.say("never seen")
    core.judge(BAD)
    done = core.last("done")
    assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "cyber_policy")
    assert said(core) == ""
    assert not core.prompts
    assert not done.continuable
    assert core.session.find(core.id_of(request)) is None
    assert core.kinds().count("created") == 1


def test_a_pass_that_ends_before_the_verdict_is_told_after_it() -> None:
    core = Core(safety=INPUT)
    core.create("hello")
    core.say("all of it")
    core.finish()
    assert core.kinds() == ["created"]
    core.judge()
    assert said(core) == "all of it"
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED


def test_what_waits_for_a_verdict_can_be_cancelled() -> None:
    core = Core(safety=INPUT)
    request = core.create("hello")
    core.say("all of it")
    core.finish()
    core.send({"cancel": {"response_id": core.id_of(request)}})
    assert core.last("done").reason == DoneReason.DONE_REASON_CANCELLED
    core.judge(BAD)
    assert said(core) == ""
    assert flags(core) == [("input", "weapons", False)]


def test_a_flag_of_the_output_ends_the_response_as_incomplete_and_frees_the_engine() -> None:
    core = Core(safety=LOCAL)
    request = core.create("hello")
    core.say("well ", "well")
    core.say(" z and more")
    done = core.last("done")
    assert done.reason == DoneReason.DONE_REASON_INCOMPLETE
    assert done.incomplete_details == IncompleteDetails(reason="content_filter")
    assert said(core) == "well well"
    assert aborted(core)
    assert not core.prompts
    assert done.usage.output_tokens == 3
    state = core.session.find(core.id_of(request))
    assert state is not None
    assert [entry.text() for entry in state.output] == ["well well"]
    assert flags(core) == [("output", "z", True)]


def test_what_may_be_the_beginning_of_something_waits_until_it_is_known() -> None:
    core = Core(safety=LOCAL)
    core.create("hello")
    core.say("it is ", "x")
    assert said(core) == "it is "
    core.say("ylophone")
    assert said(core) == "it is xylophone"
    core.say("x")
    core.finish()
    assert said(core) == "it is xylophonex"


def test_a_call_waits_for_the_text_before_it() -> None:
    core = Core(safety=INPUT)
    core.create("hello", tools={"tools": [tool("f")]})
    core.say("let me see")
    core.call("f", "call_1")
    core.finish()
    assert core.kinds() == ["created"]
    core.judge()
    assert "function_call_arguments_delta" in core.kinds()
    assert core.last("done").awaiting_call_ids == ["call_1"]


def test_observing_stops_nothing_and_tells_of_it() -> None:
    core = Core(safety=Safety(gate=False, screener=LetterScreener(), remote=frozenset(Direction), piece=1))
    core.create("z", echo=True)
    core.say("one")
    assert said(core) == "one"
    core.say(" z")
    while core.questions:
        core.judge(BAD)
    core.finish()
    done = core.last("done")
    assert said(core) == "one z"
    assert done.reason == DoneReason.DONE_REASON_COMPLETED
    assert done.response.metadata[METADATA_KEY] == "z,weapons"
    assert {flag for flag in flags(core) if flag[2]} == set()
    assert ("input", "z", False) in flags(core)
    assert ("output", "weapons", False) in flags(core)


def test_a_category_that_only_counts_stops_nothing_in_a_gate_either() -> None:
    core = Core(safety=INPUT)
    core.create("hello", metadata={"mine": "1"}, echo=True)
    core.say("fine")
    core.judge(ODD)
    core.finish()
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED
    assert dict(core.last("done").response.metadata) == {"mine": "1", METADATA_KEY: "odd"}


def test_no_verdict_stops_where_that_is_configured() -> None:
    core = Core(safety=INPUT)
    core.create("hello")
    core.say("never seen")
    core.judge(failed=True)
    assert core.last("done").error.code == "server_error"
    assert said(core) == ""


def test_a_failed_verdict_of_the_output_stops_it_too() -> None:
    core = Core(safety=OUTPUT)
    core.create("hello")
    core.say("0123456789")
    core.judge(failed=True)
    assert core.last("done").error.code == "server_error"
    assert said(core) == ""


def test_output_that_is_classified_elsewhere_leaves_in_order_whatever_the_order_of_the_answers() -> None:
    core = Core(safety=OUTPUT)
    core.create("hello")
    core.say("0123456789")
    core.say("abcdefghij")
    core.say("rest")
    assert [question.text for question in core.questions] == ["0123456789", "789abcdefghij"]
    core.judge(index=1)
    assert said(core) == ""
    core.judge()
    assert said(core) == "0123456789abcdefghij"
    core.finish()
    core.judge()
    assert said(core) == "0123456789abcdefghijrest"
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED


def test_output_that_is_flagged_elsewhere_does_not_leave() -> None:
    core = Core(safety=OUTPUT)
    core.create("hello")
    core.say("0123456789")
    core.judge()
    core.say("abcdefghij")
    core.judge(BAD)
    assert said(core) == "0123456789"
    assert core.last("done").incomplete_details.reason == "content_filter"
    assert not core.prompts


def test_a_pass_that_is_over_ends_as_incomplete_if_its_last_words_are_flagged_elsewhere() -> None:
    core = Core(safety=OUTPUT)
    core.create("hello")
    core.say("short")
    core.finish()
    core.judge(BAD)
    assert said(core) == ""
    assert core.last("done").incomplete_details.reason == "content_filter"


def test_an_engine_is_paused_while_too_much_of_its_output_waits() -> None:
    core = Core(safety=INPUT, queue_high_water=1_000, queue_low_water=100)
    core.create("hello")
    core.say("y" * 2_000)
    assert core.engine_paused == {core.newest}
    core.judge()
    assert not core.engine_paused
    assert len(said(core)) == 2_000


def held(core: Core, *, safety_says: str = "call me") -> str:
    request = core.create("hello", tools={"tools": [tool("f"), tool("hosted_h")]}, hold=True)
    for _ in list(core.questions):
        core.judge()
    core.call("f", "call_1")
    core.finish()
    return core.id_of(request)


def test_a_flagged_append_is_refused_and_the_hold_lives() -> None:
    core = Core(safety=LOCAL)
    response = held(core)
    core.append(response, "call_1", text="z")
    assert core.last("rejected").error.code == "invalid_prompt"
    assert started(core) == 1
    core.append(response, "call_1", text="well")
    assert core.kinds().count("appended") == 1
    assert started(core) == 2


def test_an_append_waits_for_the_answer_from_elsewhere() -> None:
    core = Core(safety=INPUT)
    response = held(core)
    core.append(response, "call_1")
    assert "appended" not in core.kinds()
    core.judge(BAD)
    assert core.last("rejected").error.code == "cyber_policy"
    core.append(response, "call_1")
    core.judge()
    assert "appended" in core.kinds()
    core.say("done")
    core.finish()
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED


@pytest.mark.parametrize("safety", [LOCAL, INPUT], ids=["local", "remote"])
def test_what_a_hosted_tool_brings_is_input(safety: Safety) -> None:
    core = Core(safety=safety)
    core.create("hello", tools={"tools": [tool("hosted_h")]})
    for _ in list(core.questions):
        core.judge()
    core.call("hosted_h", "call_1")
    core.finish()
    call = core.tools.pop()
    core.session.tool_finished(core.now, call.pass_id, call.call_id, ToolResult("z"))
    core.settle()
    if core.questions:
        assert core.questions[0].text.startswith("z")
        core.judge(BAD)
    assert core.last("done").reason == DoneReason.DONE_REASON_FAILED
    assert core.last("done").error.code in ("invalid_prompt", "cyber_policy")
    assert "mcp_call_completed" not in core.kinds()
    assert started(core) == 1


def test_a_warm_up_waits_for_the_verdict_before_it_can_be_continued() -> None:
    core = Core(safety=INPUT)
    request = core.create("hello", generate=False)
    assert core.session.find(core.id_of(request)) is None
    core.judge()
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED
    assert core.session.find(core.id_of(request)) is not None


def test_listings_that_precede_a_pass_wait_for_the_verdict() -> None:
    core = Core(safety=INPUT)
    core.create("hello", tools={"tools": [{"mcp": {"server_label": "hosted_m"}}]})
    assert not core.tools
    core.judge()
    assert len(core.tools) == 1


class Remembering(LetterScreener):
    """Remembers everything that was said, and how often it looked."""

    def __init__(self) -> None:
        self.looks = 0

    def screen(self, item: Item) -> tuple[Screened, ...]:
        self.looks += 1
        text = item.message.content.text.encode()
        return (Screened((), text, text, whole=True, model=False),)

    def follow(self, overlap: Overlap, screened: Sequence[Screened]) -> tuple[Overlap, tuple[Hit, ...]]:
        text = overlap.client.joined + b"".join(one.head for one in screened)
        hits = (BAD,) if text.endswith(b"bomb") else ()
        return Overlap(Tails(text, text), overlap.model), hits


def turn(core: Core, text: str, **body: Any) -> str:
    request = core.create(text, **body)
    core.finish()
    return core.id_of(request)


def test_what_is_written_over_two_turns_is_found_and_each_item_is_looked_at_once() -> None:
    screener = Remembering()
    core = Core(safety=Safety(screener=screener))
    first = turn(core, "a bo")
    second = turn(core, " x", previous_response_id=first)
    assert screener.looks == 2
    # A fork remembers what was said on its own way.
    core.create("mb", previous_response_id=second)
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED
    core.finish()
    core.create("mb", previous_response_id=first)
    assert core.last("rejected").error.code == "cyber_policy"
    assert screener.looks == 4


def test_without_being_incremental_the_whole_conversation_is_looked_at_every_turn() -> None:
    screener = Remembering()
    core = Core(safety=Safety(screener=screener, whole=True))
    previous = turn(core, "one")
    looks: list[int] = []
    for _ in range(3):
        before = screener.looks
        previous = turn(core, "more", previous_response_id=previous)
        looks.append(screener.looks - before)
    assert looks == [2, 3, 4]


def test_a_chain_from_the_store_recalls_its_last_words() -> None:
    screener = Remembering()
    core = Core(safety=Safety(screener=screener))
    first = turn(core, "a bo", store=True)
    later = Core(safety=Safety(screener=screener), store=core.store)
    for state in later.store.values():
        # As the store gives it back: without memos.
        state.transcript.overlap = None
    later.create("mb", previous_response_id=first)
    assert later.last("rejected").error.code == "cyber_policy"


def test_what_came_before_a_flag_of_the_output_can_be_continued_from() -> None:
    core = Core(safety=LOCAL)
    first = core.create("hello")
    core.say("well")
    core.say("z")
    core.create("again", previous_response_id=core.id_of(first))
    core.say("fine")
    core.finish(FinishReason.STOP)
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED


def test_nothing_is_remembered_where_nobody_looks() -> None:
    core = Core()
    request = turn(core, "hello")
    state = core.session.find(request)
    assert state is not None
    assert state.transcript.overlap is None
    assert Overlap(Tails(b"", b""), Tails(b"", b"")) == SILENCE
