"""vLLM and SGLang over gRPC, each against a fake of its server in a process of its own."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from turnwire.server.engine.tokens.grpc_channel import EngineKeepalive
from turnwire.server.engine.tokens.port import UNKNOWN_LOGPROB, Constraint, EngineStartError
from turnwire.server.engine.tokens.sglang_grpc import SglangGrpcEngine
from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine
from turnwire.server.session.chunks import FinishReason

Make = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Pair:
    """An engine's adapter and the fake that it talks to."""

    kind: str
    engine: VllmGrpcEngine | SglangGrpcEngine
    fake: Any


@pytest.fixture(params=["vllm_grpc", "sglang_grpc"])
def kind(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


def adapter(kind: str, address: str, **options: Any) -> VllmGrpcEngine | SglangGrpcEngine:
    return (VllmGrpcEngine if kind == "vllm_grpc" else SglangGrpcEngine)(address, **options)


@pytest_asyncio.fixture(loop_scope="module")
async def pair(kind: str, shared_fake: Callable[..., Awaitable[Any]]) -> AsyncIterator[Pair]:
    started = await shared_fake(kind)
    engine = adapter(kind, started.address)
    yield Pair(kind, engine, started)
    await engine.aclose()


async def test_an_engine_says_what_it_serves(pair: Pair) -> None:
    facts = await pair.engine.facts()
    assert (facts.model, facts.model_path) == ("tiny", "/models/tiny")
    assert (facts.context_length, facts.vocab_size) == (131_072, 201_088)
    assert facts.eos_ids == {200_002}
    assert facts.weight_version == ("w1" if pair.kind == "sglang_grpc" else "")


async def test_the_engine_gets_the_joined_segments_and_gives_each_id_once(
    pair: Pair, sink: Any, request_of: Make
) -> None:
    await pair.fake.script(ids=[7, 8, 9, 10, 200_002], chunks=[2, 1, 2])
    pair.engine.start(request_of([1, 2, 300_000], [4], routing_key="resp_root"), sink)
    seen = await pair.fake.event("request")
    assert seen["prompt"] == [1, 2, 300_000, 4]
    assert seen["stream"] is True
    assert seen["routing_key"] == "resp_root"
    end = await sink.end()
    assert sink.ids == [7, 8, 9, 10, 200_002]
    assert end.reason is FinishReason.STOP
    assert (end.prompt_tokens, end.output_tokens, end.cached_tokens) == (4, 5, 0)
    assert (await pair.fake.event("over"))["how"] == "done"


async def test_a_second_turn_reports_what_the_prefix_cache_gave(pair: Pair, sinks: Make, request_of: Make) -> None:
    first, second = sinks(), sinks()
    await pair.fake.script(ids=list(range(100, 120)))
    pair.engine.start(request_of(list(range(30)), request_id="a"), first)
    assert (await first.end()).cached_tokens == 0
    pair.engine.start(request_of(list(range(30)), list(range(100, 120)), [5] * 10, request_id="b"), second)
    assert (await second.end()).cached_tokens == 48


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
        stop=("X", "Y"),
        stop_token_ids=(200_002, 200_012),
        seed=2**40 + 5,
        logit_bias={42: -100.0},
        constraint=Constraint("json_schema", '{"type":"object"}'),
    )
    pair.engine.start(request, sink)
    sent = (await pair.fake.event("request"))["sampling"]
    await sink.end()
    limit, seed = (
        ("max_tokens", {"seed": 5}) if pair.kind == "vllm_grpc" else ("max_new_tokens", {"no_stop_trim": True})
    )
    assert sent == {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "frequency_penalty": -1.0,
        "presence_penalty": 1.5,
        "repetition_penalty": 1.25,
        limit: 99,
        "stop": ["X", "Y"],
        "stop_token_ids": [200_002, 200_012],
        "logit_bias": {"42": -100.0},
        "json_schema": '{"type":"object"}',
        "n": 1,
        **seed,
    }


