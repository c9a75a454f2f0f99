"""Scenario files: what they may say, how mistakes are told, and what they are compiled to."""

from __future__ import annotations

import json
import math

import pytest

from turnwire.bench.scenario.compiling import MODEL, at_once, compile_rollout, inference_time
from turnwire.bench.scenario.material import make
from turnwire.bench.scenario.reading import ScenarioError, load, read, shipped
from turnwire.bench.scenario.values import STREAMED, Kind, Material, Output, Speed
from turnwire.server.engine.scripted.scenario import load_scenario

WHOLE = """
description = "all of it"
seed = 9

[speed]
ttft = "30ms"
tokens_per_second = 200
burst = 4

[network]
rtt = "50ms"
bandwidth_mbit = 100
slow_start = true

[load]
rollouts = 8
agents = 4

[request]
instructions = "2KiB"
tools = "6KiB"
history = "10KiB"
message = "300B"

[output]
verbosity = "done"
token_ids = true
logprobs = true

[fork]
after = 2
lanes = 8

[idle]
sessions = 10
time = "1s"

[limits]
max_seconds = 60

[[turn]]
reasoning = 40
text = 20

[[turn.call]]
name = "run_tests"
arguments_tokens = 15
time = "250ms"
output = { kind = "test-log", size = "8KiB" }

[[turn.call]]
name = "search"
time = "20ms"
output = { kind = "search", size = "1KiB" }

[[turn]]
repeat = 2
text = 50
think = "1s"
reply = { kind = "prose", size = "200B" }

[[turn]]
text = 30
"""


def problems(source: str) -> list[str]:
    with pytest.raises(ScenarioError) as raised:
        read(source, "my.toml")
    return str(raised.value).splitlines()


def test_a_file_that_says_everything_is_read() -> None:
    scenario = read(WHOLE, "whole.toml")
    assert (scenario.name, scenario.seed, scenario.tool_calls) == ("whole", 9, 2)
    assert (scenario.speed.ttft, scenario.network.rtt, scenario.network.bandwidth) == (0.03, 0.05, 1e8)
    assert (scenario.load.rollouts, scenario.load.agents, scenario.load.rate) == (8, 4, 0.0)
    assert scenario.fork is not None
    assert (scenario.fork.after, scenario.fork.lanes) == (2, 8)
    assert [len(turn.calls) for turn in scenario.turns] == [2, 0, 0, 0]
    assert scenario.output == compile_rollout(scenario).output == Output(done_only=True, token_ids=True, logprobs=True)
    assert scenario.turns[0].calls[0].output == Material(Kind.TEST_LOG, 8192)


def test_the_smallest_file_is_one_turn() -> None:
    scenario = read("[[turn]]\ntext = 5\n", "small.toml")
    assert math.isinf(scenario.speed.tokens_per_second)
    assert scenario.load.rollouts == 1
    assert scenario.output == STREAMED


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_scenarios_can_be_played(name: str) -> None:
    scenario = load(name)
    rollout = compile_rollout(scenario)
    assert scenario.description
    assert MODEL in load_scenario(rollout.script).models
    assert len(rollout.turns) == len(scenario.turns)


def test_what_is_shipped_is_what_the_docs_name() -> None:
    assert set(shipped()) >= {"chat-short", "codex-fix", "long-history", "fleet", "subagents", "burst", "idle", "rl"}
    assert load("codex-fix").tool_calls == 30


def test_a_scenario_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ScenarioError, match="codex-fix"):
        load("codex-fox")
    with pytest.raises(ScenarioError, match="cannot be read"):
        load("nowhere.toml")


def test_mistakes_are_all_told_with_line_and_key() -> None:
    found = problems('[speed]\nttft = "soon"\nburts = 3\n\n[[turn]]\ntext = -1\n[[turn.call]]\nname = "a b"\n')
    assert [each.split(": ")[:2] for each in found] == [
        ["my.toml:2", "key 'speed.ttft'"],
        ["my.toml:3", "key 'speed.burts'"],
        ["my.toml:5", "key 'turn'"],
        ["my.toml:6", "key 'turn[0].text'"],
        ["my.toml:8", "key 'turn[0].call[0].name'"],
    ]
    assert 'did you mean "burst"?' in found[1]


