from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from turnwire.server.engine.scripted.filler import WORDS, filler
from turnwire.server.engine.scripted.scenario import (
    Call,
    OnEnd,
    ScenarioError,
    Speed,
    SpeedChange,
    load_scenario,
    packaged_scenario,
)
from turnwire.server.prompt import vocabulary
from turnwire.server.session.chunks import CallKind, FinishReason
from turnwire.v1 import errors

DOCS = Path(__file__).parents[2] / "docs" / "scenarios.md"


def problems(source: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source, "a.toml")
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return str(caught.value).splitlines()


def test_the_smallest_file_has_sensible_defaults() -> None:
    scenario = load_scenario('[[turn]]\ntext = "hi"')
    assert scenario.models == ("scripted",)
    assert scenario.speed == Speed(0.0, math.inf, 1)
    assert scenario.on_end is OnEnd.LAST
    assert scenario.turns[0].text == "hi"
    assert scenario.turns[0].finish is FinishReason.STOP
    assert not scenario.reads_text


def test_every_example_in_the_documentation_loads() -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 3
    for example in examples:
        load_scenario(example, "docs")


def test_error_codes_in_the_documentation_are_in_the_table() -> None:
    for code in re.findall(r'code = "(\w+)"', DOCS.read_text(encoding="utf-8")):
        assert code in errors.ERRORS


@pytest.mark.parametrize("name", ["demo", "hello"])
def test_packaged_scenarios_load(name: str) -> None:
    assert packaged_scenario(name).turns


def test_an_unknown_packaged_scenario_is_named() -> None:
    with pytest.raises(ScenarioError, match="packaged scenario nope: there is no such scenario"):
        packaged_scenario("nope")


def test_everything_that_can_be_said_is_read() -> None:
    scenario = load_scenario("""
        on_end = "repeat"
        [model]
        names = ["a", "b"]
        context_length = 1000
        [speed]
        ttft_ms = 250
        tokens_per_second = 65
        burst = 4
        [[turn]]
        when = "x+"
        reasoning = "r"
        summary = "s"
        refusal = "no"
        text = { text = "ab", repeat = 3 }
        finish = "content_filter"
        speed = { tokens_per_second = "unlimited" }
        [[turn.call]]
        name = "f"
        arguments = { b = 1, a = ["é", { c = 1.5, d = true }] }
        [[turn.call]]
        name = "g"
        arguments = '{"b":  1}'
        call_id = "call_g"
        [[turn.call]]
        name = "h"
        input = "free"
        [[turn.call]]
        name = "i"
        raw_arguments = '{"broken'
        [[turn.call]]
        name = "j"
        [[turn]]
        error = { code = "server_error", message = "m", after_tokens = 3, retry_after = 1.5 }
    """)
    assert (scenario.models, scenario.context_length, scenario.on_end) == (("a", "b"), 1000, OnEnd.REPEAT)
    assert scenario.speed == Speed(0.25, 65.0, 4)
    turn, failing = scenario.turns
    assert turn.text == "ababab"
    assert turn.finish is FinishReason.CONTENT_FILTER
    assert turn.speed == SpeedChange(tokens_per_second=math.inf)
    assert turn.calls == (
        Call("f", CallKind.FUNCTION, '{"b":1,"a":["é",{"c":1.5,"d":true}]}'),
        Call("g", CallKind.FUNCTION, '{"b":  1}', "call_g"),
        Call("h", CallKind.CUSTOM, "free"),
        Call("i", CallKind.FUNCTION, '{"broken'),
        Call("j", CallKind.FUNCTION, "{}"),
    )
    assert failing.failure is not None
    assert (failing.failure.code, failing.failure.message) == ("server_error", "m")
    assert (failing.failure.after_tokens, failing.failure.retry_after) == (3, 1.5)


