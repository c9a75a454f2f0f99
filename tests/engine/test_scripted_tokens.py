"""Token ids and log-probabilities of the simulation: those of the vocabulary, and made up."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnwire.server.prompt.vocabulary import VOCABULARY_SHA256, encode
from turnwire.server.session.chunks import CallDelta, Channel, EngineFailure, Finish, TextChunk, TokenRecord
from turnwire.server.session.transcript import Origin
from turnwire.v1.response_pb2 import ResponseCreate, TokenOutputRequest

from .conftest import RecordingSink, make_entry

if TYPE_CHECKING:
    from tests.engine.conftest import MakePrompt, MakeStage

TURN = """
[[turn]]
reasoning = "Look."
text = "Here: 𓀀"
[[turn.call]]
name = "read"
arguments = { path = "x" }
"""
SAID = [*encode("Look."), *encode("Here: 𓀀"), *encode("read"), *encode('{"path":"x"}')]


def play(make_stage: MakeStage, new_prompt: MakePrompt, toml: str = TURN, **settings: Any) -> RecordingSink:
    stage = make_stage(toml)
    sink = RecordingSink()
    stage.engine.start(replace(new_prompt(newest="newer"), settings=ResponseCreate(**settings)), sink)
    stage.clock.run(3600)
    return sink


def record_of(sink: RecordingSink) -> TokenRecord:
    (outcome,) = sink.outcomes
    assert isinstance(outcome, Finish)
    assert outcome.record is not None
    return outcome.record


def test_who_does_not_ask_gets_neither_ids_nor_log_probabilities(make_stage: MakeStage, new_prompt: MakePrompt) -> None:
    sink = play(make_stage, new_prompt)
    assert all(not chunk.ids for chunk in sink.chunks if isinstance(chunk, TextChunk | CallDelta))
    assert all(not chunk.logprobs for chunk in sink.chunks if isinstance(chunk, TextChunk))
    assert [outcome.record for outcome in sink.outcomes if isinstance(outcome, Finish)] == [None]


def test_the_record_has_what_was_said_and_what_was_new(make_stage: MakeStage, new_prompt: MakePrompt) -> None:
    asked = TokenOutputRequest(in_done=True, logprobs=True)
    record = record_of(play(make_stage, new_prompt, instructions="Be brief.", token_output=asked))
    assert list(record.sampled) == SAID
    assert list(record.rendered) == [*encode("Be brief."), *encode("older"), *encode("newer")]
    assert record.tokenizer_hash == VOCABULARY_SHA256
    assert list(record.logprobs) == [-(token % 64) / 16 for token in SAID]


def test_log_probabilities_are_left_out_of_the_record_unless_asked_for(
    make_stage: MakeStage, new_prompt: MakePrompt
) -> None:
    record = record_of(play(make_stage, new_prompt, token_output=TokenOutputRequest(in_done=True)))
    assert (list(record.sampled), list(record.logprobs)) == (SAID, [])


def test_a_record_goes_on_from_the_one_before_it(make_stage: MakeStage, new_prompt: MakePrompt) -> None:
    prompt = new_prompt(newest="newer")
    before = TokenRecord(array("I"), array("I"), array("f"))
    said, early = make_entry("said", Origin.MODEL), make_entry("early", Origin.APPEND)
    passed = prompt.transcript.extend((said, early), frozenset(), 1, before)
    settings = ResponseCreate(instructions="Be brief.", token_output=TokenOutputRequest(in_done=True))
    stage, sink = make_stage(TURN), RecordingSink()
    transcript = passed.extend((make_entry("a"), make_entry("b")), frozenset())
    stage.engine.start(replace(prompt, settings=settings, transcript=transcript), sink)
    stage.clock.run(1)
    assert list(record_of(sink).rendered) == [*encode("early"), *encode("a"), *encode("b")]


def test_a_record_is_cut_where_the_output_is(make_stage: MakeStage, new_prompt: MakePrompt) -> None:
    asked = TokenOutputRequest(in_done=True, logprobs=True)
    record = record_of(play(make_stage, new_prompt, token_output=asked, max_output_tokens=3))
    assert list(record.sampled) == SAID[:3]
    assert len(record.logprobs) == 3


def test_a_pass_that_fails_has_no_record(make_stage: MakeStage, new_prompt: MakePrompt) -> None:
    failing = '[[turn]]\ntext = "a b"\nerror = { code = "server_error", message = "no", after_tokens = 1 }'
    sink = play(make_stage, new_prompt, failing, token_output=TokenOutputRequest(in_done=True))
    assert isinstance(sink.outcomes[0], EngineFailure)


def test_deltas_have_the_ids_of_all_that_is_said(make_stage: MakeStage, new_prompt: MakePrompt) -> None:
    sink = play(make_stage, new_prompt, token_output=TokenOutputRequest(in_deltas=True))
    ids = [token for chunk in sink.chunks if isinstance(chunk, TextChunk | CallDelta) for token in chunk.ids]
    assert ids == [*encode("Look."), *encode("Here: 𓀀"), *encode('{"path":"x"}')]


def test_visible_text_alone_has_log_probabilities_with_the_bytes_of_each_token(
    make_stage: MakeStage, new_prompt: MakePrompt
) -> None:
    sink = play(make_stage, new_prompt, include=["message.output_text.logprobs"])
    texts = [chunk for chunk in sink.chunks if isinstance(chunk, TextChunk)]
    assert not any(chunk.logprobs for chunk in texts if chunk.channel is Channel.REASONING)
    told = [each for chunk in texts for each in chunk.logprobs]
    assert b"".join(bytes(each.bytes) for each in told).decode() == "Here: 𓀀"
    assert [each.logprob for each in told] == [-(token % 64) / 16 for token in encode("Here: 𓀀")]
