from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.engine.chat.stream import ChatStream
from turnwire.server.engine.chat.tools import Target
from turnwire.server.session.chunks import (
    CallKind,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    PassUsage,
    TextChunk,
)

from .scene import said

DONE = b"data: [DONE]\n\n"


def frame(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"


def delta(finish: str | None = None, logprobs: Any = None, **fields: Any) -> bytes:
    return frame(choices=[{"index": 0, "delta": fields, "finish_reason": finish, "logprobs": logprobs}])


def usage(prompt: Any = 10, completion: Any = 5, **more: Any) -> bytes:
    return frame(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion, **more})


def call(index: int, arguments: str, *, id: str = "", name: str = "") -> bytes:
    piece: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if id:
        piece |= {"id": id, "type": "function"}
    if name:
        piece["function"]["name"] = name
    return delta(tool_calls=[piece])


class Read:
    def __init__(self, *pieces: bytes, end: bool = True) -> None:
        self.stream = ChatStream({"patch": Target("patch", CallKind.CUSTOM)})
        self.chunks: list[Chunk] = []
        for piece in pieces:
            self.chunks += self.stream.feed(piece)
        if end:
            self.chunks += self.stream.end()

    @property
    def said(self) -> list[tuple[str, str]]:
        return said(self.chunks)

    @property
    def finish(self) -> Finish:
        assert isinstance(self.stream.outcome, Finish), self.stream.outcome
        return self.stream.outcome

    @property
    def failure(self) -> EngineFailure:
        assert isinstance(self.stream.outcome, EngineFailure), self.stream.outcome
        return self.stream.outcome


WHOLE = (
    delta(role="assistant", content="")
    + delta(reasoning_content="Hmm, naïve.")
    + delta(content="Héllo ")
    + delta(content="wörld 🙂")
    + call(0, "", id="c1", name="read")
    + call(1, "", id="c2", name="patch")
    + call(1, '{"input": "a\\n')
    + call(0, '{"path": "é')
    + call(1, '🙂"}')
    + call(0, '"}')
    + delta(finish="tool_calls")
    + usage(20, 9, prompt_tokens_details={"cached_tokens": 15}, completion_tokens_details={"reasoning_tokens": 3})
    + DONE
)
SAID = [
    ("reasoning", "Hmm, naïve."),
    ("text", "Héllo wörld 🙂"),
    ("call", "read"),
    ("arguments", '{"path": "é"}'),
    ("end", ""),
    ("call", "patch"),
    ("arguments", "a\n🙂"),
    ("end", ""),
]


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20), st.sampled_from([b"\n", b"\r\n"]))
def test_any_split_of_the_bytes_gives_the_same_items(cuts: list[int], ending: bytes) -> None:
    wire = WHOLE.replace(b"\n", ending)
    edges = [0, *sorted(cuts), len(wire)]
    read = Read(*(wire[a:b] for a, b in itertools.pairwise(edges)))
    assert read.said == SAID
    assert read.finish == Finish(FinishReason.STOP, PassUsage(20, 15, 9, 3))


def test_one_byte_at_a_time_gives_the_same_items() -> None:
    read = Read(*(WHOLE[at : at + 1] for at in range(len(WHOLE))))
    assert read.said == SAID
    assert read.finish.usage == PassUsage(20, 15, 9, 3)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", FinishReason.STOP),
        ("tool_calls", FinishReason.STOP),
        ("function_call", FinishReason.STOP),
        ("eos", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
    ],
)
def test_finish_reasons_are_translated(reason: str, expected: FinishReason) -> None:
    assert Read(delta(content="x"), delta(finish=reason), DONE).finish.reason is expected


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_an_upstream_that_gave_up_is_a_failure(reason: str) -> None:
    assert Read(delta(content="x"), delta(finish=reason), DONE).failure.code == "server_error"


def test_reasoning_has_two_names() -> None:
    assert Read(delta(reasoning="a"), delta(reasoning_content="b"), DONE).said == [("reasoning", "ab")]


def test_a_refusal_has_its_own_channel() -> None:
    assert Read(delta(refusal="I can"), delta(refusal="not."), DONE).said == [("refusal", "I cannot.")]


def test_content_in_parts_is_taken_apart() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}, 7]
    assert Read(delta(content=parts), DONE).said == [("reasoning", "hm"), ("text", "yes")]


def test_the_older_function_call_is_a_call() -> None:
    first = delta(function_call={"name": "f", "arguments": '{"a"'})
    read = Read(first, delta(function_call={"arguments": ":1}"}), delta(finish="function_call"), DONE)
    assert read.said == [("call", "f"), ("arguments", '{"a":1}'), ("end", "")]