async def test_defaults_are_sent_and_not_left_to_zeros(pair: Pair, sink: Any, request_of: Make) -> None:
    pair.engine.start(request_of(), sink)
    seen = await pair.fake.event("request")
    await sink.end()
    sent = seen["sampling"]
    assert (sent["temperature"], sent["top_p"], sent["repetition_penalty"], sent["n"]) == (1.0, 1.0, 1.0, 1)
    if pair.kind == "sglang_grpc":
        assert sent["top_k"] == -1
        assert seen["logprob_start_len"] == -1


async def test_json_objects_and_structural_tags_are_constraints_of_both(
    pair: Pair, sinks: Make, request_of: Make
) -> None:
    sink = sinks()
    pair.engine.start(request_of(constraint=Constraint("structural_tag", "{}")), sink)
    assert (await pair.fake.event("request"))["sampling"]["structural_tag"] == "{}"
    await sink.end()
    sink = sinks()
    pair.engine.start(request_of(constraint=Constraint("json_object")), sink)
    sent = (await pair.fake.event("request"))["sampling"]
    assert sent.get("json_object") is True or sent.get("json_schema") == '{"type":"object"}'
    await sink.end()


async def test_logprobs_come_beside_their_ids_with_alternatives(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], chunks=[2, 1])
    pair.engine.start(request_of(logprobs=2), sink)
    await sink.end()
    assert sink.logprobs == [-0.5, -0.5, -0.5]
    assert list(sink.deltas[0].alternatives[1]) == [(8, -0.5), (9, -1.5)]


@pytest.mark.parametrize("said", ["nan", "inf", "-inf"])
async def test_logprobs_that_are_no_numbers_become_one(pair: Pair, sink: Any, request_of: Make, said: str) -> None:
    await pair.fake.script(ids=[7, 8], logprob=said)
    pair.engine.start(request_of(logprobs=1), sink)
    await sink.end()
    assert sink.logprobs == [UNKNOWN_LOGPROB] * 2
    assert all(math.isfinite(value) for delta in sink.deltas for tops in delta.alternatives for _, value in tops)


async def test_logprobs_left_out_do_not_shift_the_others(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], chunks=[3], logprob="gaps")
    pair.engine.start(request_of(logprobs=0), sink)
    await sink.end()
    assert sink.logprobs == [-0.5, UNKNOWN_LOGPROB, -0.5]


async def test_length_and_the_stop_id_are_told(pair: Pair, sinks: Make, request_of: Make) -> None:
    sink = sinks()
    await pair.fake.script(ids=[7], finish="length")
    pair.engine.start(request_of(), sink)
    assert (await sink.end()).reason is FinishReason.LENGTH
    sink = sinks()
    await pair.fake.script(ids=[7, 200_012], matched_id=200_012)
    pair.engine.start(request_of(), sink)
    assert (await sink.end()).stop_id == 200_012


async def test_an_abort_frees_the_engine_by_both_ways(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], hold_after=1)
    running = pair.engine.start(request_of(request_id="resp_1-4"), sink)
    await sink.until_ids(1)
    running.abort()
    running.abort()
    assert (await pair.fake.event("abort"))["request_id"] == "resp_1-4"
    assert (await pair.fake.event("over"))["how"] in ("cancelled", "aborted")
    assert sink.outcome is None
    assert sink.ids == [7]


