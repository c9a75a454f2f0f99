from __future__ import annotations

from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.engine.scripted.script import CompiledTurn, Script, compile_turn, make_call_id, plan
from turnwire.server.prompt import vocabulary
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallKind,
    CallStart,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    PassUsage,
    TextChunk,
)

FULL = """
[[turn]]
reasoning = "Think first."
summary = "Thinking"
text = "Let me look."
refusal = "No."
[[turn.call]]
name = "read_file"
arguments = { path = "a.txt" }
[[turn.call]]
name = "apply_patch"
input = "*** Begin Patch"
"""


def compiled(source: str) -> CompiledTurn:
    return compile_turn(load_scenario(source).turns[0])


def joined(chunks: list[Chunk], channel: Channel) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk) and chunk.channel is channel)


def tokens_of(chunk: Chunk) -> int:
    return 0 if isinstance(chunk, CallEnd) else chunk.tokens


def test_a_turn_is_said_in_order_one_token_a_chunk() -> None:
    chunks = list(plan(compiled(FULL), ["call_1", "call_2"]).chunks)
    assert joined(chunks, Channel.REASONING) == "Think first."
    assert joined(chunks, Channel.SUMMARY) == "Thinking"
    assert joined(chunks, Channel.TEXT) == "Let me look."
    assert joined(chunks, Channel.REFUSAL) == "No."
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextChunk)][:3] == ["Think", " first", "."]
    first = chunks.index(CallStart("read_file", CallKind.FUNCTION, "call_1", vocabulary.count("read_file")))
    second = chunks.index(CallStart("apply_patch", CallKind.CUSTOM, "call_2", vocabulary.count("apply_patch")))
    assert chunks[second - 1] == chunks[-1] == CallEnd()
    assert "".join(each.text for each in chunks[first:second] if isinstance(each, CallDelta)) == '{"path":"a.txt"}'
    assert "".join(each.text for each in chunks[second:] if isinstance(each, CallDelta)) == "*** Begin Patch"
    assert not any(isinstance(chunk, TextChunk) for chunk in chunks[first:])


def test_usage_counts_what_came_out() -> None:
    script = plan(compiled(FULL), ["call_1", "call_2"], input_tokens=50, cached_tokens=40)
    output = sum(tokens_of(chunk) for chunk in script.chunks)
    reasoning = vocabulary.count("Think first.") + vocabulary.count("Thinking")
    assert script.outcome == Finish(FinishReason.STOP, PassUsage(50, 40, output, reasoning))
    assert script.tokens == output


def check_release(script: Script) -> None:
    for tokens, count in enumerate(script.released):
        assert sum(tokens_of(chunk) for chunk in script.chunks[:count]) <= tokens
        # A call's end comes with its last token, not with the first of what follows.
        assert count == len(script.chunks) or not isinstance(script.chunks[count], CallEnd)
    assert script.released[-1] == len(script.chunks)


def test_a_chunk_leaves_with_its_last_token_and_a_calls_end_with_it() -> None:
    check_release(plan(compiled(FULL), ["call_1", "call_2"]))
    check_release(plan(compiled('[[turn]]\ntext = "𓀀𓀁 🏴󠁧󠁢󠁥󠁮󠁧󠁿"'), []))
    assert plan(compiled('[[turn]]\ntext = ""'), []).released == (0,)


def test_a_cut_turn_leaves_its_last_call_open() -> None:
    chunks = plan(compiled(FULL.replace("[[turn.call]]", 'finish = "length"\n[[turn.call]]', 1)), ["a", "b"]).chunks
    assert isinstance(chunks[-1], CallDelta)
    assert sum(isinstance(chunk, CallEnd) for chunk in chunks) == 1


def test_a_failure_comes_after_its_tokens() -> None:
    source = '[[turn]]\ntext = { tokens = 100 }\nerror = { code = "server_error", message = "m", after_tokens = %d }'
    script = plan(compiled(source % 40), [])
    assert script.outcome == EngineFailure("server_error", "m", None)
    assert len(script.chunks) == script.tokens == 40
    assert plan(compiled(source % 0), []).chunks == ()
    assert len(plan(compiled(source % 500), []).chunks) == 100


def test_the_output_limit_cuts_with_length() -> None:
    turn = compiled("[[turn]]\nreasoning = { tokens = 30 }\ntext = { tokens = 70 }")
    script = plan(turn, [], max_output_tokens=20)
    assert script.outcome == Finish(FinishReason.LENGTH, PassUsage(0, 0, 20, 20))
    assert len(script.chunks) == 20
    assert plan(turn, [], max_output_tokens=100).outcome == Finish(FinishReason.STOP, PassUsage(0, 0, 100, 30))


def test_the_output_limit_counts_before_a_later_failure_only() -> None:
    turn = compiled('[[turn]]\ntext = { tokens = 50 }\nerror = { code = "server_error", after_tokens = 30 }')
    assert isinstance(plan(turn, [], max_output_tokens=20).outcome, Finish)
    assert isinstance(plan(turn, [], max_output_tokens=40).outcome, EngineFailure)


def test_planning_never_changes_the_compiled_turn() -> None:
    turn = compiled(FULL)
    before = turn.chunks
    plan(turn, ["x", "y"], max_output_tokens=3)
    assert turn.chunks == before
    assert plan(turn, ["x", "y"]) == plan(turn, ["x", "y"])


def test_call_ids_are_stable_and_differ_by_everything_that_matters() -> None:
    base = ("digest", "resp_1", 0, 0)
    others = [
        ("other", "resp_1", 0, 0),
        ("digest", "resp_2", 0, 0),
        ("digest", "resp_1", 1, 0),
        ("digest", "resp_1", 0, 1),
    ]
    assert make_call_id(*base) == make_call_id(*base)
    assert len({make_call_id(*each) for each in (base, *others)}) == 5
    assert make_call_id(*base).startswith("call_")
