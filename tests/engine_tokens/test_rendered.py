"""The engine made of renderer, token engine and parser: harmony, in front of a fake of vLLM's gRPC server."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from turnwire.server.engine.tokens import rendered as module
from turnwire.server.engine.tokens.opening import open_token_engine
from turnwire.server.engine.tokens.passes import CacheReport
from turnwire.server.engine.tokens.port import UNKNOWN_LOGPROB, EngineFacts
from turnwire.server.engine.tokens.rendered import RenderedEngine
from turnwire.server.engine.tokens.rendering import ChainRenderer, RenderStats
from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.prompt.renderer import RenderError
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallKind,
    CallStart,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    TextChunk,
    TokenRecord,
)
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.item_pb2 import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    MessageContent,
    Role,
    ToolOutput,
)
from turnwire.v1.response_pb2 import ResponseCreate, TokenOutputRequest
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

Make = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"


def ids_of(text: str) -> list[int]:
    return vocabulary.encoding().encode(text, allowed_special="all")


THINKS = ids_of(f"{ANALYSIS}Easy.<|end|>{FINAL}Four of them.<|return|>")


class Out:
    """Keeps what a pass delivers."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.outcome: Finish | EngineFailure | None = None
        self.changed = asyncio.Event()

    def output(self, chunks: Sequence[Chunk]) -> None:
        assert self.outcome is None
        self.chunks += chunks
        self.changed.set()

    def ended(self, outcome: Finish | EngineFailure) -> None:
        assert self.outcome is None
        self.outcome = outcome
        self.changed.set()

    def text(self, channel: Channel = Channel.TEXT) -> str:
        return "".join(c.text for c in self.chunks if isinstance(c, TextChunk) and c.channel is channel)

    async def over(self) -> Any:
        async with asyncio.timeout(15):
            while self.outcome is None:
                self.changed.clear()
                await self.changed.wait()
        return self.outcome

    async def finish(self) -> Finish:
        outcome = await self.over()
        assert isinstance(outcome, Finish), outcome
        return outcome

    async def record(self) -> TokenRecord:
        record = (await self.finish()).record
        assert isinstance(record, TokenRecord)
        return record


def user(text: str) -> Item:
    return Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=text)))


def answer(text: str) -> Item:
    return Item(message=Message(role=Role.ROLE_ASSISTANT, content=MessageContent(text=text)))


def grown(
    transcript: Transcript, *items: Item, origin: Origin = Origin.INPUT, record: TokenRecord | None = None
) -> Transcript:
    entries = [Entry(item.SerializeToString(), origin, 1) for item in items]
    return transcript.extend(entries, frozenset(), record=record)


TOOLS = ToolSets()
LIST = Tool(function=FunctionTool(name="list_files", parameters='{"type":"object","properties":{}}'))


def prompt_of(
    transcript: Transcript, response_id: str = "resp_1", pass_id: int = 1, tools: Sequence[Tool] = (), **settings: Any
) -> Prompt:
    kept = TOOLS.intern(ToolSet(tools=tools))
    create = ResponseCreate(**settings)
    return Prompt(pass_id, response_id, "tiny", create, kept, transcript, 0, 0, 0)


class Scene:
    """An engine with its fake, and what it reports."""

    def __init__(self, fake: Any) -> None:
        self.fake = fake
        self.stats: list[RenderStats] = []
        self.cached: list[CacheReport] = []
        self.renderer = HarmonyRenderer()
        self.table = TokenTable.from_tiktoken(vocabulary.encoding())
        self.engine: RenderedEngine

    async def open(self) -> None:
        self.engine = await open_token_engine(
            VllmGrpcEngine(self.fake.address),
            self.renderer,
            "harmony",
            self.table,
            on_rendered=self.stats.append,
            on_cached=self.cached.append,
        )

    async def sample(self, prompt: Prompt, ids: list[int] = THINKS, **script: Any) -> Out:
        await self.fake.script(ids=ids, **script)
        out = Out()
        self.engine.start(prompt, out)
        return out