async def test_an_abort_during_the_prefill_frees_the_engine(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(hold=True)
    running = pair.engine.start(request_of(), sink)
    await pair.fake.event("waiting")
    running.abort()
    assert (await pair.fake.event("over"))["how"] in ("cancelled", "aborted")


async def test_closing_the_engine_aborts_what_runs(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(hold=True)
    pair.engine.start(request_of(), sink)
    await pair.fake.event("waiting")
    await pair.engine.aclose()
    assert (await pair.fake.event("over"))["how"] in ("cancelled", "aborted")
    assert pair.engine.running == 0


async def test_a_paused_pass_reads_nothing_until_it_is_resumed(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=list(range(50)), hold=True)
    running = pair.engine.start(request_of(), sink)
    await pair.fake.event("waiting")
    running.pause()
    await pair.fake.release()
    await pair.fake.event("over")
    # One message may have been waited for already when the pause came.
    assert len(sink.ids) <= 1
    running.resume()
    await sink.end()
    assert sink.ids == list(range(50))


async def test_an_abort_while_paused_ends_the_pass(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=list(range(50)), hold_after=25)
    running = pair.engine.start(request_of(), sink)
    await sink.until_ids(1)
    running.pause()
    running.abort()
    await running.closed()
    assert sink.outcome is None
    assert pair.engine.running == 0


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        ("INVALID_ARGUMENT", "The decoder prompt (length 9) is longer than the maximum model length of 8.", "overflow"),
        ("INVALID_ARGUMENT", "This model's maximum context length is 8 tokens.", "overflow"),
        ("INVALID_ARGUMENT", "Input length (9 tokens) exceeds the maximum allowed length (8 tokens).", "overflow"),
        ("INVALID_ARGUMENT", "top_k is odd", "invalid_request_error"),
        ("NOT_FOUND", "no such adapter", "model_not_found"),
        ("UNAVAILABLE", "going down", "engine_unavailable"),
        ("RESOURCE_EXHAUSTED", "queue is full", "server_is_overloaded"),
        ("INTERNAL", "Traceback: secret", "server_error"),
        ("FAILED_PRECONDITION", "paused", "server_error"),
        ("UNIMPLEMENTED", "no grammar", "server_error"),
        ("DEADLINE_EXCEEDED", "late", "engine_unavailable"),
    ],
)
async def test_statuses_become_official_codes(
    pair: Pair, sink: Any, request_of: Make, status: str, text: str, code: str
) -> None:
    await pair.fake.script(status=(status, text))
    pair.engine.start(request_of(), sink)
    failure = await sink.failure()
    assert failure.code == {"overflow": "context_length_exceeded"}.get(code, code)
    assert "secret" not in failure.message


async def test_an_overloaded_engine_says_when_to_come_back(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(status=("RESOURCE_EXHAUSTED", "full"), retry_after="2.5")
    pair.engine.start(request_of(), sink)
    assert (await sink.failure()).retry_after == 2.5


async def test_a_status_in_the_middle_ends_what_was_begun(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], status=("INTERNAL", "boom"), status_after=2)
    pair.engine.start(request_of(), sink)
    assert (await sink.failure()).code == "server_error"
    assert sink.ids == [7, 8]


async def test_a_huge_and_ugly_message_is_cut_and_flattened(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(status=("INVALID_ARGUMENT", "a\n\tb\x07" * 1_000))
    pair.engine.start(request_of(), sink)
    failure = await sink.failure()
    assert len(failure.message) < 500
    assert failure.message.isprintable()


async def test_death_in_the_middle_is_an_engine_lost(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7, 8, 9], hold_after=2)
    pair.engine.start(request_of(), sink)
    await sink.until_ids(2)
    await pair.fake.crash()
    failure = await sink.failure()
    assert (failure.code, failure.retry_after) == ("engine_unavailable", 1.0)


async def test_a_stream_without_an_end_is_a_failure_and_two_ends_are_one(
    pair: Pair, sinks: Make, request_of: Make
) -> None:
    sink = sinks()
    await pair.fake.script(completes=0)
    pair.engine.start(request_of(), sink)
    assert (await sink.failure()).code == "server_error"
    sink = sinks()
    await pair.fake.script(ids=[7], completes=3)
    running = pair.engine.start(request_of(), sink)
    await sink.end()
    await running.closed()
    assert sink.ids == [7]


async def test_an_engine_that_aborts_by_itself_is_a_failure(pair: Pair, sink: Any, request_of: Make) -> None:
    await pair.fake.script(ids=[7], finish="abort")
    pair.engine.start(request_of(), sink)
    failure = await sink.failure()
    assert failure.code == "server_error"
    assert "abort" in failure.message


