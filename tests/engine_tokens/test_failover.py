"""Two engines in processes of their own, one of which is killed: the client sees one uninterrupted answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from turnwire.client import Session, connect
from turnwire.server.engine.tokens.opening import open_token_engine
from turnwire.server.engine.tokens.port import TokenDelta, TokenEngine, TokenPass, TokenRequest, TokenSink
from turnwire.server.engine.tokens.replicas import Replicas
from turnwire.server.engine.tokens.sglang_grpc import SglangGrpcEngine
from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine
from turnwire.server.engine.tokens.vllm_http import VllmHttpEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.routing.pool import Pool
from turnwire.server.session.chain import Chain, chain_key
from turnwire.server.testing import make_services, serving
from turnwire.v1.response_pb2 import TokenOutputRequest

Make = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND = 20.0
THREAD = "thread"


def ids_of(text: str) -> list[int]:
    return vocabulary.encoding().encode(text, allowed_special="all")


ANSWER = ids_of(
    "<|channel|>analysis<|message|>It must be blue.<|end|><|start|>assistant<|channel|>final<|message|>It is blue,"
    " as the sky.<|return|>"
)


class Watched:
    """An engine of whose output it is known how much has arrived: more than that dies with its process."""

    def __init__(self, engine: TokenEngine) -> None:
        self._engine = engine
        self._arrived = 0
        self._more = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def start(self, request: TokenRequest, sink: TokenSink) -> TokenPass:
        watched = self

        class Counting:
            def output(self, delta: TokenDelta) -> None:
                sink.output(delta)
                watched._arrived += len(delta.ids)
                watched._more.set()

            def ended(self, outcome: Any) -> None:
                sink.ended(outcome)

        return self._engine.start(request, Counting())

    async def arrived(self, ids: int) -> None:
        async with asyncio.timeout(BOUND):
            while self._arrived < ids:
                self._more.clear()
                await self._more.wait()


@dataclass
class Two:
    """A server in front of two engines; the chain of `THREAD` is at home at the first."""

    kind: str
    home: Any
    other: Any
    pool: Pool[TokenEngine]
    session: Session
    first: Watched
    """The engine at home, as the server sees it."""

    async def create(self, **more: Any) -> Any:
        async with asyncio.timeout(BOUND):
            return await self.session.create(
                model="tiny", input="What colour?", store=False, prompt_cache_key=THREAD, **more
            )


def adapter(kind: str, address: str) -> TokenEngine:
    match kind:
        case "vllm_grpc":
            return VllmGrpcEngine(address)
        case "sglang_grpc":
            return SglangGrpcEngine(address)
        case _:
            return VllmHttpEngine(f"http://{address}/v1")


@pytest_asyncio.fixture(loop_scope="module", params=["vllm_grpc", "sglang_grpc", "vllm_http"])
async def two(request: pytest.FixtureRequest, fake: Make) -> AsyncIterator[Two]:
    kind: str = request.param
    fakes = [await fake(kind) for _ in range(2)]
    engines: list[Any] = [Watched(adapter(kind, each.address)) for each in fakes]
    pool = Pool([(each.address, engine, 1.0) for each, engine in zip(fakes, engines, strict=True)])
    home = pool.pick(Chain(chain_key("", "", THREAD)), pool.members)
    if home is pool.members[1]:
        fakes.reverse()
        engines.reverse()
    table = TokenTable.from_tiktoken(vocabulary.encoding())
    engine = await open_token_engine(Replicas(pool), HarmonyRenderer(), "harmony", table)
    async with serving(make_services((engine,))) as address, connect(address) as session:
        yield Two(kind, fakes[0], fakes[1], pool, session, engines[0])
    await engine.aclose()


async def test_an_engine_that_is_killed_before_the_first_token_is_not_noticed(two: Two) -> None:
    await two.home.script(ids=ANSWER, hold=True)
    await two.other.script(ids=ANSWER)
    stream = await two.create()
    await two.home.event("waiting")
    two.home.process.kill()
    async with asyncio.timeout(BOUND):
        await stream.until_done()
    first, second = await two.home.event("request"), await two.other.event("request")
    assert first["prompt"] == second["prompt"]
    assert stream.output_text == "It is blue, as the sky."


@pytest.mark.parametrize("after", [3, len(ANSWER) - 4], ids=("in its reasoning", "in its answer"))
async def test_an_engine_that_is_killed_in_the_middle_is_not_noticed(two: Two, after: int) -> None:
    await two.home.script(ids=ANSWER, hold_after=after)
    await two.other.script(ids=ANSWER[after:])
    stream = await two.create(max_output_tokens=500)
    await two.first.arrived(after)
    first = await two.home.event("request")
    two.home.process.kill()
    async with asyncio.timeout(BOUND):
        await stream.until_done()
    rest = await two.other.event("request")
    assert rest["prompt"] == [*first["prompt"], *ANSWER[:after]]
    assert rest["routing_key"] == first["routing_key"]
    assert stream.output_text == "It is blue, as the sky."
    assert [item.WhichOneof("kind") for item in stream.response.output] == ["reasoning", "message"]
    usage = stream.usage
    assert usage is not None
    # Counted once, as if there had been one engine.
    assert usage.input_tokens == len(first["prompt"])
    assert usage.output_tokens == len(ANSWER)
    limit = next(value for name, value in rest["sampling"].items() if name.startswith("max_"))
    assert int(limit) == 500 - after

    # The chain goes on where its prefix is now.
    await two.other.script(ids=ANSWER)
    follow = await two.session.create(model="tiny", input="Sure?", previous_response_id=stream.id, store=False)
    async with asyncio.timeout(BOUND):
        await follow.until_done()
    then = await two.other.event("request")
    assert then["routing_key"] == first["routing_key"]


async def test_a_grammar_cannot_be_gone_on_with_so_that_the_loss_is_told(two: Two) -> None:
    await two.home.script(ids=ANSWER, hold_after=3)
    stream = await two.create(text={"format": {"type": "json_object"}})
    await two.first.arrived(3)
    two.home.process.kill()
    async with asyncio.timeout(BOUND):
        done = await stream.until_done()
    assert done.error.code == "engine_unavailable"


async def test_the_tokens_of_a_moved_pass_are_one_span(two: Two) -> None:
    await two.home.script(ids=ANSWER, hold_after=3)
    await two.other.script(ids=ANSWER[3:])
    stream = await two.create(token_output=TokenOutputRequest(in_done=True, logprobs=True))
    await two.first.arrived(3)
    two.home.process.kill()
    async with asyncio.timeout(BOUND):
        done = await stream.until_done()
    if two.kind == "sglang_grpc":
        # It tells the version of its weights, which nobody could vouch for over two engines.
        assert done.error.code == "engine_unavailable"
        return
    _, sampled = done.token_output.spans
    assert list(sampled.ids) == ANSWER
    assert list(sampled.logprobs) == [-0.5] * len(ANSWER)


async def test_an_engine_says_how_it_is_without_running_its_model(two: Two) -> None:
    engine: Any = two.pool.members[0].engine
    other: Any = two.pool.members[1].engine
    assert await engine.check() is None
    for each in (two.home, two.other):
        each.process.kill()
        await each.process.wait()
    failure = await other.check()
    assert failure is not None
    assert failure.code == "engine_unavailable"