def test_the_answer_is_over_with_usage_after_the_finish() -> None:
    read = Read(delta(content="x"), delta(finish="stop"), usage(), end=False)
    assert read.finish.usage.input_tokens == 10


def test_usage_with_every_frame_ends_nothing() -> None:
    running = frame(choices=[{"delta": {"content": "a"}}], usage={"prompt_tokens": 3, "completion_tokens": 1})
    read = Read(running, running, usage(3, 2), delta(content="b"), delta(finish="stop"), DONE)
    assert read.said == [("text", "aab")]


def test_done_without_a_finish_is_the_models_own_end() -> None:
    assert Read(delta(content="x"), DONE).finish.reason is FinishReason.STOP


def test_done_without_a_word_is_a_failure() -> None:
    assert Read(DONE).failure.code == "server_error"
    assert Read(delta(role="assistant", content=""), DONE).failure.code == "server_error"


def test_a_finish_without_a_word_is_an_empty_answer() -> None:
    read = Read(delta(finish="stop"), usage(10, 0), DONE)
    assert read.chunks == []
    assert read.finish.usage == PassUsage(10, 0, 0, 0)


def test_an_end_without_a_finish_is_a_death() -> None:
    assert Read(delta(content="x")).failure.code == "server_error"
    assert Read(delta(role="assistant", content="")).failure.code == "engine_unavailable"
    assert Read().failure.code == "engine_unavailable"


def test_a_frame_cut_off_by_death_is_not_reported_as_garbage() -> None:
    read = Read(delta(content="x") + delta(content="yyyy")[:40])
    assert "closed the connection" in read.failure.message
    assert read.said == [("text", "x")]


def test_an_end_after_the_finish_needs_neither_usage_nor_done() -> None:
    read = Read(delta(content="abc"), delta(reasoning="d"), delta(finish="stop"))
    assert read.finish == Finish(FinishReason.STOP, PassUsage(0, 0, 2, 1))


def test_a_second_finish_and_what_follows_it_are_ignored() -> None:
    read = Read(delta(content="x"), delta(finish="stop"), delta(content="again", finish="length"), usage(), DONE)
    assert read.said == [("text", "x")]
    assert read.finish.reason is FinishReason.STOP


def test_nothing_follows_done() -> None:
    assert Read(delta(content="x", finish="stop") + DONE + delta(content="y"), DONE).said == [("text", "x")]


def test_other_choices_are_ignored() -> None:
    both = frame(choices=[{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}])
    assert Read(both, DONE).said == [("text", "yes")]


def test_an_answer_cut_by_the_limit_leaves_its_call_open() -> None:
    read = Read(call(0, '{"a', id="c", name="f"), delta(finish="length"), DONE)
    assert read.said == [("call", "f"), ("arguments", '{"a')]


def test_an_upstream_that_does_not_stream_is_read_as_a_whole() -> None:
    message = {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "ok",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": '{"input":"x"}'}},
        ],
    }
    body = json.dumps(
        {
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 4},
        },
        indent=1,
    ).encode()
    read = Read(body[:30], body[30:])
    assert read.said == [
        ("reasoning", "hm"),
        ("text", "ok"),
        ("call", "f"),
        ("arguments", "{}"),
        ("end", ""),
        ("call", "patch"),
        ("arguments", "x"),
        ("end", ""),
    ]
    assert read.finish.usage == PassUsage(5, 0, 4, 0)


def test_events_without_the_line_between_them_are_told_apart() -> None:
    wire = (delta(content="a") + delta(content="b") + DONE).replace(b"\n\n", b"\n") + b"\n"
    assert Read(wire).said == [("text", "ab")]


@pytest.mark.parametrize("data", [b"data: <html>\n\n", b"data: 5\n\n", b'data: {"choices": 7}\n\n', b"data: {\n\n"])
def test_garbage_within_a_stream_is_a_failure(data: bytes) -> None:
    read = Read(delta(content="x"), data, delta(finish="stop"), DONE)
    assert read.failure.code == "server_error"
    assert read.said == [("text", "x")]


def test_a_page_in_place_of_an_answer_is_a_failure() -> None:
    assert "page" in Read(b"\n <!doctype html>").failure.message


def test_lines_that_are_no_events_are_a_death_without_an_answer() -> None:
    assert Read(b"hello\n\nworld\n\n").failure.code == "engine_unavailable"


