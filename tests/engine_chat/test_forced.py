"""Calls that have to be made, of servers that do not make models call."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.engine.chat.forced import CallReader, ForcedCall, call_schema, forced_names
from turnwire.server.engine.chat.frames import CallPiece, Delta, FunctionPiece
from turnwire.server.engine.chat.tools import EncodedTools, ToolCache
from turnwire.server.session.chunks import FinishReason
from turnwire.server.session.transcript import EMPTY
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import ResponseCreate

from .conftest import Make
from .scene import FakeUpstream, RecordingSink, create, grown, prompt, tool_set
from .upstream import delta, event

ADD: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/number"}, "b": {"$ref": "#/$defs/number"}},
        "required": ["a", "b"],
        "$defs": {"number": {"type": "integer"}},
    },
}
LOOK = {"type": "function", "name": "look"}
HI = grown(EMPTY, {"type": "message", "role": "user", "content": "Hi"})
DONE = b"data: [DONE]\n\n"


def encoded(*tools: dict[str, Any]) -> EncodedTools:
    return ToolCache().get(tool_set(*tools))


def names(choice: object, *tools: dict[str, Any]) -> tuple[str, ...]:
    settings = from_json(ResponseCreate, json.dumps({"tool_choice": choice}))
    return forced_names(settings.tool_choice, encoded(*tools))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ()),
        ("none", ()),
        ("required", ("add", "look")),
        ({"type": "function", "name": "look"}, ("look",)),
        ({"type": "function", "name": "nothing"}, ()),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}, ()),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}, ("add",)),
    ],
)
def test_what_a_choice_forces(choice: object, expected: tuple[str, ...]) -> None:
    assert names(choice, ADD, LOOK) == expected


def test_a_schema_that_refers_to_itself_still_does() -> None:
    tools = encoded(ADD, LOOK)
    schema = call_schema(("add", "look"), tools.functions)
    jsonschema.validate({"name": "add", "arguments": {"a": 1, "b": 2}}, schema)
    jsonschema.validate({"name": "look", "arguments": {"anything": 1}}, schema)
    wrong_ones: list[dict[str, Any]] = [
        {"name": "add", "arguments": {"a": "1", "b": 2}},
        {"name": "sub", "arguments": {}},
        {"name": "look"},
    ]
    for wrong in wrong_ones:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    name=st.text(min_size=1),
    arguments=st.dictionaries(st.text(), json_values, max_size=4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 2]),
    turned=st.booleans(),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=50),
)
def test_a_call_is_read_however_it_is_written_and_cut(
    name: str, arguments: dict[str, Any], ascii_only: bool, indent: int | None, turned: bool, cuts: list[int]
) -> None:
    members = [("name", name), ("arguments", arguments)]
    text = json.dumps(dict(reversed(members) if turned else members), ensure_ascii=ascii_only, indent=indent)
    reader = CallReader()
    pieces: list[str] = []
    place = 0
    while place < len(text):
        cut = cuts[place % len(cuts)]
        pieces.append(reader.feed(text[place : place + cut]))
        place += cut
    assert reader.name == name
    assert json.loads("".join(pieces)) == arguments


def test_arguments_come_as_they_are_sampled() -> None:
    reader = CallReader()
    assert reader.feed('{ "name" : "add", "argu') == ""
    assert reader.feed('ments": {"a"') == '{"a"'
    assert reader.feed(": 1}") == ": 1}"
    assert reader.feed("\n}") == ""


def read(*contents: str | None) -> list[Delta]:
    forced = ForcedCall()
    return [forced.read(Delta(content=content)) for content in contents]


def test_an_answer_that_is_a_call_as_json_is_read_as_the_call() -> None:
    nothing, first, second, last = read(None, '{"name": "look", ', '"arguments": {}', "}")
    assert nothing == Delta()
    assert first == Delta(tool_calls=[CallPiece(0, None, FunctionPiece("look", ""))])
    assert second == Delta(tool_calls=[CallPiece(0, None, FunctionPiece(None, "{}"))])
    assert last == Delta()


def test_reasoning_before_a_call_stays_reasoning() -> None:
    forced = ForcedCall()
    assert forced.read(Delta(reasoning_content="Hm.")) == Delta(reasoning_content="Hm.")
    both = forced.read(Delta(reasoning="So.", content='{"name": "look"'))
    assert both.reasoning_content == "So."


@pytest.mark.parametrize(
    "deltas",
    [
        [Delta(content="I would rather talk."), Delta(content=' {"name": "look"}')],
        [Delta(tool_calls=[CallPiece(0, "c1", FunctionPiece("look", "{}"))])],
        [Delta(refusal="No.")],
        [Delta(content=[{"type": "text", "text": "parts"}])],
    ],
)
def test_what_an_upstream_says_that_obeys_nothing_stays_as_it_is(deltas: list[Delta]) -> None:
    forced = ForcedCall()
    assert [forced.read(delta) for delta in deltas] == deltas
    assert forced.rest() == ""


def test_an_object_that_is_no_call_is_given_back() -> None:
    forced = ForcedCall()
    assert [forced.read(Delta(content=text)).content for text in ('{"city": ', '"Rome"}')] == [None, None]
    assert forced.rest() == '{"city": "Rome"}'


async def test_llamacpp_is_asked_for_a_call_by_its_schema_and_read_as_calling(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    pieces = ['{"name"', ': "add", "argu', 'ments": {"a": 1, ', '"b": 2}}']
    await upstream.stream(*(event(delta(content=piece)) for piece in pieces), event(delta("stop")), DONE)
    tools = tool_set(ADD, LOOK)
    wanted: dict[str, Any] = {
        "tool_choice": "required",
        "text": {"format": {"type": "json_object"}},
        "temperature": 0.5,
    }
    given = prompt(HI, tools=tools, **wanted)
    make_engine(flavour="llamacpp").start(given, sink)
    finish = await sink.finish()
    assert sink.said == [("call", "add"), ("arguments", '{"a": 1, "b": 2}'), ("end", "")]
    assert finish.reason is FinishReason.STOP
    [request] = await upstream.requests()
    asked = request["json"]
    assert asked["tool_choice"] == "auto"
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["add", "look"]
    assert asked["temperature"] == 0.5
    schema = asked["response_format"]["json_schema"]["schema"]
    assert [each["properties"]["name"]["const"] for each in schema["anyOf"]] == ["add", "look"]
    # The prompt's settings belong to the session.
    assert given.settings == create(**wanted)


async def test_a_named_function_is_the_only_one_that_llamacpp_may_call(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    whole = {"choices": [{"message": {"content": '{"name": "look", "arguments": {}}'}, "finish_reason": "stop"}]}
    await upstream.script(
        {"head": 200, "type": "application/json"}, {"send": json.dumps(whole).encode()}, {"end": True}
    )
    choice = {"type": "function", "name": "look"}
    make_engine(flavour="llamacpp").start(prompt(HI, tools=tool_set(ADD, LOOK), tool_choice=choice), sink)
    await sink.finish()
    assert sink.said == [("call", "look"), ("arguments", "{}"), ("end", "")]
    schema = (await upstream.requests())[0]["json"]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["name"] == {"const": "look"}


@pytest.mark.parametrize(
    ("content", "finish", "expected"),
    [
        ('{"city": "Rome"}', "stop", [("text", '{"city": "Rome"}')]),
        ("No.", "stop", [("text", "No.")]),
        ('{"name": "lo', "length", []),
        ('{"name": "look", "arguments": {"a"', "length", [("call", "look"), ("arguments", '{"a"')]),
    ],
)
async def test_an_answer_that_is_no_whole_call_is_what_it_is(
    make_engine: Make,
    upstream: FakeUpstream,
    sink: RecordingSink,
    content: str,
    finish: str,
    expected: list[tuple[str, str]],
) -> None:
    await upstream.stream(event(delta(content=content)), event(delta(finish)), DONE)
    make_engine(flavour="llamacpp").start(prompt(HI, tools=tool_set(LOOK), tool_choice="required"), sink)
    await sink.finish()
    assert sink.said == expected


@pytest.mark.parametrize("flavour", ["openai", "vllm", "generic", "ollama"])
async def test_other_servers_are_told_that_a_call_is_required(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink, flavour: str
) -> None:
    await upstream.stream(event(delta(content='{"name": "look", "arguments": {}}')), event(delta("stop")), DONE)
    make_engine(flavour=flavour).start(prompt(HI, tools=tool_set(LOOK), tool_choice="required"), sink)
    await sink.finish()
    assert sink.said == [("text", '{"name": "look", "arguments": {}}')]
    asked = (await upstream.requests())[0]["json"]
    assert asked["tool_choice"] == "required"
    assert "response_format" not in asked
