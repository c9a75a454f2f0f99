"""The local engine over a llama.cpp that says what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.engine import LocalEngine
from turnwire.server.engine.local.llama import Loaded
from turnwire.server.engine.port import Engine
from turnwire.server.session.chunks import CallEnd, FinishReason, PassUsage
from turnwire.server.session.transcript import EMPTY

from .scene import (
    FakeLlama,
    Gate,
    OnEvent,
    RecordingSink,
    answered,
    grown,
    hello,
    prompt,
    text_event,
    tool_set,
    usage_event,
)

if TYPE_CHECKING:
    from .conftest import Make

HI = grown(EMPTY, "Hi")
ADD = tool_set({"type": "function", "name": "add", "parameters": {"type": "object"}})


def is_an_engine(engine: LocalEngine) -> Engine:
    return engine


def gated(gate: Gate) -> Callable[[dict[str, Any], OnEvent], None]:
    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        gate.wait()
        hello(body, on_event)

    return script


async def test_a_pass_asks_and_pushes_the_answer(make_engine: Make, llama: FakeLlama, sink: RecordingSink) -> None:
    engine = make_engine()
    assert is_an_engine(engine).name == "local"
    assert [(model.id, model.context_length) for model in engine.models()] == [("m", 100)]
    engine.start(prompt(HI, temperature=0.5, max_output_tokens=9), sink)
    assert sink.chunks == []
    finish = await sink.finish()
    assert sink.text == "Hello."
    assert (finish.reason, finish.usage) == (FinishReason.STOP, PassUsage(7, 3, 2, 0))
    [body] = llama.bodies
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert (body["temperature"], body["max_tokens"], body["stream"]) == (0.5, 9, True)
    assert (body["id_slot"], body["cache_prompt"], body["return_progress"]) == (0, True, True)
    assert engine.running == 0


async def test_each_chain_has_its_slot(make_engine: Make, llama: FakeLlama) -> None:
    engine = make_engine(slots=2)
    chains = [grown(EMPTY, "a"), grown(EMPTY, "b")]
    for _ in range(3):
        for number, chain in enumerate(chains):
            sink = RecordingSink()
            engine.start(prompt(chain), sink)
            await sink.finish()
            chains[number] = grown(answered(chain), "more")
    assert llama.slots() == [0, 1] * 3
    assert engine.slots.stayed == 4


async def test_without_pinning_llama_chooses(make_engine: Make, llama: FakeLlama, sink: RecordingSink) -> None:
    make_engine(pinned=False, reuse=False).start(prompt(HI), sink)
    await sink.finish()
    assert "id_slot" not in llama.bodies[0]
    assert llama.bodies[0]["cache_prompt"] is False


async def test_no_more_passes_run_than_there_are_slots(make_engine: Make, llama: FakeLlama) -> None:
    gate = Gate()
    llama.script = gated(gate)
    engine = make_engine(slots=2)
    sinks = [RecordingSink() for _ in range(5)]
    for number, each in enumerate(sinks):
        engine.start(prompt(grown(EMPTY, str(number))), each)
    await gate.reached()
    gate.open()
    for each in sinks:
        await each.finish()
    assert llama.most_running == 2
    assert not llama.same_slot


async def test_too_many_waiting_passes_are_turned_away(
    make_engine: Make, llama: FakeLlama, sink: RecordingSink
) -> None:
    gate = Gate()
    llama.script = gated(gate)
    engine = make_engine(slots=1, max_waiting=1)
    running, waiting = RecordingSink(), RecordingSink()
    engine.start(prompt(HI), running)
    await gate.reached()
    engine.start(prompt(HI), waiting)
    await asyncio.sleep(0)  # a pass joins the line when its task begins
    engine.start(prompt(HI), sink)
    failure = await sink.failure()
    assert (failure.code, failure.retry_after) == ("server_is_overloaded", 1.0)
    gate.open()
    await running.finish()
    await waiting.finish()
    assert engine.failed == {"server_is_overloaded": 1}


async def test_an_abort_stops_llama_and_silences_the_pass(
    make_engine: Make, llama: FakeLlama, sink: RecordingSink
) -> None:
    gate = Gate()

    def held(body: dict[str, Any], on_event: OnEvent) -> None:
        on_event(text_event("a"))
        gate.wait()
        assert on_event(text_event("b"))

    llama.script = held
    engine = make_engine(slots=1)
    running = engine.start(prompt(HI), sink)
    await sink.until(lambda: bool(sink.chunks))
    running.abort()
    running.abort()
    assert engine.running == 0
    # The chain's next turn waits for its slot.
    llama.script = hello
    after = RecordingSink()
    engine.start(prompt(grown(HI, "again")), after)
    await asyncio.sleep(0)
    assert len(llama.bodies) == 1
    gate.open()
    await after.finish()
    assert sink.text == "a"
    assert sink.outcomes == []
    # The abort may come before llama has heard back about its first event, which then stops it already.
    assert llama.stopped
    assert not llama.same_slot


async def test_an_aborted_pass_leaves_the_line(make_engine: Make, llama: FakeLlama, sink: RecordingSink) -> None:
    gate = Gate()
    llama.script = gated(gate)
    engine = make_engine(slots=1)
    running = RecordingSink()
    engine.start(prompt(HI), running)
    await gate.reached()
    waiting = engine.start(prompt(grown(EMPTY, "b")), sink)
    last = RecordingSink()
    engine.start(prompt(grown(EMPTY, "c")), last)
    await asyncio.sleep(0)
    waiting.abort()
    gate.open()
    await running.finish()
    await last.finish()
    assert len(llama.bodies) == 2
    assert sink.outcomes == []


async def test_a_pause_holds_output_back_and_frees_the_slot(
    make_engine: Make, llama: FakeLlama, sink: RecordingSink
) -> None:
    gate = Gate()

    def held(body: dict[str, Any], on_event: OnEvent) -> None:
        on_event(text_event("a"))
        gate.wait()
        on_event(text_event("b"))
        on_event(text_event(finish="stop"))
        on_event(usage_event())

    llama.script = held
    engine = make_engine(slots=1)
    paused = engine.start(prompt(HI), sink)
    await sink.until(lambda: bool(sink.chunks))
    paused.pause()
    gate.open()
    llama.script = hello
    other = RecordingSink()
    engine.start(prompt(grown(EMPTY, "b")), other)
    await other.finish()
    assert (sink.text, sink.outcomes) == ("a", [])
    paused.resume()
    await sink.finish()
    assert sink.text == "ab"


async def test_an_abort_while_paused_at_the_end_disturbs_nobody(
    make_engine: Make, llama: FakeLlama, sink: RecordingSink
) -> None:
    engine = make_engine(slots=1)
    paused = engine.start(prompt(HI), sink)
    paused.pause()
    other = RecordingSink()
    engine.start(prompt(grown(EMPTY, "b")), other)
    await other.finish()
    paused.abort()
    paused.resume()
    again = RecordingSink()
    engine.start(prompt(grown(EMPTY, "c")), again)
    await again.finish()
    assert (sink.chunks, sink.outcomes) == ([], [])


async def test_a_sink_that_fails_ends_its_pass_only(make_engine: Make, llama: FakeLlama, sink: RecordingSink) -> None:
    sink.fails = True
    engine = make_engine(slots=1)
    engine.start(prompt(HI), sink)
    other = RecordingSink()
    engine.start(prompt(HI), other)
    await other.finish()
    assert sink.outcomes == []


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError("bad schema"), "invalid_request_error"), (RuntimeError("boom"), "server_error")]
)
async def test_what_llama_raises_is_the_passes_failure(
    make_engine: Make, llama: FakeLlama, sink: RecordingSink, error: Exception, code: str
) -> None:
    def refuse(body: dict[str, Any], on_event: OnEvent) -> None:
        raise error

    llama.script = refuse
    engine = make_engine(slots=1)
    engine.start(prompt(HI), sink)
    assert (await sink.failure()).code == code
    llama.script = hello
    again = RecordingSink()
    engine.start(prompt(HI), again)
    await again.finish()


async def test_an_overflow_of_the_context_is_named(make_engine: Make, llama: FakeLlama, sink: RecordingSink) -> None:
    error = {
        "code": 400,
        "message": "request (9610 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "type": "exceed_context_size_error",
    }

    def fail(body: dict[str, Any], on_event: OnEvent) -> None:
        on_event(json.dumps({"error": error}).encode())

    llama.script = fail
    make_engine().start(prompt(HI), sink)
    assert (await sink.failure()).code == "context_length_exceeded"


async def test_silence_is_a_failure(make_engine: Make, llama: FakeLlama, sink: RecordingSink) -> None:
    def silence(body: dict[str, Any], on_event: OnEvent) -> None:
        pass

    llama.script = silence
    make_engine().start(prompt(HI), sink)
    await sink.failure()


async def test_a_forced_call_is_held_to_its_schema(make_engine: Make, llama: FakeLlama, sink: RecordingSink) -> None:
    def call(body: dict[str, Any], on_event: OnEvent) -> None:
        for piece in ('{"na', 'me": "add", "argum', 'ents": {"a"', ": 1}}"):
            on_event(text_event(piece))
        on_event(text_event(finish="stop"))
        on_event(usage_event())

    llama.script = call
    make_engine(stop=("END",)).start(prompt(HI, tools=ADD, tool_choice="required", stop=["x"]), sink)
    await sink.finish()
    assert sink.calls == [("add", '{"a": 1}')]
    assert isinstance(sink.chunks[-1], CallEnd)
    [body] = llama.bodies
    assert body["tool_choice"] == "auto"
    assert body["response_format"]["json_schema"]["schema"]["properties"]["name"] == {"const": "add"}
    assert body["stop"] == ["x", "END"]


async def test_the_settings_of_a_chain_are_left_as_they_are(
    make_engine: Make, llama: FakeLlama, sink: RecordingSink
) -> None:
    asked = prompt(HI, tools=ADD, tool_choice="required")
    before = asked.settings.SerializeToString()
    make_engine(stop=("END",)).start(asked, sink)
    await sink.until(lambda: bool(sink.outcomes))
    assert asked.settings.SerializeToString() == before


async def test_closing_stops_what_runs_and_frees_the_model(
    make_engine: Make, llama: FakeLlama, sink: RecordingSink
) -> None:
    gate = Gate()

    def held(body: dict[str, Any], on_event: OnEvent) -> None:
        gate.wait()
        assert on_event(text_event("late"))

    llama.script = held
    engine = make_engine(slots=1)
    engine.start(prompt(HI), sink)
    await gate.reached()
    waiting = RecordingSink()
    engine.start(prompt(grown(EMPTY, "b")), waiting)
    closing = asyncio.create_task(engine.aclose())
    await asyncio.sleep(0)
    gate.open()
    async with asyncio.timeout(10):
        await closing
    assert llama.closed
    late = RecordingSink()
    engine.start(prompt(HI), late)
    assert (await late.failure()).code == "server_error"
    assert (sink.outcomes, waiting.outcomes) == ([], [])


async def test_a_template_without_tools_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "plain.gguf"
    path.write_bytes(b"GGUF")
    llama = FakeLlama()
    llama.loaded = Loaded(context=2048, tools=False)
    engine = await LocalEngine.open(LocalConfig(model=path), lambda config, file: llama)
    await engine.aclose()
    assert [(model.id, model.context_length) for model in engine.models()] == [("plain", 2048)]
    assert "the chat template of plain shows tools to nobody" in caplog.text
