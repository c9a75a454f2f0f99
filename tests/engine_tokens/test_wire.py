"""Requests put together from bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.engine.tokens.grpc_channel import engine_stubs
from turnwire.server.engine.tokens.wire import varint, with_ids
from turnwire.server.prompt.segments import EMPTY, Segment

vllm_engine_pb2: Any = engine_stubs("vllm_engine_pb2", "vllm")
sglang_scheduler_pb2: Any = engine_stubs("sglang_scheduler_pb2", "sglang")

IDS = st.integers(min_value=0, max_value=2**32 - 1)


@given(st.lists(st.lists(IDS)), st.integers(min_value=0, max_value=5))
def test_both_engines_read_joined_segments_as_one_prompt(segments: list[list[int]], shared: int) -> None:
    rendered = EMPTY
    for ids in segments:
        rendered = rendered.extend(Segment(ids))
    wanted = [token for ids in segments for token in ids]
    head = vllm_engine_pb2.GenerateRequest(
        request_id="r", sampling_params=vllm_engine_pb2.SamplingParams(top_k=shared), stream=True
    )
    data = with_ids(head.SerializeToString(), rendered.packed(), tokenized=2, input_ids=2)
    read = vllm_engine_pb2.GenerateRequest.FromString(data)
    assert list(read.tokenized.input_ids) == wanted
    assert (read.request_id, read.stream, read.sampling_params.top_k) == ("r", True, shared)
    assert read.WhichOneof("input") == "tokenized"
    other = sglang_scheduler_pb2.GenerateRequest(request_id="r", stream=True)
    data = with_ids(other.SerializeToString(), rendered.packed(), tokenized=2, input_ids=2)
    assert list(sglang_scheduler_pb2.GenerateRequest.FromString(data).tokenized.input_ids) == wanted


def test_the_field_numbers_are_those_of_the_protos() -> None:
    for module in (vllm_engine_pb2, sglang_scheduler_pb2):
        assert module.GenerateRequest.DESCRIPTOR.fields_by_name["tokenized"].number == 2
        assert module.TokenizedInput.DESCRIPTOR.fields_by_name["input_ids"].number == 2


@given(IDS)
def test_a_varint_is_what_protobuf_writes(number: int) -> None:
    written = vllm_engine_pb2.TokenizedInput(input_ids=[number]).SerializeToString()
    assert written.endswith(varint(number))
