"""Calls that have to be made."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.engine.chat.tools import EncodedTools, ToolCache
from turnwire.server.engine.local.forced import CallReader, ForcedCalls, call_schema, forced_names
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import ResponseCreate

from .scene import text_event, tool_set, usage_event

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


def test_events_of_a_forced_answer_become_events_of_a_call() -> None:
    forced = ForcedCalls()
    events = [
        text_event(None),
        text_event('{"name": "look", '),
        text_event('"arguments": {}}'),
        text_event(None, "stop"),
    ]
    rewritten = [json.loads(forced.rewrite(event)) for event in events]
    deltas = [event["choices"][0]["delta"] for event in rewritten]
    assert deltas[0] == {"content": None}
    assert deltas[1]["tool_calls"] == [{"index": 0, "function": {"arguments": "", "name": "look"}}]
    assert deltas[2]["tool_calls"] == [{"index": 0, "function": {"arguments": "{}"}}]
    assert rewritten[3]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("event", [usage_event(), b'{"error": {"message": "no"}}', b"garbage", b"{}"])
def test_other_events_stay_as_they_are(event: bytes) -> None:
    assert ForcedCalls().rewrite(event) == event