@pytest_asyncio.fixture(loop_scope="module")
async def scene(shared_fake: Make) -> AsyncIterator[Scene]:
    made = Scene(await shared_fake("vllm_grpc"))
    await made.open()
    yield made
    await made.engine.aclose()


async def test_an_engine_serves_its_model_under_its_own_name_or_given_ones(scene: Scene) -> None:
    (model,) = scene.engine.models()
    assert (model.id, model.context_length) == ("tiny", 131_072)
    table = scene.table
    facts = EngineFacts(model="tiny")
    chains = ChainRenderer(scene.renderer)
    named = RenderedEngine(VllmGrpcEngine("127.0.0.1:1"), facts, chains, "harmony", table, models=["a", "b"])
    assert [each.id for each in named.models()] == ["a", "b"]
    await named.aclose()


async def test_a_pass_gives_reasoning_text_usage_and_its_very_tokens(scene: Scene) -> None:
    prompt = prompt_of(grown(EMPTY, user("How many?")), token_output=TokenOutputRequest(in_done=True, logprobs=True))
    out = await scene.sample(prompt, chunks=[3, 1, 5])
    seen = await scene.fake.event("request")
    finish = await out.finish()
    record = await out.record()
    assert out.text(Channel.REASONING) == "Easy."
    assert out.text() == "Four of them."
    assert finish.reason is FinishReason.STOP
    assert list(record.sampled) == THINKS
    assert list(record.rendered) == seen["prompt"]
    assert vocabulary.encoding().decode(seen["prompt"]).endswith("How many?<|end|><|start|>assistant")
    assert list(record.logprobs) == [-0.5] * len(THINKS)
    assert (record.template_hash, record.tokenizer_hash) == (scene.renderer.template_hash, vocabulary.VOCABULARY_SHA256)
    usage = finish.usage
    assert (usage.input_tokens, usage.output_tokens) == (len(seen["prompt"]), len(THINKS))
    assert 0 < usage.reasoning_tokens < usage.output_tokens
    assert seen["sampling"]["stop_token_ids"] == list(scene.renderer.stop_token_ids)
    assert not any(chunk.ids for chunk in out.chunks if isinstance(chunk, TextChunk | CallDelta))


async def test_the_next_pass_sends_what_was_sampled_as_it_was_sampled(scene: Scene) -> None:
    call = f"{ANALYSIS}Look.<|end|><|start|>assistant<|channel|>commentary to=functions.list_files <|constrain|>json"
    ids = ids_of(call + "<|message|>{ }<|call|>")
    first = grown(EMPTY, user("List."))
    out = await scene.sample(prompt_of(first, tools=[LIST]), ids=ids, matched_id=ids[-1])
    sent = (await scene.fake.event("request"))["prompt"]
    record = await out.record()
    (start,) = [chunk for chunk in out.chunks if isinstance(chunk, CallStart)]
    assert (start.name, start.kind) == ("list_files", CallKind.FUNCTION)
    assert "".join(chunk.text for chunk in out.chunks if isinstance(chunk, CallDelta)) == "{ }"
    assert out.chunks[-1] == CallEnd()
    made = Item(function_call=FunctionCall(call_id="c", name="list_files", arguments="{ }"))
    second = grown(first, made, origin=Origin.MODEL, record=record)
    given = Item(function_call_output=FunctionCallOutput(call_id="c", output=ToolOutput(text="a.py")))
    third = grown(second, given, origin=Origin.APPEND)
    out = await scene.sample(prompt_of(third, pass_id=2, tools=[LIST]))
    resent = (await scene.fake.event("request"))["prompt"]
    assert resent[: len(sent) + len(ids)] == [*sent, *ids]
    assert list((await out.record()).rendered) == resent[len(sent) + len(ids) :]
    assert [stats.items_rendered for stats in scene.stats] == [1, 1]
    first_report, second_report = scene.cached
    assert first_report == CacheReport(0, 0)
    assert second_report.expected == len(sent) + len(ids)
    assert 0 <= second_report.missing < 16
    assert (await out.finish()).usage.cached_tokens == second_report.reported


