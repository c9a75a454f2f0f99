"""Token ids and log-probabilities: what an engine that knows them gives, and who gets them."""

from __future__ import annotations

from array import array

from turnwire.server.session.chunks import Channel, Finish, TextChunk, TokenRecord
from turnwire.v1.item_pb2 import Logprob

from .core import Core


def record(*, rendered: list[int], sampled: list[int]) -> TokenRecord:
    return TokenRecord(
        array("I", rendered), array("I", sampled), array("f", [-0.5] * len(sampled)), "template", "tokenizer", "w7"
    )


def test_done_carries_the_tokens_of_all_passes_since_the_last_one_where_asked() -> None:
    core = Core()
    request = core.create(hold=True, token_output={"in_done": True})
    core.call("f", "c1")
    core.append(core.id_of(request), "c1")
    core.end(Finish(record=record(rendered=[1, 2, 3], sampled=[4, 5])))
    core.say("ok")
    core.end(Finish(record=record(rendered=[6], sampled=[7])))
    output = core.last("done").token_output
    assert [(span.sampled, list(span.ids)) for span in output.spans] == [
        (False, [1, 2, 3]),
        (True, [4, 5]),
        (False, [6]),
        (True, [7]),
    ]
    assert list(output.spans[1].logprobs) == [-0.5, -0.5]
    assert (output.template_hash, output.tokenizer_hash, output.weight_version) == ("template", "tokenizer", "w7")


def test_nobody_gets_tokens_unasked() -> None:
    core = Core()
    core.create()
    core.end(Finish(record=record(rendered=[1], sampled=[2])))
    assert not core.last("done").HasField("token_output")


def test_the_next_prompt_finds_what_was_sampled_and_what_nobody_asks_for_is_let_go() -> None:
    core = Core()
    request = core.create()
    given = record(rendered=[1], sampled=[2])
    core.say("x")
    core.end(Finish(record=given))
    core.create(previous_response_id=core.id_of(request))
    (prompt,) = core.prompts.values()
    assert prompt.transcript.parent is not None
    kept = prompt.transcript.parent.record
    assert kept is not None
    assert (kept.sampled, list(kept.rendered)) == (given.sampled, [])


def test_deltas_and_the_finished_text_carry_ids_and_log_probabilities() -> None:
    core = Core()
    core.create(verbosity="VERBOSITY_FULL")
    logprob = Logprob(token="a", logprob=-1.0)
    core.output([TextChunk(Channel.TEXT, "a", ids=(17,), logprobs=(logprob,)), TextChunk(Channel.TEXT, "b", ids=(18,))])
    core.finish()
    deltas = [event.output_text_delta for event in core.events if event.WhichOneof("event") == "output_text_delta"]
    assert [list(delta.token_ids) for delta in deltas] == [[17], [18]]
    assert list(deltas[0].logprobs) == [logprob]
    assert list(core.last("output_text_done").logprobs) == [logprob]
    assert list(core.last("output_item_done").item.message.content.parts.parts[0].output_text.logprobs) == [logprob]