def test_all_mistakes_are_reported_at_once_with_line_and_key() -> None:
    assert problems("""\
on_end = "lst"
speeed = 1

[speed]
ttft_ms = -1
tokens_per_second = "fast"
burst = 0

[[turn]]
text = 5
[[turn.call]]
nam = "f"
arguments = '{"a" 1}'

[[turn]]
finish = "stopp"
reasoning = { tokens = 1, text = "x" }

[[turn]]
when = "("
finish = "stop"
error = { message = 3 }
""") == [
        'a.toml:1: key \'on_end\': expected one of "last", "repeat", "error", found "lst"; did you mean "last"?',
        "a.toml:2: key 'speeed': unknown key; did you mean \"speed\"?",
        "a.toml:5: key 'speed.ttft_ms': expected a number from 0 to 3.6e+06, found -1",
        "a.toml:6: key 'speed.tokens_per_second': expected a number from 0 to 1e+06 or \"unlimited\", found a string",
        "a.toml:7: key 'speed.burst': expected an integer from 1 to 2000000, found 0",
        "a.toml:10: key 'turn[0].text': expected a string, { text, repeat } or { tokens }, found an integer",
        "a.toml:11: key 'turn[0].call[0].name': missing: expected the tool's name",
        "a.toml:12: key 'turn[0].call[0].nam': unknown key; did you mean \"name\"?",
        "a.toml:13: key 'turn[0].call[0].arguments': expected JSON: Expecting ':' delimiter: line 1 column 6 (char 5); "
        "for broken JSON on purpose use `raw_arguments`",
        'a.toml:16: key \'turn[1].finish\': expected one of "stop", "length", "content_filter", found "stopp"; '
        'did you mean "stop"?',
        "a.toml:17: key 'turn[1].reasoning': expected either `text`, with or without `repeat`, or `tokens`",
        "a.toml:20: key 'turn[2].when': expected a regular expression: "
        "missing ), unterminated subpattern at position 0",
        "a.toml:21: key 'turn[2].finish': expected either `finish` or `error`, found both",
        "a.toml:22: key 'turn[2].error.code': missing: expected an error code such as \"server_error\"",
        "a.toml:22: key 'turn[2].error.message': expected a string, found an integer",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", "a.toml:1: key 'turn': missing: a scenario needs at least one [[turn]]"),
        ("turn = []", "a.toml:1: key 'turn': expected tables, each begun by [[turn]], found an empty array"),
        ("[turn]\ntext = 'x'", "a.toml:1: key 'turn': expected tables, each begun by [[turn]], found a table"),
        ("turn = [1]", "a.toml:1: key 'turn': expected tables, each begun by [[turn]], found an array"),
        (
            "[[turn]]\nspeed = {}",
            "a.toml:1: key 'turn[0]': says nothing: expected text, reasoning, summary, refusal, call or error",
        ),
        ("[[turn]]\ntext='x'\nspeed = 3", "a.toml:3: key 'turn[0].speed': expected a table, found an integer"),
        ("[[turn]]\ntext='x'\nfoo = 3", "a.toml:3: key 'turn[0].foo': unknown key; known here: call, error, finish, "),
        ("model.name = 3\n[[turn]]\ntext=''", "a.toml:1: key 'model.name': expected a string, found an integer"),
        (
            "model.names = []\n[[turn]]\ntext=''",
            "a.toml:1: key 'model.names': expected an array of strings, found an e",
        ),
        (
            "model.names = ['a', 1]\n[[turn]]\ntext=''",
            "a.toml:1: key 'model.names': expected an array of strings, foun",
        ),
        ("model.names = ['a', 'a']\n[[turn]]\ntext=''", "a.toml:1: key 'model.names': expected model names that are"),
        ("model = {name='a', names=['b']}\n[[turn]]\ntext=''", "a.toml:1: key 'model.names': expected either `name`"),
        ("speed.burst = 1.5\n[[turn]]\ntext=''", "a.toml:1: key 'speed.burst': expected an integer from 1 to 2000000"),
        ("speed.burst = true\n[[turn]]\ntext=''", "a.toml:1: key 'speed.burst': expected an integer from 1 to 200000"),
        ("speed.ttft_ms = nan\n[[turn]]\ntext=''", "a.toml:1: key 'speed.ttft_ms': expected a number from 0 to 3.6e+0"),
        (
            "on_end = 2024-01-01\n[[turn]]\ntext=''",
            'a.toml:1: key \'on_end\': expected one of "last", "repeat", "error"',
        ),
        ("[[turn]]\ntext = {text='ab', repeat=9000000}", "a.toml:2: key 'turn[0].text.repeat': expected at most"),
        ("[[turn]]\ntext = {repeat=2}", "a.toml:2: key 'turn[0].text': expected either `text`"),
        ("[[turn]]\ntext = {tokens=0}", "a.toml:2: key 'turn[0].text.tokens': expected an integer from 1 to"),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\nkind='fn'",
            "a.toml:4: key 'turn[0].call[0].kind': expected one of \"func",
        ),
        ("[[turn]]\n[[turn.call]]\nname='a b'", "a.toml:3: key 'turn[0].call[0].name': expected 1 to 128 letters"),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\narguments='[1]'",
            "a.toml:4: key 'turn[0].call[0].arguments': expected a JSON object",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\narguments=3",
            "a.toml:4: key 'turn[0].call[0].arguments': expected a table or a string of JSON, found an integer",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\n[turn.call.arguments]\na = 1\nb = [0, inf]",
            "a.toml:6: key 'turn[0].call[0].arguments.b[1]': JSON has no such value",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\narguments={}\nraw_arguments=''",
            "a.toml:5: key 'turn[0].call[0].raw_arguments': expected either",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\nkind='custom'",
            "a.toml:2: key 'turn[0].call[0].input': missing: a custom tool needs its input",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\nkind='function'\ninput='x'",
            "a.toml:5: key 'turn[0].call[0].input': a function takes `arguments`",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\ninput='x'\narguments={}",
            "a.toml:5: key 'turn[0].call[0].arguments': a custom tool takes `input`",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\ncall_id=''",
            "a.toml:4: key 'turn[0].call[0].call_id': expected 1 to 64 characters, found 0",
        ),
        (
            "[[turn]]\n[[turn.call]]\nname='f'\ncall_id='c'\n[[turn]]\n[[turn.call]]\nname='f'\ncall_id='c'",
            "a.toml:8: key 'turn[1].call[0].call_id': expected an id of its own, 'c' is already used on line 4",
        ),
        ("[[turn]]\nerror = {code='Bad Code'}", "a.toml:2: key 'turn[0].error.code': expected lower-case words"),
        ("[[turn]]\ntext = 'x\n", "a.toml:2: not valid TOML: "),
        ("[[turn]]\ntext = [1,\n", "a.toml:2: not valid TOML: "),
    ],
)
def test_a_mistake_names_its_line_key_and_what_is_expected(source: str, expected: str) -> None:
    found = problems(source)
    assert any(each.startswith(expected) for each in found), found


