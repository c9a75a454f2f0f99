"""From a client over gRPC through the server to an engine in a process of its own, and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from turnwire.bench.token_engines import measure
from turnwire.client import Session, connect
from turnwire.server.engine.tokens.opening import open_token_engine
from turnwire.server.engine.tokens.port import TokenEngine
from turnwire.server.engine.tokens.sglang_grpc import SglangGrpcEngine
from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine
from turnwire.server.engine.tokens.vllm_http import VllmHttpEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.testing import make_services, serving
from turnwire.v1.item_pb2 import FunctionCall
from turnwire.v1.response_pb2 import TokenOutputRequest

Make = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = TokenOutputRequest(in_done=True, logprobs=True)


def ids_of(text: str) -> list[int]:
    return vocabulary.encoding().encode(text, allowed_special="all")


CALL = ids_of(
    "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.look "
    '<|constrain|>json<|message|>{"at":"x"}<|call|>'
)
ANSWER = ids_of("<|channel|>final<|message|>It is blue.<|return|>")


@dataclass
class Way:
    kind: str
    fake: Any
    session: Session


@pytest_asyncio.fixture(loop_scope="module", params=["vllm_grpc", "sglang_grpc", "vllm_http"])
async def way(request: pytest.FixtureRequest, shared_fake: Make) -> AsyncIterator[Way]:
    kind: str = request.param
    started = await shared_fake(kind)
    tokens: TokenEngine
    match kind:
        case "vllm_grpc":
            tokens = VllmGrpcEngine(started.address)
        case "sglang_grpc":
            tokens = SglangGrpcEngine(started.address)
        case _:
            tokens = VllmHttpEngine(f"http://{started.address}/v1")
    table = TokenTable.from_tiktoken(vocabulary.encoding())
    engine = await open_token_engine(tokens, HarmonyRenderer(), "harmony", table)
    async with serving(make_services((engine,))) as address, connect(address) as session:
        yield Way(kind, started, session)
    await engine.aclose()


LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}


async def test_a_held_response_gives_every_token_once_each_span_marked(way: Way) -> None:
    await way.fake.script(ids=CALL)
    stream = await way.session.create(
        model="tiny", input="What colour?", tools=[LOOK], hold=True, store=False, token_output=TOKENS
    )
    paused = await stream.until_done()
    first = await way.fake.event("request")
    (call,) = stream.open_calls
    assert isinstance(call, FunctionCall)
    assert (call.name, call.arguments) == ("look", '{"at":"x"}')
    rendered, sampled = paused.token_output.spans
    assert (rendered.sampled, list(rendered.ids), list(rendered.logprobs)) == (False, first["prompt"], [])
    assert (sampled.sampled, list(sampled.ids), list(sampled.logprobs)) == (True, CALL, [-0.5] * len(CALL))
    await way.fake.script(ids=ANSWER)
    await stream.append([{"type": "function_call_output", "call_id": call.call_id, "output": "blue"}])
    done = await stream.until_done()
    second = await way.fake.event("request")
    rendered, sampled = done.token_output.spans
    assert second["prompt"] == [*first["prompt"], *CALL, *rendered.ids]
    assert list(sampled.ids) == ANSWER
    assert first["routing_key"] == second["routing_key"] == stream.id
    assert stream.output_text == "It is blue."
    assert len(done.token_output.template_hash) == 64
    assert done.token_output.tokenizer_hash == vocabulary.VOCABULARY_SHA256
    assert done.token_output.weight_version == ("w1" if way.kind == "sglang_grpc" else "")
    usage = stream.usage
    assert usage is not None
    assert usage.output_tokens == len(CALL) + len(ANSWER)
    assert usage.input_tokens == len(first["prompt"]) + len(second["prompt"])
    assert usage.input_tokens_details.cached_tokens == len(first["prompt"] + CALL) // 16 * 16


async def test_a_cancel_frees_the_engine(way: Way) -> None:
    await way.fake.script(ids=ANSWER, hold=True)
    stream = await way.session.create(model="tiny", input="Hi.", store=False)
    await way.fake.event("waiting")
    await stream.cancel()
    assert (await way.fake.event("over"))["how"] in ("cancelled", "aborted")


async def test_a_lost_client_frees_the_engine(way: Way) -> None:
    await way.fake.script(ids=ANSWER, hold=True)
    stream = await way.session.create(model="tiny", input="Hi.", store=False)
    await way.fake.event("waiting")
    assert not stream.ended
    await way.session.close()
    async with asyncio.timeout(10):
        assert (await way.fake.event("over"))["how"] in ("cancelled", "aborted")


async def test_the_added_time_is_measured_the_whole_way() -> None:
    (figure,) = await asyncio.to_thread(measure, (1,), 2)
    assert figure.kilobytes == 1
    assert figure.prompt_tokens > 100