async def test_a_chain_and_its_forks_have_one_routing_key_and_other_chains_another(scene: Scene) -> None:
    begun = EMPTY.extend((), frozenset(), chain=Chain("resp_root"))
    first = grown(begun, user("One."))
    out = await scene.sample(prompt_of(first, "resp_root"))
    record = await out.record()
    assert (await scene.fake.event("request"))["routing_key"] == "resp_root"
    second = grown(first, answer("Four of them."), origin=Origin.MODEL, record=record)
    for response_id in ("resp_next", "resp_fork"):
        out = await scene.sample(prompt_of(grown(second, user("Two.")), response_id))
        assert (await scene.fake.event("request"))["routing_key"] == "resp_root"
    assert prompt_of(grown(EMPTY, user("One.")), "resp_other").chain.key == "resp_other"


async def test_deltas_carry_ids_where_asked_for(scene: Scene) -> None:
    prompt = prompt_of(grown(EMPTY, user("Hi.")), token_output=TokenOutputRequest(in_deltas=True))
    out = await scene.sample(prompt, chunks=[100])
    await out.finish()
    ids = [token for chunk in out.chunks if isinstance(chunk, TextChunk) for token in chunk.ids]
    assert ids == [*ids_of("Easy."), *ids_of("Four of them.")]


async def test_records_without_logprobs_share_that_they_have_none(scene: Scene) -> None:
    prompt = prompt_of(grown(EMPTY, user("Hi.")))
    records = [await (await scene.sample(prompt)).record() for _ in range(2)]
    assert len(records[0].logprobs) == 0
    assert records[0].logprobs is records[1].logprobs


async def test_text_carries_logprobs_with_alternatives_where_asked_for(scene: Scene) -> None:
    prompt = prompt_of(grown(EMPTY, user("Hi.")), include=["message.output_text.logprobs"], top_logprobs=2)
    out = await scene.sample(prompt, logprob=-0.25)
    assert (await scene.fake.event("request"))["sampling"]["logprobs"] == 2
    record = await out.record()
    assert len(record.logprobs) == 0
    said = [
        logprob
        for chunk in out.chunks
        if isinstance(chunk, TextChunk) and chunk.channel is Channel.TEXT
        for logprob in chunk.logprobs
    ]
    assert "".join(each.token for each in said) == "Four of them."
    assert bytes(said[0].bytes) == b"Four"
    assert [each.logprob for each in said] == [-0.25] * 4
    assert [each.logprob for each in said[0].top_logprobs] == [-0.25, -1.25]


async def test_logprobs_that_are_no_numbers_can_still_be_computed_with(scene: Scene) -> None:
    prompt = prompt_of(grown(EMPTY, user("Hi.")), token_output=TokenOutputRequest(logprobs=True))
    out = await scene.sample(prompt, logprob="nan")
    assert list((await out.record()).logprobs) == [UNKNOWN_LOGPROB] * len(THINKS)


async def test_a_prompt_beyond_the_context_is_refused_before_it_is_sent(fake: Make) -> None:
    small = Scene(await fake("vllm_grpc", "--context", "90"))
    await small.open()
    out = Out()
    small.engine.start(prompt_of(grown(EMPTY, user("word " * 100))), out)
    assert out.outcome is None
    failure = await out.over()
    assert failure.code == "context_length_exceeded"
    assert "of at most 89" in failure.message
    # What comes next is the first request that the engine sees.
    out = await small.sample(prompt_of(grown(EMPTY, user("Hi.")), "resp_fits", max_output_tokens=10_000))
    seen = await small.fake.event("request")
    assert seen["request_id"] == "resp_fits-1"
    assert seen["sampling"]["max_tokens"] == 90 - len(seen["prompt"])
    await out.finish()
    await small.engine.aclose()


async def test_the_clients_limit_counts_where_it_is_the_smaller(scene: Scene) -> None:
    out = await scene.sample(
        prompt_of(grown(EMPTY, user("Hi.")), max_output_tokens=17), finish="length", ids=THINKS[:4]
    )
    assert (await scene.fake.event("request"))["sampling"]["max_tokens"] == 17
    assert (await out.finish()).reason is FinishReason.LENGTH