def test_a_file_that_cannot_be_read_is_a_scenario_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"missing\.toml: cannot be read: No such file"):
        load_scenario(tmp_path / "missing.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match=r"binary\.toml: cannot be read: not UTF-8 text"):
        load_scenario(binary)


def test_a_path_is_named_in_its_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("foo = 1\n[[turn]]\ntext = ''", encoding="utf-8")
    with pytest.raises(ScenarioError, match=rf"^{re.escape(str(file))}:1: key 'foo'"):
        load_scenario(file)


@pytest.mark.parametrize("tokens", [1, 2, 7, 100, 5000])
def test_filler_has_exactly_the_tokens_asked_for(tokens: int) -> None:
    text = filler(tokens, "seed")
    assert vocabulary.count(text) == tokens
    assert filler(tokens, "seed") == text
    assert tokens < 7 or filler(tokens, "other") != text


def test_every_filler_word_is_one_token_in_both_places() -> None:
    for word in WORDS:
        assert vocabulary.count(word) == vocabulary.count(f" {word}") == 1, word


THREE = '[[turn]]\ntext="1"\n[[turn]]\nwhen="boom"\ntext="w"\n[[turn]]\ntext="2"\n'


@pytest.mark.parametrize(
    ("on_end", "expected"),
    [("last", ["1", "2", "2", "2"]), ("repeat", ["1", "2", "1", "2"]), ("error", ["1", "2", None, None])],
)
def test_turns_go_by_position_and_then_by_on_end(on_end: str, expected: list[str | None]) -> None:
    scenario = load_scenario(f'on_end="{on_end}"\n{THREE}')
    chosen = [scenario.select(index, "quiet") for index in range(4)]
    assert [selection and selection.turn.text for selection in chosen] == expected


def test_a_matching_turn_wins_at_any_position() -> None:
    scenario = load_scenario(THREE)
    for index in range(4):
        selection = scenario.select(index, "went boom.")
        assert selection is not None
        assert selection.turn.text == "w"


def test_nothing_is_chosen_if_no_condition_holds() -> None:
    assert load_scenario('[[turn]]\nwhen="a"\ntext="x"').select(0, "b") is None