def test_an_error_frame_is_the_failure_it_tells_of() -> None:
    overflow = {"error": {"code": 400, "message": "exceeds the available context size", "type": "invalid"}}
    assert Read(frame(**overflow)).failure.code == "context_length_exceeded"
    assert Read(delta(content="x"), frame(error={"message": "boom"})).failure.code == "server_error"
    assert Read(frame(error="the server is overloaded")).failure.code == "server_is_overloaded"
    assert Read(json.dumps(overflow).encode()).failure.code == "context_length_exceeded"
    assert Read(frame(message="no", object="error")).failure.code == "server_error"


def test_bytes_that_are_not_text_are_replaced() -> None:
    wire = delta(content="abc").replace(b"abc", b"a\xffc")
    assert Read(wire, DONE).said == [("text", "a\ufffdc")]


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    wire = delta(content="abc").replace(b"abc", b"a\\ud83d")
    assert Read(wire, DONE).said == [("text", "a\ufffd")]


def test_numbers_as_text_and_a_missing_number_are_read() -> None:
    wire = frame(choices=[{"index": None, "delta": {"content": "x"}}])
    assert Read(wire, usage("7", None), DONE).said == [("text", "x")]


def logprob(token: str, value: Any = -0.5, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": [], **more}


def test_logprobs_stand_with_the_text_of_their_tokens() -> None:
    top = [{"token": "c", "logprob": -1.0, "bytes": None}]
    content = [logprob("a"), logprob("b", -1.5, top_logprobs=top)]
    chunk = Read(delta(content="ab", logprobs={"content": content}), DONE).chunks[0]
    assert isinstance(chunk, TextChunk)
    assert chunk.tokens == 2
    assert [(each.token, each.logprob, list(each.bytes)) for each in chunk.logprobs] == [
        ("a", -0.5, [97]),
        ("b", -1.5, [98]),
    ]
    assert chunk.logprobs[1].top_logprobs[0].token == "c"
    assert list(chunk.logprobs[1].top_logprobs[0].bytes) == [99]


def test_logprobs_of_tokens_without_text_wait_for_it() -> None:
    read = Read(
        delta(reasoning="r", logprobs={"content": [logprob("r")]}),
        delta(content="", logprobs={"content": [logprob("a")]}),
        delta(content="ab", logprobs={"content": [logprob("b")]}),
        DONE,
    )
    chunk = read.chunks[1]
    assert isinstance(chunk, TextChunk)
    assert chunk.channel is Channel.TEXT
    assert [each.token for each in chunk.logprobs] == ["a", "b"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "null"])
def test_logprobs_that_are_no_numbers_become_the_least_there_is(value: str) -> None:
    wire = delta(content="a", logprobs={"content": [logprob("a", 123.5)]}).replace(b"123.5", value.encode())
    chunk = Read(wire, DONE).chunks[0]
    assert isinstance(chunk, TextChunk)
    assert chunk.logprobs[0].logprob == -9999.0


@pytest.mark.parametrize("bad", [-1, "x", None, 1e300, [1], True])
def test_counts_that_are_none_are_zero(bad: Any) -> None:
    found = Read(delta(content="x", finish="stop"), usage(bad, bad, prompt_tokens_details=bad), DONE).finish.usage
    assert found.cached_tokens == 0
    assert found.input_tokens in (0, 1)


def test_more_cached_tokens_than_there_are_is_all_of_them() -> None:
    wire = usage(10, 1, prompt_tokens_details={"cached_tokens": 99})
    assert Read(delta(content="x", finish="stop"), wire, DONE).finish.usage.cached_tokens == 10


def test_llamacpps_own_count_of_cached_tokens_is_taken() -> None:
    wire = frame(choices=[], usage={"prompt_tokens": 10, "completion_tokens": 1}, timings={"cache_n": 8})
    assert Read(delta(content="x", finish="stop"), wire, DONE).finish.usage.cached_tokens == 8


def test_answers_and_events_over_their_limits_are_failures() -> None:
    stream = ChatStream({}, max_event_bytes=100, max_answer_bytes=100)
    stream.feed(b"data: " + b"x" * 200)
    assert isinstance(stream.outcome, EngineFailure)
    stream = ChatStream({}, max_event_bytes=100, max_answer_bytes=100)
    stream.feed(b"{" + b" " * 200)
    assert isinstance(stream.outcome, EngineFailure)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_make_it_raise(pieces: list[bytes]) -> None:
    read = Read(*(b"data: " + piece for piece in pieces))
    assert read.stream.outcome is not None