async def test_text_ends_before_a_stop_string_even_if_the_engine_goes_on(scene: Scene) -> None:
    ids = ids_of(f"{ANALYSIS}STOP?<|end|>{FINAL}one STOP two")
    out = await scene.sample(prompt_of(grown(EMPTY, user("Hi.")), stop=["STOP"]), ids=ids, hold_after=len(ids) - 1)
    assert (await scene.fake.event("request"))["sampling"]["stop"] == ["STOP"]
    finish = await out.finish()
    assert (await scene.fake.event("over"))["how"] in ("cancelled", "aborted")
    assert out.text() == "one "
    assert out.text(Channel.REASONING) == "STOP?"
    assert finish.reason is FinishReason.STOP
    assert list((await out.record()).sampled) == ids[: len((await out.record()).sampled)]


async def test_a_stop_string_that_the_engine_found_is_cut_off_too(scene: Scene) -> None:
    ids = ids_of(f"{FINAL.removeprefix('<|start|>assistant')}one STOP")
    out = await scene.sample(prompt_of(grown(EMPTY, user("Hi.")), stop=["STOP"]), ids=ids, matched_stop="STOP")
    await out.finish()
    assert out.text() == "one "


async def test_a_stop_id_that_is_not_listed_is_part_of_the_record(scene: Scene) -> None:
    prompt = prompt_of(grown(EMPTY, user("Hi.")), token_output=TokenOutputRequest(logprobs=True))
    out = await scene.sample(prompt, ids=THINKS[:-1], matched_id=THINKS[-1])
    record = await out.record()
    assert list(record.sampled) == THINKS
    assert record.logprobs[-1] == UNKNOWN_LOGPROB


async def test_ids_beyond_the_vocabulary_do_no_harm(scene: Scene) -> None:
    ids = [*THINKS[:-1], 201_087, 2**32 - 1, THINKS[-1]]
    out = await scene.sample(
        prompt_of(grown(EMPTY, user("Hi.")), include=["message.output_text.logprobs"]), ids=ids, chunks=[100]
    )
    assert list((await out.record()).sampled) == ids
    assert out.text().startswith("Four of them.")


async def test_an_abort_reaches_the_engine(scene: Scene) -> None:
    await scene.fake.script(hold=True)
    out = Out()
    running = scene.engine.start(prompt_of(grown(EMPTY, user("Hi."))), out)
    await scene.fake.event("waiting")
    running.abort()
    running.abort()
    assert (await scene.fake.event("over"))["how"] in ("cancelled", "aborted")
    assert out.outcome is None


async def test_trouble_of_the_engine_is_trouble_of_the_pass(scene: Scene) -> None:
    out = await scene.sample(
        prompt_of(grown(EMPTY, user("Hi."))), status=("RESOURCE_EXHAUSTED", "full"), retry_after="2"
    )
    assert await out.over() == EngineFailure("server_is_overloaded", "The engine vllm-grpc is overloaded.", 2.0)


class Slow(ChainRenderer):
    """A renderer that waits in its thread until it may go on."""

    def __init__(self, renderer: Any) -> None:
        super().__init__(renderer)
        self.go = threading.Event()
        self.threads: list[str] = []

    def render(self, prompt: Prompt) -> Any:
        self.threads.append(threading.current_thread().name)
        if threading.current_thread() is not threading.main_thread():
            assert self.go.wait(10)
        return super().render(prompt)


async def slow_engine(scene: Scene) -> tuple[RenderedEngine, Slow]:
    chains = Slow(scene.renderer)
    tokens = VllmGrpcEngine(scene.fake.address)
    return RenderedEngine(tokens, await tokens.facts(), chains, "harmony", scene.table), chains


