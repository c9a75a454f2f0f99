"""Chunks for the session core, from parsed events."""

from __future__ import annotations

from turnwire.server.engine.tokens.parsing import ChunkMapper
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.parsing import parser_for
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallKind,
    CallStart,
    Channel,
    Chunk,
    FinishReason,
    TextChunk,
    TextEnd,
)
from turnwire.v1.item_pb2 import Logprob


def encode(text: str) -> list[int]:
    return vocabulary.encoding().encode(text, allowed_special="all")


def chunks_of(mapper: ChunkMapper, pieces: list[str], reason: FinishReason = FinishReason.STOP) -> list[Chunk]:
    chunks: list[Chunk] = []
    for piece in pieces:
        chunks += mapper.feed((), piece)
    return chunks + mapper.finish(reason)


def test_text_calls_and_ends_become_chunks() -> None:
    mapper = ChunkMapper(parser_for("hermes"))
    chunks = chunks_of(mapper, ['<think>Hm</think>Hi<tool_call>{"name": "f", "arguments": {}}</tool_call>'])
    assert chunks == [
        TextChunk(Channel.REASONING, "Hm", 0),
        TextEnd(),
        TextChunk(Channel.TEXT, "Hi", 0),
        TextEnd(),
        CallStart("f", CallKind.FUNCTION, "", 0),
        CallDelta("{}", 0),
        CallEnd(),
    ]


def test_a_preamble_and_the_answer_keep_their_phases() -> None:
    mapper = ChunkMapper(parser_for("harmony"))
    text = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    chunks = [*mapper.feed(encode(text)), *mapper.finish(FinishReason.STOP)]
    said: list[tuple[str, str]] = [(c.phase, c.text) for c in chunks if isinstance(c, TextChunk)]
    assert "".join(text for phase, text in said if phase == "commentary") == "I look."
    assert "".join(text for phase, text in said if phase == "final_answer") == "Done."


def test_ids_and_logprobs_go_with_the_text_they_are_of() -> None:
    mapper = ChunkMapper(parser_for("harmony"), ids_in_deltas=True)
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello world<|return|>"
    ids = encode(text)
    chunks: list[Chunk] = []
    for start in range(0, len(ids), 4):
        part = ids[start : start + 4]
        chunks += mapper.feed(part, None, [Logprob(token=str(token)) for token in part])
    chunks += mapper.finish(FinishReason.STOP)
    said = [chunk for chunk in chunks if isinstance(chunk, TextChunk)]
    assert "".join(chunk.text for chunk in said if chunk.channel is Channel.TEXT) == "Hello world"
    for chunk in said:
        assert chunk.ids
        assert [logprob.token for logprob in chunk.logprobs] == [str(token) for token in chunk.ids]
    assert mapper.reasoning_tokens == sum(chunk.tokens for chunk in said if chunk.channel is Channel.REASONING) > 0


def test_a_function_called_without_arguments_gets_an_empty_object() -> None:
    mapper = ChunkMapper(parser_for("harmony"))
    chunks = mapper.feed(encode("<|channel|>commentary to=functions.f<|message|><|call|>"))
    assert [type(chunk) for chunk in chunks] == [CallStart, CallDelta, CallEnd]
    assert chunks[1] == CallDelta("{}", 0)


def test_free_text_is_taken_out_of_the_object_around_it() -> None:
    for arguments, expected in (
        ('{"input": "say \\"hi\\""}', 'say "hi"'),
        ('{"other": 1}', '{"other": 1}'),
        ('{"input": ', '{"input": '),
        ("plain text", "plain text"),
    ):
        mapper = ChunkMapper(parser_for("harmony"), custom=["f"])
        chunks: list[Chunk] = []
        for token in encode(f"<|channel|>commentary to=functions.f<|message|>{arguments}<|call|>"):
            chunks += mapper.feed([token])
        assert isinstance(chunks[0], CallStart)
        assert chunks[0].kind is CallKind.CUSTOM
        assert "".join(chunk.text for chunk in chunks if isinstance(chunk, CallDelta)) == expected


def test_a_call_that_was_cut_stays_open() -> None:
    for custom, arguments in (((), '{"a": 1'), (("f",), '{"input": "x')):
        mapper = ChunkMapper(parser_for("hermes"), custom=custom)
        text = f'<tool_call>{{"name": "f", "arguments": {arguments}'
        chunks = chunks_of(mapper, [text], FinishReason.LENGTH)
        assert not any(isinstance(chunk, CallEnd) for chunk in chunks)
        assert "".join(chunk.text for chunk in chunks if isinstance(chunk, CallDelta)) == arguments
