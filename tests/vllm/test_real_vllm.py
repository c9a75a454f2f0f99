"""The adapters against a real vLLM, over gRPC and over HTTP. Its weights are random: what it says means nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from turnwire.client import connect
from turnwire.server.engine.tokens.opening import open_token_engine
from turnwire.server.engine.tokens.port import (
    Constraint,
    EngineFacts,
    EngineStartError,
    Sampling,
    TokenDelta,
    TokenEnd,
    TokenEngine,
    TokenRequest,
)
from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine
from turnwire.server.engine.tokens.vllm_http import VllmHttpEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.prompt.segments import EMPTY, Segment
from turnwire.server.session.chunks import EngineFailure, FinishReason
from turnwire.server.testing import make_services, serving
from turnwire.v1.response_pb2 import TokenOutputRequest

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

TABLE = TokenTable.from_tiktoken(vocabulary.encoding())


class Out:
    def __init__(self) -> None:
        self.deltas: list[TokenDelta] = []
        self.first = asyncio.Event()
        self.over = asyncio.Event()
        self.outcome: TokenEnd | EngineFailure | None = None

    def output(self, delta: TokenDelta) -> None:
        self.deltas.append(delta)
        self.first.set()

    def ended(self, outcome: TokenEnd | EngineFailure) -> None:
        self.outcome = outcome
        self.over.set()

    @property
    def ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.ids]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["grpc", "http"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[TokenEngine]:
    made: TokenEngine
    if request.param == "grpc":
        made = VllmGrpcEngine(f"127.0.0.1:{request.getfixturevalue('grpc_port')}", start_timeout=300)
        await made.facts()
    else:
        made = VllmHttpEngine(f"http://127.0.0.1:{request.getfixturevalue('http_port')}/v1")
        await started(made)
    yield made
    await made.aclose()


async def started(engine: TokenEngine) -> None:
    """Waits until an HTTP server answers; there is nothing else to wait on."""
    async with asyncio.timeout(300):
        while True:
            try:
                await engine.facts()
            except EngineStartError:
                await asyncio.sleep(1)
            else:
                return


async def run(engine: TokenEngine, name: str, *segments: list[int], **sampling: Any) -> Out:
    prompt = EMPTY
    for ids in segments:
        prompt = prompt.extend(Segment(ids))
    out = Out()
    engine.start(TokenRequest(name, prompt, Sampling(**sampling)), out)
    await out.over.wait()
    return out


async def test_it_says_what_it_serves_and_its_vocabulary_is_ours(engine: TokenEngine) -> None:
    facts: EngineFacts = await engine.facts()
    assert facts.model == "tiny"
    assert facts.context_length == 8192
    if engine.name == "vllm-grpc":
        assert facts.vocab_size == 201_088
        assert facts.eos_ids == {200_002}
        # Over HTTP it is asked to tokenize, and this tokenizer has no merges: its ids are those of single bytes.
        assert await engine.disagreement(TABLE) == ""


async def test_ids_come_once_each_with_their_counts_and_the_cache_is_reported(
    engine: TokenEngine, settings: dict[str, Any]
) -> None:
    prompt = [1_000 + n for n in range(700)]
    first = await run(engine, "a", prompt, **settings)
    assert isinstance(first.outcome, TokenEnd), first.outcome
    assert len(first.ids) == 24
    assert first.outcome.reason is FinishReason.LENGTH
    assert (first.outcome.prompt_tokens, first.outcome.output_tokens) == (700, 24)
    second = await run(engine, "b", prompt, first.ids, [5, 6, 7], **settings)
    assert isinstance(second.outcome, TokenEnd)
    assert second.outcome.cached_tokens is not None
    # The last sampled id was never computed as a prompt, and only whole blocks are kept.
    assert 723 - 128 <= second.outcome.cached_tokens <= 727
    again = await run(engine, "c", prompt, **settings)
    assert again.ids == first.ids


async def test_logprobs_stand_beside_their_ids(engine: TokenEngine, settings: dict[str, Any]) -> None:
    out = await run(engine, "logprobs", [1, 2, 3], logprobs=2, **settings)
    assert isinstance(out.outcome, TokenEnd), out.outcome
    for delta in out.deltas:
        assert len(delta.logprobs) == len(delta.ids) == len(delta.alternatives)
        for token, value, tops in zip(delta.ids, delta.logprobs, delta.alternatives, strict=True):
            assert -50 < value <= 0
            assert dict(tops)[token] == pytest.approx(value, abs=1e-4)


async def test_a_stop_id_ends_sampling_and_is_output(engine: TokenEngine, settings: dict[str, Any]) -> None:
    plain = await run(engine, "plain", [9, 8, 7], **settings)
    wanted = plain.ids[3]
    out = await run(engine, "stopped", [9, 8, 7], stop_token_ids=(wanted,), **settings)
    assert isinstance(out.outcome, TokenEnd), out.outcome
    assert out.ids == plain.ids[: plain.ids.index(wanted) + 1]
    assert out.outcome.reason is FinishReason.STOP
    assert out.outcome.stop_id == wanted


async def test_every_parameter_is_taken(engine: TokenEngine) -> None:
    out = await run(
        engine,
        "all",
        [1, 2, 3],
        temperature=0.7,
        top_p=0.9,
        top_k=5,
        min_p=0.01,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        repetition_penalty=1.1,
        max_tokens=8,
        stop=("nevermore",),
        stop_token_ids=(200_002, 200_012),
        seed=3,
        logit_bias={42: 100.0},
        logprobs=0,
    )
    assert isinstance(out.outcome, TokenEnd), out.outcome
    assert 42 in out.ids


async def test_json_is_held_to_its_schema(engine: TokenEngine) -> None:
    schema = '{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}'
    out = await run(
        engine, "json", [1, 2, 3], max_tokens=64, temperature=1.0, constraint=Constraint("json_schema", schema)
    )
    assert isinstance(out.outcome, TokenEnd), out.outcome
    said = vocabulary.encoding().decode([token for token in out.ids if token < 199_998])
    assert said.lstrip().startswith("{")


@pytest.mark.parametrize(
    ("output_format", "begins"),
    [
        ("harmony", ("<|channel|>analysis<|message|>", "<|channel|>commentary to=functions.look")),
        ("hermes", ('<tool_call>\n{"name": "look", "arguments": {',)),
        ("qwen-coder", ("<tool_call>\n<function=look>\n",)),
    ],
)
async def test_the_frame_of_a_format_holds_the_model_to_a_call(
    engine: TokenEngine, output_format: str, begins: tuple[str, ...]
) -> None:
    from turnwire.server.engine.tokens.constraints import constraint_of
    from turnwire.v1.response_pb2 import ResponseCreate
    from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolChoice, ToolChoiceMode, ToolSet

    tools = ToolSet(tools=[Tool(function=FunctionTool(name="look", parameters='{"type":"object"}'))])
    required = ToolChoice(mode=ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED)
    constraint = constraint_of(ResponseCreate(tool_choice=required), tools, output_format)
    out = await run(engine, f"frame-{output_format}", [1, 2, 3], max_tokens=48, temperature=1.0, constraint=constraint)
    assert isinstance(out.outcome, TokenEnd), out.outcome
    said = vocabulary.encoding().decode(out.ids)
    assert said.startswith(begins)


async def test_a_prompt_beyond_the_context_has_the_official_code(engine: TokenEngine) -> None:
    out = await run(engine, "long", [1] * 9_000, max_tokens=1)
    assert isinstance(out.outcome, EngineFailure)
    assert out.outcome.code == "context_length_exceeded", out.outcome


async def test_nonsense_is_the_requests_fault(engine: TokenEngine) -> None:
    out = await run(engine, "nonsense", [1], max_tokens=1, min_p=7.0)
    assert isinstance(out.outcome, EngineFailure)
    assert out.outcome.code == "invalid_request_error", out.outcome


async def test_an_abort_leaves_the_engine_free_for_others(engine: TokenEngine, settings: dict[str, Any]) -> None:
    out = Out()
    request = TokenRequest("gone", EMPTY.extend(Segment([1, 2, 3])), Sampling(temperature=0.0, max_tokens=8_000))
    running = engine.start(request, out)
    await out.first.wait()
    running.abort()
    after = await run(engine, "after", [4, 5, 6], **settings)
    assert isinstance(after.outcome, TokenEnd)
    assert out.outcome is None


async def test_a_conversation_goes_the_whole_way(engine: TokenEngine) -> None:
    opened = await open_token_engine(_Shared(engine), HarmonyRenderer(), "harmony", TABLE)
    tokens = TokenOutputRequest(in_done=True, logprobs=True)
    async with serving(make_services((opened,))) as address, connect(address) as session:
        first = await session.create(model="tiny", input="Hi.", store=False, max_output_tokens=16, token_output=tokens)
        done = await first.until_done()
        rendered, sampled = done.token_output.spans
        assert len(sampled.ids) == len(sampled.logprobs) == 16
        assert first.usage is not None
        assert first.usage.input_tokens == len(rendered.ids)


class _Shared:
    """An engine that others still need when the server that used it is closed."""

    def __init__(self, engine: TokenEngine) -> None:
        self.name = engine.name
        self.address = engine.address
        self.facts = engine.facts
        self.start = engine.start

    async def disagreement(self, table: TokenTable) -> str:
        return ""

    async def aclose(self) -> None:
        """Leaves it open."""