async def test_nobody_listening_is_an_engine_that_cannot_be_reached(kind: str, sink: Any, request_of: Make) -> None:
    engine = adapter(kind, "127.0.0.1:1", start_timeout=0.3)
    engine.start(request_of(), sink)
    assert (await sink.failure()).code == "engine_unavailable"
    with pytest.raises(EngineStartError, match=r"at 127\.0\.0\.1:1: not reached within 0\.3 s"):
        await engine.facts()
    await engine.aclose()


async def test_an_engine_of_the_other_kind_is_named_at_the_start(kind: str, fake: Make) -> None:
    started = await fake("sglang_grpc" if kind == "vllm_grpc" else "vllm_grpc")
    engine = adapter(kind, started.address)
    with pytest.raises(EngineStartError, match="is it another kind of engine"):
        await engine.facts()
    await engine.aclose()


async def test_a_model_that_does_not_generate_is_refused_at_the_start(kind: str, fake: Make) -> None:
    started = await fake(kind, "--embedding")
    engine = adapter(kind, started.address)
    with pytest.raises(EngineStartError, match="tiny does not generate text"):
        await engine.facts()
    await engine.aclose()


async def test_the_tokenizer_comes_as_files(kind: str, fake: Make, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"{}" * 200_000)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    started = await fake(kind, "--tokenizer", str(tmp_path))
    engine = adapter(kind, started.address)
    bundle = await engine.tokenizer()
    assert bundle.files == {"tokenizer.json": b"{}" * 200_000, "chat_template.jinja": b"{{ messages }}"}
    await engine.aclose()


async def test_an_engine_without_a_tokenizer_says_so(pair: Pair) -> None:
    with pytest.raises(EngineStartError, match="Tokenizer path is not configured"):
        await pair.engine.tokenizer()


async def test_pings_during_a_long_prefill_are_not_counted_as_strikes(
    fake: Make, sinks: Make, request_of: Make
) -> None:
    """The same relations as in use, but faster; without heartbeats SGLang would end the connection after 4 pings."""
    kinds = ("vllm_grpc", "sglang_grpc")
    fakes = [await fake(kind, "--ping-ms", "500") for kind in kinds]
    # gRPC sends no more than one a second, whatever it is told.
    keepalive = EngineKeepalive(time=1.0, timeout=0.8, heartbeat=1.5)
    engines = [adapter(kind, started.address, keepalive=keepalive) for kind, started in zip(kinds, fakes, strict=True)]
    waiting = [sinks() for _ in kinds]
    for engine, started, sink in zip(engines, fakes, waiting, strict=True):
        await started.script(ids=[7], hold=True)
        engine.start(request_of(), sink)
        await started.event("waiting")
    # Real time, since pings are gRPC's own: enough for more of them than an engine lets pass when it counts strikes.
    await asyncio.sleep(5.5)
    for engine, started, sink in zip(engines, fakes, waiting, strict=True):
        assert sink.outcome is None
        await started.release()
        await sink.end()
        await engine.aclose()


async def test_an_engine_that_froze_during_a_prefill_is_noticed(
    kind: str, fake: Make, sink: Any, request_of: Make
) -> None:
    started = await fake(kind)
    engine = adapter(kind, started.address, keepalive=EngineKeepalive(time=1.0, timeout=0.3))
    await started.script(hold=True)
    engine.start(request_of(), sink)
    await started.event("waiting")
    started.process.send_signal(signal.SIGSTOP)
    assert (await sink.failure()).code == "engine_unavailable"
    await engine.aclose()


async def test_pings_keep_to_what_engines_allow() -> None:
    assert EngineKeepalive().time >= 20


async def test_sglang_names_the_weights_of_now(fake: Make, sink: Any, request_of: Make) -> None:
    started = await fake("sglang_grpc", "--weights", "step-42")
    engine = SglangGrpcEngine(started.address)
    await started.script(ids=[7], hold=True)
    engine.start(request_of(weights=True), sink)
    await started.event("waiting")
    await started.event("model_info")
    await started.release()
    assert (await sink.end()).weight_version == "step-42"
    await engine.aclose()
