"""vLLM over HTTP, against a fake of its server in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from turnwire.server.engine.tokens.http_pass import CompletionReader
from turnwire.server.engine.tokens.port import UNKNOWN_LOGPROB, Constraint, EngineStartError, TokenEnd
from turnwire.server.engine.tokens.vllm_http import VllmHttpEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.session.chunks import EngineFailure, FinishReason

Make = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Pair:
    """The adapter and the fake that it talks to."""

    engine: VllmHttpEngine
    fake: Any


@pytest_asyncio.fixture(loop_scope="module")
async def pair(shared_fake: Make) -> AsyncIterator[Pair]:
    started = await shared_fake("vllm_http")
    engine = VllmHttpEngine(f"http://{started.address}/v1", api_key="secret")
    await engine.facts()
    yield Pair(engine, started)
    await engine.aclose()


async def test_an_engine_says_what_it_serves(pair: Pair) -> None:
    facts = await pair.engine.facts()
    assert (facts.model, facts.model_path, facts.context_length) == ("tiny", "/models/tiny", 131_072)
    assert facts.server == "vllm 0.0.0"


async def test_ids_go_in_and_come_out_once(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9, 200_002], chunks=[2, 1, 1])
    pair.engine.start(request_of([1, 2], list(range(300)), routing_key="resp_root"), sink)
    seen = await pair.fake.event("request")
    assert seen["prompt"] == [1, 2, *range(300)]
    assert seen["routing_key"] == "resp_root"
    assert seen["authorization"] == "Bearer secret"
    assert seen["sampling"]["return_token_ids"] is True
    assert await sink.end() == TokenEnd(FinishReason.STOP, prompt_tokens=302, cached_tokens=0, output_tokens=4)
    assert sink.ids == [7, 8, 9, 200_002]


async def test_long_segments_are_written_once_and_read_the_same(pair: Pair, sinks: Make, request_of: Make) -> None:
    request = request_of(list(range(1_000)), [5])
    for _ in range(2):
        sink = sinks()
        pair.engine.start(request, sink)
        assert (await pair.fake.event("request"))["prompt"] == [*range(1_000), 5]
        await sink.end()


async def test_every_sampling_parameter_reaches_the_engine(pair: Pair, sink: Any, request_of: Make) -> None:
    request = request_of(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        frequency_penalty=-1.0,
        presence_penalty=1.5,
        repetition_penalty=1.25,
        max_tokens=99,
        stop=("X",),
        stop_token_ids=(200_002,),
        seed=2**40 + 5,
        logit_bias={42: -100.0},
        logprobs=2,
        constraint=Constraint("json_schema", '{"b":1,"a":2}'),
    )
    pair.engine.start(request, sink)
    sent = (await pair.fake.event("request"))["sampling"]
    await sink.end()
    expected = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "frequency_penalty": -1.0,
        "presence_penalty": 1.5,
        "repetition_penalty": 1.25,
        "max_tokens": 99,
        "stop": ["X"],
        "stop_token_ids": [200_002],
        "seed": 2**40 + 5,
        "logit_bias": {"42": -100.0},
        "logprobs": 2,
        "return_tokens_as_token_ids": True,
        "structured_outputs": {"json": {"b": 1, "a": 2}},
    }
    assert {key: sent[key] for key in expected} == expected


async def test_logprobs_come_by_id(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], chunks=[3], logprob="gaps")
    pair.engine.start(request_of(logprobs=2), sink)
    await sink.end()
    assert sink.logprobs == [-0.5, UNKNOWN_LOGPROB, -0.5]
    assert list(sink.deltas[0].alternatives[0]) == [(7, -0.5), (8, -1.5)]


async def test_logprobs_that_are_no_numbers_become_one(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7], logprob="nan")
    pair.engine.start(request_of(logprobs=0), sink)
    await sink.end()
    assert sink.logprobs == [UNKNOWN_LOGPROB]


async def test_a_second_turn_reports_what_the_prefix_cache_gave(pair: Pair, sinks: Make, request_of: Make) -> None:
    first, second = sinks(), sinks()
    pair.engine.start(request_of(list(range(40))), first)
    await first.end()
    pair.engine.start(request_of(list(range(40)), [9, 9]), second)
    assert (await second.end()).cached_tokens == 32


async def test_an_engine_that_does_not_say_what_was_cached_leaves_it_open(
    fake: Make, sink: Any, request_of: Make
) -> None:
    started = await fake("vllm_http", "--no-details")
    engine = VllmHttpEngine(f"http://{started.address}/v1")
    engine.start(request_of(), sink)
    assert (await sink.end()).cached_tokens is None
    await engine.aclose()


async def test_an_abort_closes_the_connection_and_frees_the_engine(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], hold_after=1)
    running = pair.engine.start(request_of(), sink)
    await sink.until_ids(1)
    running.abort()
    running.abort()
    assert (await pair.fake.event("over"))["how"] == "cancelled"
    assert sink.outcome is None


async def test_an_abort_during_the_prefill_frees_the_engine(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(hold=True)
    running = pair.engine.start(request_of(), sink)
    await pair.fake.event("waiting")
    running.abort()
    assert (await pair.fake.event("over"))["how"] == "cancelled"
    await running.closed()
    assert pair.engine.running == 0


async def test_a_paused_pass_reads_on_when_it_is_resumed(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=list(range(50)), hold=True)
    running = pair.engine.start(request_of(), sink)
    await pair.fake.event("waiting")
    running.pause()
    await pair.fake.release()
    await pair.fake.event("over")
    running.resume()
    await sink.end()
    assert sink.ids == list(range(50))


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (
            "400",
            "This model's maximum context length is 8 tokens.",
            "context_length_exceeded",
        ),
        ("400", "top_k is odd", "invalid_request_error"),
        ("404", "The model does not exist.", "model_not_found"),
        ("429", "slow down", "server_is_overloaded"),
        ("503", "queue is full", "server_is_overloaded"),
        ("500", "Traceback: secret", "server_error"),
        ("401", "who is it: secret", "server_error"),
        ("504", "late", "engine_unavailable"),
    ],
)
async def test_statuses_become_official_codes(
    pair: Pair, sink: Any, request_of: Make, status: str, text: str, code: str
) -> None:
    await pair.fake.script(status=(status, text), retry_after="3")
    pair.engine.start(request_of(), sink)
    failure = await sink.failure()
    assert failure.code == code
    assert "secret" not in failure.message
    if code in ("server_is_overloaded", "engine_unavailable"):
        assert failure.retry_after == 3.0


async def test_an_error_in_the_middle_is_the_end(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], status=("500", "boom"), status_after=2)
    pair.engine.start(request_of(), sink)
    assert (await sink.failure()).code == "server_error"
    assert sink.ids == [7, 8]


async def test_death_in_the_middle_is_an_engine_lost(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], hold_after=2)
    pair.engine.start(request_of(), sink)
    await sink.until_ids(2)
    await pair.fake.crash()
    assert (await sink.failure()).code == "engine_unavailable"


@pytest.mark.parametrize("garbage", [b"data: {]", b"data: \xff\xfe", b"html", b'data: {"choices":[{"text":"no ids"}]}'])
async def test_garbage_is_a_broken_engine(pair: Pair, sink: Any, request_of: Make, garbage: bytes) -> None:
    await pair.fake.script(garbage=garbage)
    pair.engine.start(request_of(), sink)
    assert (await sink.failure()).code == "server_error"


async def test_a_stream_without_an_end_is_a_failure_and_two_ends_are_one(
    pair: Pair, sinks: Make, request_of: Make
) -> None:
    sink = sinks()
    await pair.fake.script(completes=0)
    pair.engine.start(request_of(), sink)
    assert (await sink.failure()).code == "server_error"
    sink = sinks()
    await pair.fake.script(completes=2)
    pair.engine.start(request_of(), sink)
    await sink.end()
    assert sink.ids == [11, 12, 13]


async def test_nobody_listening_is_an_engine_that_cannot_be_reached(sink: Any, request_of: Make) -> None:
    engine = VllmHttpEngine("http://127.0.0.1:1/v1")
    engine.start(request_of(), sink)
    assert (await sink.failure()).code == "engine_unavailable"
    with pytest.raises(EngineStartError, match=r"vllm at http://127.0.0.1:1/v1: not reached"):
        await engine.facts()
    await engine.aclose()


async def test_a_model_that_is_not_there_is_named_with_those_that_are(pair: Pair) -> None:
    engine = VllmHttpEngine(pair.engine.address, model="other")
    with pytest.raises(EngineStartError, match="no model 'other' there, but tiny"):
        await engine.facts()
    await engine.aclose()


async def test_its_tokenizer_is_compared_by_what_its_ids_spell(pair: Pair, fake: Make) -> None:
    table = TokenTable.from_tiktoken(vocabulary.encoding())
    assert await pair.engine.disagreement(table) == ""
    for shift, agrees in ((0, True), (1, False)):
        started = await fake("vllm_http", "--encode", "--shift", str(shift))
        engine = VllmHttpEngine(f"http://{started.address}/v1")
        assert (await engine.disagreement(table) == "") is agrees
        await engine.aclose()


async def test_events_may_be_cut_anywhere() -> None:
    stream = (
        b'data: {"choices":[{"token_ids":[7],"prompt_token_ids":[1,2]}]}\n\n'
        b'data: {"choices":[{"token_ids":[8,9],"finish_reason":"stop","stop_reason":9}]}\r\n\r\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}\n\n'
        b"data: [DONE]\n\n"
    )
    for cut in range(1, len(stream)):
        reader = CompletionReader("vllm")
        ids = [token for part in (stream[:cut], stream[cut:]) for delta in reader.feed(part) for token in delta.ids]
        assert ids == [7, 8, 9]
        assert reader.outcome == TokenEnd(FinishReason.STOP, 2, 1, 3, stop_id=9)


async def test_an_end_without_a_usage_is_an_end() -> None:
    reader = CompletionReader("vllm")
    reader.feed(b'data: {"choices":[{"token_ids":[7],"finish_reason":"length"}]}\n\n')
    reader.close()
    assert reader.outcome == TokenEnd(FinishReason.LENGTH, output_tokens=1)


async def test_an_end_by_the_engine_itself_is_a_failure() -> None:
    reader = CompletionReader("vllm")
    reader.feed(b'data: {"choices":[{"token_ids":[7],"finish_reason":"abort"}]}\n\n')
    assert isinstance(reader.outcome, EngineFailure)
