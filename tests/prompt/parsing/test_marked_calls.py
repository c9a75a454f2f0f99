"""Calls with arguments as bare text: types by schema, streaming, and what broken ones become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.prompt.parsing import Event, ParsedCallDelta, ParsedText, parser_for
from turnwire.server.prompt.parsing.argument_types import MOST_HELD, as_json, types_by_name

DSML = "\uff5cDSML\uff5c"


def types_of(schema: Any) -> frozenset[str]:
    document = {"properties": {"a": schema}, "$defs": {"place": {"type": "object"}, "loop": {"$ref": "#/$defs/loop"}}}
    return types_by_name(json.dumps(document)).get("a", frozenset())


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "number"),
        ({"type": ["integer", "null"]}, "null number"),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "array string"),
        ({"oneOf": [{"const": 1}, {"enum": ["a", None]}]}, "null number string"),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string", "minLength": 1}]}, "string"),
        ({"enum": [True, False]}, "boolean"),
        ({"$ref": "#/$defs/place"}, "object"),
        ({"properties": {"b": {}}}, "object"),
        ({"items": {}}, "array"),
        # Nothing is told by these.
        ({}, ""),
        ({"type": "date"}, ""),
        ({"anyOf": [{"type": "string"}, {}]}, ""),
        ({"$ref": "#/$defs/loop"}, ""),
        ({"$ref": "https://elsewhere/schema"}, ""),
        ({"$ref": 7}, ""),
        (True, ""),
    ],
)
def test_the_types_of_an_argument_are_those_that_its_schema_allows(schema: Any, types: str) -> None:
    assert types_of(schema) == frozenset(types.split())


@pytest.mark.parametrize("schema", ["", "not json", "[]", "3", '{"properties": []}', "[" * 100_000])
def test_what_is_no_schema_tells_no_types(schema: str) -> None:
    assert types_by_name(schema) == {}


def test_arguments_are_found_in_alternatives_too() -> None:
    schema = {"allOf": [{"properties": {"a": {"type": "string"}}}, {"$ref": "#/$defs/more"}]}
    more = {"properties": {"b": {"type": "number"}}}
    assert types_by_name(json.dumps({**schema, "$defs": {"more": more}})) == {"a": {"string"}, "b": {"number"}}


@pytest.mark.parametrize(
    ("types", "text", "expected"),
    [
        ("string", "3", '"3"'),
        ("string", '{"a": 1}', '"{\\"a\\": 1}"'),
        ("number", " 3 ", "3"),
        ("number", "1e20", "1e20"),
        ("number", "NaN", '"NaN"'),
        ("number", "0x1f", '"0x1f"'),
        ("number", "three", '"three"'),
        ("number", "true", '"true"'),
        ("boolean", "True", "true"),
        ("boolean", "1", '"1"'),
        ("null string", "null", "null"),
        ("null string", "None", "null"),
        ("null string", "nullable", '"nullable"'),
        ("number string", "3", "3"),
        ("object", '{"a": [1, null]}', '{"a": [1, null]}'),
        ("object", "{'a': (True, None)}", '{"a": [true, null]}'),
        ("object", "{'a': open('x')}", "\"{'a': open('x')}\""),
        ("object", "[1]", '"[1]"'),
        ("array", "[1, 2", '"[1, 2"'),
        ("array", "[" * 10_000, json.dumps("[" * 10_000)),
        ("any", "3", "3"),
        ("any", '"3"', '"\\"3\\""'),
        ("any", "Paris", '"Paris"'),
        ("any", "", '""'),
    ],
)
def test_a_text_becomes_json_of_its_type_else_a_string(types: str, text: str, expected: str) -> None:
    every = "string number boolean null object array"
    found = as_json(text, frozenset((every if types == "any" else types).split()))
    assert found == expected


SCHEMAS = {
    "f": json.dumps({"properties": {"s": {"type": "string"}, "n": {"type": "number"}, "o": {"type": "object"}}}),
    "g": "{}",
}

BROKEN: list[tuple[str, str, list[tuple[str, ...]]]] = [
    # Marks that are missing.
    (
        "qwen-coder",
        "<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>",
        [("call", "f", '{"s": "x"}')],
    ),
    ("qwen-coder", "<tool_call><function=f>\n<parameter=s>\nx\n</function></tool_call>", [("call", "f", '{"s": "x"}')]),
    ("qwen-coder", "<tool_call><function=f>\n<parameter=s>\nx\n</tool_call>", [("call", "f", '{"s": "x"}')]),
    (
        "qwen-coder",
        "<tool_call><function=f>\n<parameter=n>\n1\n<parameter=s>\nx\n</parameter></function>",
        [("call", "f", '{"n": 1, "s": "x"}')],
    ),
    (
        "qwen-coder",
        "<tool_call>\n<function=g>\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
        [("call", "g", "{}"), ("call", "f", "{}")],
    ),
    (
        "qwen-coder",
        "<tool_call><function=g></function><function=f></function></tool_call>ok",
        [("call", "g", "{}"), ("call", "f", "{}"), ("text", "ok")],
    ),
    ("qwen-coder", "<tool_call><function=g> and </function></tool_call>ok", [("call", "g", "{}"), ("text", "ok")]),
    (
        "qwen-coder",
        "<tool_call><function=g> and a long text that goes on behind it",
        [("call", "g", "{}"), ("text", "and a long text that goes on behind it")],
    ),
    ("glm", "<tool_call>f<arg_key>s</arg_key><arg_value>x</tool_call>", [("call", "f", '{"s": "x"}')]),
    (
        "glm",
        "<tool_call>f<arg_key>s</arg_key><arg_value>x</tool_call>\n<tool_call>g</tool_call>",
        [("call", "f", '{"s": "x"}'), ("call", "g", "{}")],
    ),
    ("glm", "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>", [("call", "f", '{"n": 1}')]),
    (
        "dsml",
        f'<{DSML}invoke name="f"><{DSML}parameter name="n">1</{DSML}parameter></{DSML}function_calls>ok',
        [("call", "f", '{"n": 1}'), ("text", "ok")],
    ),
    (
        "dsml",
        f'<{DSML}invoke name="g"><{DSML}invoke name="f"></{DSML}invoke>',
        [("call", "g", "{}"), ("call", "f", "{}")],
    ),
    # Calls that are none.
    ("qwen-coder", "Use <tool_call> to call.", [("text", "Use <tool_call> to call.")]),
    ("qwen-coder", "Write <function=name> there.", [("text", "Write <function=name> there.")]),
    ("qwen-coder", '<tool_call>{"name": "f"}</tool_call>', [("text", '<tool_call>{"name": "f"}</tool_call>')]),
    (
        "qwen-coder",
        "<tool_call><function=></function></tool_call>",
        [("text", "<tool_call><function=></function></tool_call>")],
    ),
    ("qwen-coder", "Hi\n<tool_call>\n", [("text", "Hi")]),
    ("glm", "<tool_call>not a call</tool_call>", [("text", "<tool_call>not a call</tool_call>")]),
    ("glm", "<tool_call></tool_call>", [("text", "<tool_call></tool_call>")]),
    ("dsml", f"<{DSML}invoke>x", [("text", f"<{DSML}invoke>x")]),
    # In reasoning, models that forget to close it call all the same; what is no call stays reasoning.
    (
        "qwen-coder",
        "<think>Hm.\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
        [("reasoning", "Hm."), ("call", "g", "{}")],
    ),
    ("qwen-coder", "<think>A <tool_call> it is.</think>Hi", [("reasoning", "A <tool_call> it is."), ("text", "Hi")]),
    (
        "glm",
        "<think>A <tool_call>g</tool_call>.</think>Hi",
        [("reasoning", "A <tool_call>g</tool_call>."), ("text", "Hi")],
    ),
    # A value that never ends stays as it is.
    ("qwen-coder", "<tool_call><function=f>\n<parameter=s>\nrm -rf /", [("call", "f", '{"s": "rm -rf /')]),
    ("qwen-coder", "<tool_call><function=f>\n<parameter=n>\n1", [("call", "f", '{"n": ')]),
    # Not told by a schema: JSON where it reads as JSON.
    (
        "qwen-coder",
        "<tool_call><function=g>\n<parameter=a>\n3\n</parameter>\n<parameter=b>\nx\n</parameter></function>",
        [("call", "g", '{"a": 3, "b": "x"}')],
    ),
]


@pytest.mark.parametrize(("output_format", "text", "expected"), BROKEN)
def test_broken_calls_become_what_is_nearest(
    run: Any, output_format: str, text: str, expected: list[tuple[str, ...]]
) -> None:
    for pieces in ([text], list(text)):
        items = run(parser_for(output_format, tools=SCHEMAS, schemas=SCHEMAS), pieces)
        assert [item.brief() for item in items] == expected


def test_a_string_is_passed_on_as_it_is_sampled() -> None:
    parser = parser_for("qwen-coder", tools=SCHEMAS, schemas=SCHEMAS)
    assert said(parser.feed((), "<tool_call>\n<function=f>\n<parameter=s>\n")) == '{"s": "'
    assert said(parser.feed((), 'Say "')) == 'Say \\"'
    # What may be the end of the value waits.
    assert said(parser.feed((), "hi\n</par")) == "hi"
    assert said(parser.feed((), "agraph>\n</parameter>")) == "\\n</paragraph>"
    assert said(parser.feed((), "\n</function>")) == '"}'
    assert said(parser.finish("stop")) == ""


def test_everything_else_is_passed_on_when_it_is_complete() -> None:
    parser = parser_for("glm", tools=SCHEMAS, schemas=SCHEMAS)
    assert said(parser.feed((), "<tool_call>f<arg_key>o</arg_key><arg_value>{'a'")) == '{"o": '
    assert said(parser.feed((), ": True}</arg_value>")) == ""
    assert said(parser.feed((), "</tool_call>")) == '{"a": true}}'


def test_a_call_that_a_limit_cut_has_no_end(run: Any) -> None:
    for text, arguments in (
        ("<tool_call><function=f>\n<parameter=s>\nrm -rf /", '{"s": "rm -rf /'),
        ("<tool_call><function=f>\n<parameter=o>\n{}", '{"o": '),
        ("<tool_call><function=f>\n<parameter=n>\n1\n</parameter>\n", '{"n": '),
        ("<tool_call><function=f>\n", ""),
    ):
        (item,) = run(parser_for("qwen-coder", tools=SCHEMAS, schemas=SCHEMAS), [text], "length")
        assert (item.name, item.text, item.ended) == ("f", arguments, False)


def test_ids_go_with_the_text_they_come_from() -> None:
    schemas = {"f": json.dumps({"properties": {"s": {"type": "string"}, "n": {"type": "number"}}})}
    pairs = (("n", "42"), ("s", "ab"))
    inner = "".join(f"<arg_key>{name}</arg_key><arg_value>{value}</arg_value>" for name, value in pairs)
    text = f"<tool_call>f{inner}</tool_call>"
    parser = parser_for("glm", schemas=schemas)
    events: list[Event] = []
    for number, letter in enumerate(text):
        events += parser.feed((number,), letter)
    events += parser.finish("stop")
    deltas = [event for event in events if isinstance(event, ParsedCallDelta) and event.ids]
    assert ["".join(text[token] for token in delta.ids) for delta in deltas] == ["42", "a", "b"]
    assert [delta.start for delta in deltas] == [delta.ids[0] for delta in deltas]


def test_what_is_too_long_to_wait_for_is_a_string() -> None:
    text = "<tool_call>f<arg_key>o</arg_key><arg_value>{" + "x" * MOST_HELD
    parser = parser_for("glm", tools=SCHEMAS, schemas=SCHEMAS)
    arguments = said(parser.feed((), text)) + said(parser.feed((), "</arg_value></tool_call>"))
    assert json.loads(arguments) == {"o": "{" + "x" * MOST_HELD}


def test_text_and_calls_of_one_output_keep_their_order() -> None:
    parser = parser_for("qwen-coder", tools=SCHEMAS, schemas=SCHEMAS)
    events = parser.feed((), "One.<tool_call><function=g></function></tool_call>Two.") + parser.finish("stop")
    assert [event.text for event in events if isinstance(event, ParsedText)] == ["One.", "Two."]


def said(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ParsedCallDelta))