async def test_a_large_prompt_is_rendered_in_a_thread_and_told_later_what_it_was_told(scene: Scene) -> None:
    engine, chains = await slow_engine(scene)
    await scene.fake.script(ids=THINKS, hold=True)
    out = Out()
    running = engine.start(prompt_of(grown(EMPTY, user("word " * module.LARGE))), out)
    running.pause()
    chains.go.set()
    await scene.fake.event("waiting")
    assert chains.threads[0].startswith("render")
    await scene.fake.release()
    await scene.fake.event("over")
    assert out.outcome is None
    running.resume()
    await out.finish()
    assert out.text() == "Four of them."
    await engine.aclose()


async def test_a_pass_aborted_while_it_is_rendered_is_never_sent(scene: Scene) -> None:
    engine, chains = await slow_engine(scene)
    out = Out()
    running = engine.start(prompt_of(grown(EMPTY, user("word " * module.LARGE)), "resp_gone"), out)
    running.abort()
    chains.go.set()
    await engine.aclose()
    out2 = await scene.sample(prompt_of(grown(EMPTY, user("Hi.")), "resp_here"))
    await out2.finish()
    assert (await scene.fake.event("request"))["request_id"] == "resp_here-1"
    assert out.outcome is None


class Refusing(ChainRenderer):
    """A renderer that takes nothing."""

    error: Exception = RenderError("images cannot be said")

    def render(self, prompt: Prompt) -> Any:
        raise self.error


@pytest.mark.parametrize("words", [1, module.LARGE])
async def test_what_the_format_cannot_say_is_the_requests_fault_and_a_bug_is_not(scene: Scene, words: int) -> None:
    chains = Refusing(scene.renderer)
    engine = RenderedEngine(VllmGrpcEngine("127.0.0.1:1"), EngineFacts(), chains, "harmony", scene.table)
    out = Out()
    engine.start(prompt_of(grown(EMPTY, user("word " * words))), out)
    assert await out.over() == EngineFailure("invalid_request_error", "images cannot be said")
    chains.error = KeyError("secret")
    out = Out()
    engine.start(prompt_of(grown(EMPTY, user("word " * words))), out)
    failure = await out.over()
    assert failure.code == "server_error"
    assert "secret" not in failure.message
    await engine.aclose()


async def test_an_engine_that_counts_other_prompt_ids_is_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    from turnwire.server.engine.tokens.parsing import ChunkMapper
    from turnwire.server.engine.tokens.passes import PassPlan, RenderedPass
    from turnwire.server.engine.tokens.port import TokenEnd
    from turnwire.server.prompt.parsing import parser_for

    out = Out()
    plan = PassPlan("vllm-grpc", 10, 0, array("I"), (), False, False, "", "", "")
    running = RenderedPass(plan, out, ChunkMapper(parser_for("harmony")), lambda _: b"", scene.cached.append)
    running.ended(TokenEnd(FinishReason.STOP, prompt_tokens=9))
    assert "counts 9 ids of prompt where 10 were sent" in caplog.text
    assert scene.cached == []


async def test_a_model_may_be_allowed_less_than_its_engine_can_take(scene: Scene) -> None:
    facts = EngineFacts(model="tiny", context_length=1_000)
    chains = ChainRenderer(scene.renderer)
    tokens = VllmGrpcEngine(scene.fake.address)
    limits = {"small": 30, "large": 2_000}
    engine = RenderedEngine(
        tokens, facts, chains, "harmony", scene.table, models=["small", "large", "plain"], contexts=limits
    )
    assert [model.context_length for model in engine.models()] == [30, 1_000, 1_000]
    prompt = replace(prompt_of(grown(EMPTY, user("one " * 60))), model="small")
    out = Out()
    engine.start(prompt, out)
    outcome = await out.over()
    assert isinstance(outcome, EngineFailure)
    assert outcome.code == "context_length_exceeded"
    # What is left of the context is all that may be sampled.
    await scene.fake.script(ids=THINKS)
    fits = Out()
    engine.start(replace(prompt_of(grown(EMPTY, user("Hi"))), model="large"), fits)
    seen = await scene.fake.event("request")
    await fits.finish()
    assert seen["sampling"]["max_tokens"] == 1_000 - len(seen["prompt"])
    await engine.aclose()
