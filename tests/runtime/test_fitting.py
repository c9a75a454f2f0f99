"""Prompts that do not fit are refused before the response exists, where the engine can count them."""

from __future__ import annotations

import asyncio

import pytest

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import ModelProfile
from turnwire.server.engine.profiled import ProfiledEngine
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.session.prompt import Prompt
from turnwire.server.testing import ManualClock, make_services
from turnwire.v1.errors import reject
from turnwire.v1.response_pb2 import DoneReason

from .conftest import Desk


class Counting(StepEngine):
    """Counts the characters of all items: twice what the server counts of these."""

    def __init__(self, context_length: int | None) -> None:
        super().__init__([ModelInfo("stepped", context_length=context_length)])
        self.counted: list[Prompt] = []
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.cannot = False

    async def count(self, prompt: Prompt) -> int | None:
        self.counted.append(prompt)
        self.asked.set()
        await self.gate.wait()
        if self.cannot:
            raise reject("invalid_request_error", "This cannot be said.")
        return sum(len(entry.item().message.content.text) for entry in prompt.transcript.walk())


def desk_of(engine: Counting, profile: ModelProfile | None = None) -> Desk:
    served = (
        ProfiledEngine(
            engine, [ModelInfo("stepped", context_length=profile.context_length, profile=profile)], counts=True
        )
        if profile
        else engine
    )
    clock = ManualClock()
    return Desk(make_services([served], clock=clock), engine, clock)


async def test_a_prompt_that_does_not_fit_is_refused_before_its_response_exists() -> None:
    engine = Counting(100)
    desk = desk_of(engine)
    desk.create("a " * 50, "long")
    refused = (await desk.until("rejected")).rejected
    assert (refused.request_id, refused.error.code, refused.error.param) == ("long", "context_length_exceeded", "input")
    assert refused.error.message == (
        "Your input exceeds the context window of this model: 100 tokens of at most 99."
        " Please adjust your input and try again."
    )
    assert engine.passes == []
    desk.create("a " * 49, "shorter")
    assert (await desk.until("created")).created.request_id == "shorter"
    desk.runner.abandon()


async def test_a_large_request_is_counted_too() -> None:
    engine = Counting(100_000)
    desk = desk_of(engine)
    desk.create("a " * 50_000)
    assert (await desk.until("rejected")).rejected.error.code == "context_length_exceeded"
    desk.runner.abandon()


async def test_the_history_counts_and_so_do_tools_and_instructions() -> None:
    engine = Counting(100)
    desk = desk_of(engine)
    desk.create("a " * 30)
    first = (await desk.until("created")).created.response.id
    engine.finish(0)
    await desk.until("done")
    desk.create("a " * 20, "second", previous_response_id=first)
    assert (await desk.until("rejected")).rejected.request_id == "second"
    engine.counted.clear()
    desk.create("hi", instructions="x" * 300)
    await desk.until("created")
    assert [prompt.settings.instructions for prompt in engine.counted] == ["x" * 300]
    desk.runner.abandon()


@pytest.mark.parametrize(("context", "text"), [(None, "word " * 100), (100_000, "word " * 100)])
async def test_a_prompt_far_from_any_limit_is_not_counted(context: int | None, text: str) -> None:
    engine = Counting(context)
    desk = desk_of(engine)
    desk.create(text)
    await desk.until("created")
    assert engine.counted == []
    desk.runner.abandon()


async def test_a_limit_of_the_operators_holds_for_engines_that_count() -> None:
    engine = Counting(None)
    desk = desk_of(engine, ModelProfile(context_length=50))
    desk.create("a " * 25)
    assert (await desk.until("rejected")).rejected.error.code == "context_length_exceeded"
    desk.runner.abandon()


async def test_what_cannot_be_rendered_is_refused_as_the_engine_says() -> None:
    engine = Counting(10)
    engine.cannot = True
    desk = desk_of(engine)
    desk.create("word " * 10)
    error = (await desk.until("rejected")).rejected.error
    assert (error.code, error.message) == ("invalid_request_error", "This cannot be said.")
    desk.runner.abandon()


async def test_a_request_that_is_cancelled_while_it_is_counted_is_let_go() -> None:
    engine = Counting(100)
    engine.gate.clear()
    desk = desk_of(engine)
    desk.create("a " * 48, "slow")
    async with asyncio.timeout(5):
        await engine.asked.wait()
    desk.send({"cancel": {"target_request_id": "slow"}})
    assert (await desk.until("done")).done.reason == DoneReason.DONE_REASON_CANCELLED
    engine.gate.set()
    desk.create("hi", "next")
    assert (await desk.until("created")).created.request_id == "next"
    desk.runner.abandon()
