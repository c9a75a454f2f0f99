from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.session.chunks import Channel, EngineFailure, Finish, FinishReason, PassUsage, TextChunk

if TYPE_CHECKING:
    from tests.engine.conftest import MakePrompt, RecordingSink

    from turnwire.server.engine.port import Engine

WORDS = [TextChunk(Channel.TEXT, "a"), TextChunk(Channel.TEXT, "b")]


def is_an_engine(engine: StepEngine) -> Engine:
    return engine


def test_output_comes_when_the_test_says_so(new_prompt: MakePrompt, sink: RecordingSink) -> None:
    engine = StepEngine([ModelInfo("m")])
    assert is_an_engine(engine).models() == (ModelInfo("m"),)
    prompt = new_prompt()
    engine.start(prompt, sink)
    assert engine.find(0).prompt is prompt
    assert sink.chunks == []
    engine.emit("resp_1", WORDS)
    assert sink.chunks == WORDS
    engine.finish(0, FinishReason.LENGTH, PassUsage(output_tokens=2))
    assert sink.outcomes == [Finish(FinishReason.LENGTH, PassUsage(output_tokens=2))]


def test_a_failure_reaches_the_sink(new_prompt: MakePrompt, sink: RecordingSink) -> None:
    engine = StepEngine()
    engine.start(new_prompt(), sink)
    engine.fail(-1, "server_is_overloaded", "busy", 3.0)
    assert sink.outcomes == [EngineFailure("server_is_overloaded", "busy", 3.0)]


def test_a_response_id_means_its_newest_pass(new_prompt: MakePrompt, sink: RecordingSink) -> None:
    engine = StepEngine()
    for turn, response_id in enumerate(["resp_1", "resp_1", "resp_2"]):
        engine.start(new_prompt(turn=turn, response_id=response_id), sink)
    assert engine.find("resp_1") is engine.passes[1]
    assert engine.find(-1) is engine.passes[2]
    with pytest.raises(LookupError, match="no pass 'resp_3' among the 3 started"):
        engine.find("resp_3")


def test_nothing_can_be_output_after_the_end(new_prompt: MakePrompt, sink: RecordingSink) -> None:
    engine = StepEngine()
    engine.start(new_prompt(), sink).abort()
    engine.start(new_prompt(), sink)
    engine.finish(1)
    with pytest.raises(RuntimeError, match="aborted"):
        engine.emit(0, WORDS)
    with pytest.raises(RuntimeError, match="over"):
        engine.finish(1)


async def test_a_test_can_wait_for_starts_and_for_what_a_pass_is_told(
    new_prompt: MakePrompt, sink: RecordingSink
) -> None:
    engine = StepEngine()

    async def play() -> None:
        await asyncio.sleep(0)
        first = engine.start(new_prompt(), sink)
        second = engine.start(new_prompt(), sink)
        await asyncio.sleep(0)
        first.pause()
        await asyncio.sleep(0)
        first.resume()
        second.abort()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(play())
        first, second = await engine.started(2)
        await engine.told(0, "pause")
        assert first.paused
        await engine.told(1, "abort")
    assert first.calls == ["pause", "resume"]
    assert second.aborted
    await engine.started(1)


async def test_closing_aborts_what_is_not_over(new_prompt: MakePrompt, sink: RecordingSink) -> None:
    engine = StepEngine()
    engine.start(new_prompt(), sink)
    engine.start(new_prompt(), sink)
    engine.finish(0)
    await engine.aclose()
    assert [each.calls for each in engine.passes] == [[], ["abort"]]
