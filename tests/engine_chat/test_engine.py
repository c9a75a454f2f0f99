"""The whole engine against a fake upstream in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from turnwire.server.engine.chat.config import ChatModel
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.engine.chat.history import LARGE
from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.session.chunks import CallEnd, CallKind, CallStart, FinishReason, PassUsage, TextChunk
from turnwire.server.session.transcript import EMPTY

from .scene import FakeUpstream, RecordingSink, grown, prompt, tool_set
from .upstream import PLAIN, delta, event

if TYPE_CHECKING:
    from .conftest import Make

HI = grown(EMPTY, {"role": "user", "content": "Hi"})
STOP = event(delta("stop"))
DONE = b"data: [DONE]\n\n"


def is_an_engine(engine: ChatEngine) -> Engine:
    return engine


async def test_a_pass_asks_the_upstream_and_pushes_its_answer(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    assert is_an_engine(engine).name == "openai"
    engine.start(prompt(HI, temperature=0.5), sink)
    assert sink.chunks == []
    finish = await sink.finish()
    assert sink.said == [("text", "Hello.")]
    assert finish.usage == PassUsage(7, 0, 2, 0)
    [request] = await upstream.requests()
    assert (request["method"], request["path"]) == ("POST", "/v1/chat/completions")
    assert request["headers"]["content-type"] == "application/json"
    assert request["headers"]["x-request-id"] == "resp_1-1"
    assert "authorization" not in request["headers"]
    assert request["json"]["temperature"] == 0.5
    assert engine.running == 0


async def test_the_key_and_the_headers_go_with_every_request(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    make_engine(api_key="sk-secret", headers={"X-Org": "o"}).start(prompt(HI), sink)
    await sink.finish()
    headers = (await upstream.requests())[0]["headers"]
    assert (headers["authorization"], headers["x-org"]) == ("Bearer sk-secret", "o")


async def test_a_model_can_have_another_name_upstream(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    engine = make_engine(models=(ChatModel("mine", upstream="theirs", context_length=10),))
    assert engine.models() == [ModelInfo("mine", context_length=10)]
    engine.start(prompt(HI, model="mine"), sink)
    await sink.finish()
    assert (await upstream.requests())[0]["json"]["model"] == "theirs"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_chunk_boundaries_at_awkward_places_change_nothing(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink, size: int
) -> None:
    call: dict[str, Any] = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a":"é🙂"}'}}
    wire = (
        b": ping\r\n\r\n"
        + event(delta(reasoning_content="naïve")).replace(b"\n", b"\r\n")
        + event(delta(content="wörld 🙂"))
        + event(delta(tool_calls=[call]))
        + STOP
        + DONE
    )
    await upstream.stream(*(wire[at : at + size] for at in range(0, len(wire), size)))
    engine.start(prompt(HI, tools=tool_set({"type": "function", "name": "f"})), sink)
    await sink.finish()
    assert sink.said == [
        ("reasoning", "naïve"),
        ("text", "wörld 🙂"),
        ("call", "f"),
        ("arguments", '{"a":"é🙂"}'),
        ("end", ""),
    ]


async def test_a_tool_can_start_before_the_answer_is_over(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{}"}}
    second = {"index": 1, "id": "c2", "function": {"name": "patch", "arguments": '{"input":"x'}}
    await upstream.script(
        {"head": 200},
        {"send": event(delta(tool_calls=[first])) + event(delta(tool_calls=[second]))},
        {"gate": "rest"},
        {"send": STOP + DONE},
        {"end": True},
    )
    tools = tool_set({"type": "function", "name": "f"}, {"type": "custom", "name": "patch"})
    engine.start(prompt(HI, tools=tools), sink)
    await sink.until(lambda: CallStart("patch", CallKind.CUSTOM, "c2") in sink.chunks)
    assert CallEnd() in sink.chunks
    assert not sink.outcomes
    await upstream.open("rest")
    await sink.finish()


async def test_passes_share_kept_connections(engine: ChatEngine, upstream: FakeUpstream) -> None:
    for turn in range(5):
        sink = RecordingSink()
        engine.start(prompt(HI, pass_id=turn), sink)
        await sink.finish()
        await asyncio.gather(*engine.tasks)
    assert await upstream.connections() == 1


async def test_a_turn_sends_the_whole_history_and_encodes_what_is_new(
    engine: ChatEngine, upstream: FakeUpstream
) -> None:
    chain = EMPTY
    for turn in range(10):
        sink = RecordingSink()
        chain = grown(chain, {"role": "user", "content": f"q{turn}"})
        engine.start(prompt(chain, instructions="Be good."), sink)
        await sink.finish()
        chain = grown(
            chain, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
        )
    assert engine.stats.items == 19
    assert engine.stats.passes == 10
    requests = await upstream.requests()
    assert [len(each["json"]["messages"]) for each in requests] == [2 * turn + 2 for turn in range(10)]
    assert requests[-1]["json"]["messages"][:-2] == requests[-2]["json"]["messages"]


async def test_a_large_history_arrives_whole(engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink) -> None:
    text = "ü" * LARGE
    engine.start(prompt(grown(HI, {"role": "user", "content": text})), sink)
    await sink.finish()
    assert (await upstream.requests())[0]["json"]["messages"][1]["content"] == text


async def test_many_passes_at_once_do_not_mix(engine: ChatEngine, upstream: FakeUpstream) -> None:
    sinks = [RecordingSink() for _ in range(50)]
    for each in sinks:
        await upstream.stream(PLAIN)
        engine.start(prompt(HI), each)
    for each in sinks:
        await each.finish()
        assert each.said == [("text", "Hello.")]


async def test_aborting_frees_the_upstream_at_once(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"head": 200}, {"send": event(delta(content="x"))}, {"gate": "never"})
    generation = engine.start(prompt(HI), sink)
    await sink.until(lambda: bool(sink.chunks))
    generation.abort()
    generation.abort()
    await upstream.happened("lost 0")
    assert engine.running == 0
    assert sink.outcomes == []


async def test_aborting_before_the_answer_frees_the_upstream_too(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"gate": "never"})
    generation = engine.start(prompt(HI), sink)
    await upstream.happened("request 0")
    generation.abort()
    await upstream.happened("lost 0")
    assert (sink.chunks, sink.outcomes) == ([], [])


async def test_aborting_at_once_asks_nobody(engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink) -> None:
    generation = engine.start(prompt(HI), sink)
    generation.abort()
    await asyncio.gather(*engine.tasks, return_exceptions=True)
    assert await upstream.requests() == []
    assert sink.outcomes == []


async def test_aborting_from_within_the_output_is_fine(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"head": 200}, {"send": event(delta(content="x"))}, {"gate": "never"})
    generation = engine.start(prompt(HI), sink)
    sink.on_output = generation.abort
    await upstream.happened("lost 0")
    assert len(sink.chunks) == 1
    assert sink.outcomes == []


async def test_aborting_after_the_end_does_nothing(engine: ChatEngine, sink: RecordingSink) -> None:
    generation = engine.start(prompt(HI), sink)
    await sink.finish()
    generation.abort()
    assert len(sink.outcomes) == 1


async def test_a_paused_pass_holds_the_upstream_up_and_goes_on_where_it_was(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    piece = event(delta(content="x" * 1000))
    times = 30_000
    await upstream.script({"head": 200}, {"flood": piece, "times": times}, {"send": STOP + DONE}, {"end": True})
    generation = engine.start(prompt(HI), sink)
    sink.on_output = generation.pause
    await upstream.happened("stalled 0")
    held = sum(len(chunk.text) for chunk in sink.chunks if isinstance(chunk, TextChunk))
    assert held < times * 1000 / 10
    sink.on_output = None
    generation.resume()
    generation.resume()
    finish = await sink.finish()
    assert finish.reason is FinishReason.STOP
    assert sum(len(chunk.text) for chunk in sink.chunks if isinstance(chunk, TextChunk)) == times * 1000


async def test_a_pass_that_is_paused_can_be_aborted(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"head": 200}, {"send": event(delta(content="x"))}, {"gate": "never"})
    generation = engine.start(prompt(HI), sink)
    sink.on_output = generation.pause
    await sink.until(lambda: bool(sink.chunks))
    generation.abort()
    await upstream.happened("lost 0")


async def test_a_pause_is_no_silence_of_the_upstream(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    engine = make_engine(idle_timeout=0.05)
    await upstream.script({"head": 200}, {"send": event(delta(content="x"))}, {"gate": "go"}, {"send": STOP + DONE})
    paused = engine.start(prompt(HI), sink)
    sink.on_output = paused.pause
    await sink.until(lambda: bool(sink.chunks))
    await upstream.script({"head": 200}, {"send": event(delta(content="x"))}, {"gate": "never"})
    other = RecordingSink()
    engine.start(prompt(HI), other)
    await other.failure()
    assert sink.outcomes == []
    await upstream.open("go")
    paused.resume()
    await sink.finish()


async def test_closing_ends_everything(make_engine: Make, upstream: FakeUpstream, sink: RecordingSink) -> None:
    engine = make_engine()
    await upstream.script({"head": 200}, {"send": event(delta(content="x"))}, {"gate": "never"})
    engine.start(prompt(HI), sink)
    await sink.until(lambda: bool(sink.chunks))
    await engine.aclose()
    await upstream.happened("lost 0")
    late = RecordingSink()
    engine.start(prompt(HI), late)
    assert (await late.failure()).code == "server_error"


async def test_a_pass_that_is_over_is_let_go(engine: ChatEngine, sink: RecordingSink) -> None:
    generation = weakref.ref(engine.start(prompt(HI), sink))
    await sink.finish()
    await asyncio.gather(*engine.tasks)
    gc.collect()
    assert generation() is None


async def test_models_are_discovered_where_none_are_configured(make_engine: Make, upstream: FakeUpstream) -> None:
    listed = {"data": [{"id": "a", "max_model_len": 4096}, {"id": "b"}]}
    await upstream.control("models", listed)
    engine = make_engine(models=())
    assert engine.models() == []
    assert await engine.open() is None
    assert engine.models() == [ModelInfo("a", context_length=4096), ModelInfo("b")]


async def test_models_appear_when_the_upstream_does(make_engine: Make, upstream: FakeUpstream) -> None:
    await upstream.control("models", 503)
    engine = make_engine(models=(), refresh=0.01)
    trouble = await engine.open()
    assert trouble is not None
    assert trouble.code == "server_is_overloaded"
    await upstream.control("models", {"data": [{"id": "m"}]})
    async with asyncio.timeout(5):
        while not engine.models():
            await upstream.happened("asked for models")
    assert engine.models() == [ModelInfo("m")]


@pytest.mark.parametrize("listed", [{"data": 5}, [], {"data": [{"id": 7}]}, 404])
async def test_a_list_of_models_that_is_none_is_reported(
    make_engine: Make, upstream: FakeUpstream, listed: Any
) -> None:
    await upstream.control("models", listed)
    trouble = await make_engine(models=()).open()
    assert trouble is not None
    assert trouble.code == "server_error"


async def test_a_model_that_stays_keeps_what_its_chains_have_encoded(make_engine: Make, upstream: FakeUpstream) -> None:
    engine = make_engine(models=(), refresh=0.01)
    await engine.open()
    for _ in range(3):
        await engine.discover()
        sink = RecordingSink()
        engine.start(prompt(HI), sink)
        await sink.finish()
    assert engine.stats.items <= 1
