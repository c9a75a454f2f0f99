from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.session.chunks import EngineFailure, Finish, FinishReason, PassUsage
from turnwire.server.session.transcript import Entry, Origin

if TYPE_CHECKING:
    from tests.engine.conftest import MakePrompt, MakeStage, RecordingSink, Stage

    from turnwire.server.engine.port import Engine
    from turnwire.server.engine.scripted.engine import ScriptedEngine

LOOP = """
[model]
names = ["a", "b"]
context_length = 500
[[turn]]
reasoning = "Look."
[[turn.call]]
name = "read"
arguments = { path = "x" }
[[turn.call]]
name = "read"
call_id = "call_given"
[[turn]]
when = "(?i)error"
text = "Oh."
[[turn.call]]
name = "retry"
call_id = "call_retry"
[[turn]]
text = "Done."
[[turn.call]]
name = "finish"
call_id = "call_finish"
"""


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    return make_stage(LOOP)


def is_an_engine(engine: ScriptedEngine) -> Engine:
    return engine


def test_it_serves_the_models_of_the_scenario(stage: Stage) -> None:
    assert is_an_engine(stage.engine).name == "scripted"
    assert stage.engine.models() == [ModelInfo("a", context_length=500), ModelInfo("b", context_length=500)]


def test_the_pass_number_of_the_chain_chooses_the_turn(stage: Stage) -> None:
    assert stage.play(turn=0).text.startswith("Look.")
    assert stage.play(turn=1).text == "Done.{}"
    assert stage.play(turn=7).text == "Done.{}"


def test_the_newest_text_chooses_the_turn_before_the_position_does(stage: Stage) -> None:
    assert stage.play(turn=0, newest="An Error happened").text == "Oh.{}"


def test_what_was_said_in_a_warm_up_chooses_the_turn_of_a_create_without_input(
    stage: Stage, new_prompt: MakePrompt, sink: RecordingSink
) -> None:
    warm = new_prompt(newest="An Error happened")
    stage.engine.start(replace(warm, transcript=warm.transcript.extend((), frozenset())), sink)
    stage.clock.run(3600)
    assert sink.text == "Oh.{}"


def test_what_the_model_said_last_chooses_no_turn(stage: Stage, new_prompt: MakePrompt, sink: RecordingSink) -> None:
    asked = new_prompt(newest="An Error happened")
    said = Entry(asked.transcript.new[-1].data, Origin.MODEL, 1)
    stage.engine.start(replace(asked, transcript=asked.transcript.extend((said,), frozenset(), 1)), sink)
    stage.clock.run(3600)
    assert sink.text == stage.play(turn=0).text


def test_the_same_prompt_gets_the_same_chunks(stage: Stage, make_stage: MakeStage) -> None:
    first = stage.play().chunks
    assert stage.play().chunks == first
    assert make_stage(LOOP).play().chunks == first


def test_made_call_ids_differ_between_calls_passes_and_responses(make_stage: MakeStage) -> None:
    stage = make_stage('[[turn]]\n[[turn.call]]\nname = "f"\n[[turn.call]]\nname = "f"\n')
    ids = [
        *stage.play(turn=0).call_ids,
        *stage.play(turn=1).call_ids,
        *stage.play(turn=0, response_id="resp_2").call_ids,
    ]
    assert len(set(ids)) == 6


def test_given_call_ids_are_kept_and_stay_unique_where_a_turn_may_repeat(stage: Stage) -> None:
    assert stage.play(turn=0).call_ids[1] == "call_given"
    assert stage.play(turn=1).call_ids == ["call_finish"]
    assert stage.play(turn=2).call_ids == ["call_finish_2"]
    assert stage.play(turn=3).call_ids == ["call_finish_3"]
    assert stage.play(turn=3, newest="error").call_ids == ["call_retry_3"]


def test_usage_repeats_the_prompts_size_and_counts_the_output(stage: Stage) -> None:
    sink = stage.play(turn=0)
    assert sink.outcomes == [Finish(FinishReason.STOP, PassUsage(120, 100, sink.tokens, 2))]


def test_the_output_limit_of_the_settings_is_obeyed(make_stage: MakeStage) -> None:
    sink = make_stage("[[turn]]\ntext = { tokens = 50 }").play(max_output_tokens=16)
    assert sink.tokens == 16
    assert sink.outcomes == [Finish(FinishReason.LENGTH, PassUsage(120, 100, 16, 0))]


def test_a_finished_script_fails_the_pass_if_told_so(make_stage: MakeStage) -> None:
    sink = make_stage('on_end = "error"\n[[turn]]\ntext = "x"').play(turn=1)
    outcome = sink.outcomes[0]
    assert isinstance(outcome, EngineFailure)
    assert outcome.code == "server_error"
    assert "pass 2" in outcome.message


def test_dying_in_mid_stream_gives_the_tokens_before(make_stage: MakeStage) -> None:
    stage = make_stage(
        '[[turn]]\ntext = { tokens = 50 }\nerror = { code = "server_is_overloaded", after_tokens = 7, retry_after = 2 }'
    )
    sink = stage.play()
    assert sink.tokens == 7
    outcome = sink.outcomes[0]
    assert isinstance(outcome, EngineFailure)
    assert (outcome.code, outcome.retry_after) == ("server_is_overloaded", 2.0)


def test_a_turn_may_have_a_speed_of_its_own(make_stage: MakeStage) -> None:
    stage = make_stage(
        "[speed]\nttft_ms = 10\ntokens_per_second = 100\n"
        "[[turn]]\ntext = { tokens = 100 }\n[[turn]]\ntext = { tokens = 100 }\nspeed.tokens_per_second = 1000"
    )
    slow, _ = stage.start(turn=0)
    fast, _ = stage.start(turn=1)
    stage.clock.run(0.0605)
    assert (slow.tokens, fast.tokens) == (6, 51)


def test_a_speed_given_to_the_engine_wins_over_the_files(make_stage: MakeStage) -> None:
    source = "[speed]\nttft_ms = 10\n[[turn]]\ntext = { tokens = 100 }\nspeed.tokens_per_second = 1000"
    stage = make_stage(source, SpeedChange(tokens_per_second=10))
    sink, _ = stage.start()
    stage.clock.run(1.0105)
    assert sink.tokens == 11


async def test_closing_aborts_what_runs_and_fails_what_comes(stage: Stage) -> None:
    running, _ = stage.start()
    await stage.engine.aclose()
    await stage.engine.aclose()
    assert stage.engine.running == 0
    assert stage.clock.pending == 0
    late = stage.play()
    assert running.outcomes == []
    assert isinstance(late.outcomes[0], EngineFailure)