@pytest.mark.parametrize(
    ("source", "key", "said"),
    [
        ("seed = 1", "turn", "at least one [[turn]]"),
        ("[[turn]]\nreasoning = 4", "turn[0].text", "a turn needs `text`, or calls"),
        ('[[turn]]\ntext = 4\nreply = { kind = "novel", size = 4 }', "turn[0].reply.kind", '"test-log"'),
        ("[load]\nagents = 2\nrate = 3\n[[turn]]\ntext = 1", "load.rate", "either `agents` or `rate`"),
        ("[load]\nagents = 9\nrollouts = 3\n[[turn]]\ntext = 1", "load.rollouts", "each of the 9 agents"),
        ("[network]\nslow_start = true\n[[turn]]\ntext = 1", "network.slow_start", "`rtt` is 0"),
        ("[fork]\nafter = 1\n[[turn]]\ntext = 1", "fork.after", "fewer than the 1 turns"),
        ('[fork]\n[[turn]]\n[[turn.call]]\nname = "a"\n[[turn]]\ntext = 1', "fork.after", "turn 1 calls tools"),
        ("[output]\ntoken_ids = true\n[[turn]]\ntext = 1", "output.token_ids", 'needs `verbosity = "done"`'),
        ('[output]\nverbosity = "all"\n[[turn]]\ntext = 1', "output.verbosity", '"deltas"'),
        ("[output]\nlogprobs = 3\n[[turn]]\ntext = 1", "output.logprobs", "true or false"),
        ('[[turn]]\n[[turn.call]]\nname = "a"', "turn", "the last turn calls tools"),
        ('[[turn]]\nthink = "1s"\n[[turn.call]]\nname = "a"\n[[turn]]\ntext = 1', "turn[0].think", "not the user"),
        ("[[turn]]\ntext = 1\nrepeat = 1000\n[[turn]]\ntext = 1", "turn", "at most 1000 turns"),
        ("[limits]\nmax_seconds = 0\n[[turn]]\ntext = 1", "limits.max_seconds", "expected a duration"),
        ('[request]\nhistory = "20MiB"\n[[turn]]\ntext = 1', "request.history", "16777216"),
    ],
)
def test_what_makes_no_sense_is_refused(source: str, key: str, said: str) -> None:
    [problem] = problems(source)
    assert f"key '{key}'" in problem
    assert said in problem


def test_the_client_knows_what_the_model_will_say_and_how_long_that_takes() -> None:
    rollout = compile_rollout(read(WHOLE, "whole.toml"))
    script = load_scenario(rollout.script)
    first, second, _, last = rollout.turns
    assert [call.arguments for call in first.calls] == [call.arguments for call in script.turns[0].calls]
    assert second.text == script.turns[1].text
    # 50 tokens, four at once, 200 a second: the last burst is the 13th, due 12 times 20 ms after the first.
    assert (second.tokens, second.first_token) == (50, 0.03)
    assert (first.text_tokens, second.text_tokens) == (20, 50)
    assert second.inference == pytest.approx(0.03 + 12 * 0.02)
    assert (first.pause, second.pause, last.pause) == (0.25, 1.0, 0.0)
    assert (first.reply, len(second.reply), last.reply) == ("", 200, "")
    assert [len(call.output) for call in first.calls] == [8192, 1024]


def test_sizes_are_as_asked_for() -> None:
    rollout = compile_rollout(read(WHOLE, "whole.toml"))
    assert (len(rollout.instructions), len(rollout.message)) == (2048, 300)
    assert [len(message) for message in rollout.history] == [4096, 4096, 2048]
    declared = sum(len(tool.name) + len(tool.description) + len(tool.parameters) + 60 for tool in rollout.tools)
    assert declared == pytest.approx(6 * 1024, rel=0.1)
    assert {"run_tests", "search"} <= {tool.name for tool in rollout.tools}
    assert all(json.loads(tool.parameters)["type"] == "object" for tool in rollout.tools)


def test_the_same_file_gives_the_same_rollout() -> None:
    assert compile_rollout(read(WHOLE, "whole.toml")) == compile_rollout(read(WHOLE, "whole.toml"))


def test_a_check_does_not_wait_for_tools() -> None:
    rollout = at_once(compile_rollout(read(WHOLE, "whole.toml")))
    assert {turn.pause for turn in rollout.turns} == {0.0}
    assert {call.time for turn in rollout.turns for call in turn.calls} == {0.0}


def test_a_model_without_a_set_speed_has_no_inference_but_its_first_token() -> None:
    assert inference_time(Speed(0.1, math.inf, 1), 1000) == (0.1, 0.1)
    assert inference_time(Speed(0.1, 100.0, 1), 1) == (0.1, 0.1)
    assert list(inference_time(Speed(0.1, 100.0, 1), 11)) == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize("kind", list(Kind))
def test_materials_are_plain_text_of_the_size_asked_for(kind: Kind) -> None:
    text = make(Material(kind, 5_000), "seed")
    assert len(text.encode()) == 5_000
    assert text == make(Material(kind, 5_000), "seed") != make(Material(kind, 5_000), "other")
    assert len(set(text.splitlines())) > 20
