"""What the output is held to, in the frame of its format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.server.engine.tokens.constraints import constraint_of
from turnwire.server.engine.tokens.port import Constraint
from turnwire.v1.response_pb2 import JsonObjectFormat, JsonSchemaFormat, ResponseCreate, TextConfig, TextFormat
from turnwire.v1.tool_pb2 import (
    CustomTool,
    FunctionTool,
    NamedToolChoice,
    NamespaceTool,
    Tool,
    ToolChoice,
    ToolChoiceMode,
    ToolSet,
)

SCHEMA = '{"type":"object","properties":{"b":{},"a":{}}}'
ANSWER = TextConfig(format=TextFormat(json_schema=JsonSchemaFormat(name="x", schema=SCHEMA)))
OBJECT = TextConfig(format=TextFormat(json_object=JsonObjectFormat()))
READ = Tool(function=FunctionTool(name="read", parameters='{"type":"object"}'))
WRITE = Tool(function=FunctionTool(name="write"))
PATCH = Tool(custom=CustomTool(name="patch"))
REQUIRED = ToolChoice(mode=ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED)
NONE = ToolChoice(mode=ToolChoiceMode.TOOL_CHOICE_MODE_NONE)


def made(output_format: str, tools: Sequence[Tool] = (), **settings: Any) -> Constraint | None:
    return constraint_of(ResponseCreate(**settings), ToolSet(tools=tools), output_format)


def tag(output_format: str, tools: Sequence[Tool] = (), **settings: Any) -> Any:
    constraint = made(output_format, tools, **settings)
    assert constraint is not None
    assert constraint.kind == "structural_tag"
    read = msgspec.json.decode(constraint.text)
    assert read["type"] == "structural_tag"
    return read["format"]


def begins(element: Any) -> list[str]:
    """Returns what the alternatives of an element begin with."""
    if element["type"] == "or":
        return [begin for each in element["elements"] for begin in begins(each)]
    return [element["begin"]] if element["type"] == "tag" else begins(element["elements"][0])


def test_free_text_with_or_without_tools_is_held_to_nothing() -> None:
    for name in ("harmony", "hermes", "text", "unheard-of"):
        assert made(name) is None
        assert made(name, [READ]) is None
        assert made(name, [READ], tool_choice=NONE) is None


def test_a_schema_alone_is_the_whole_output_of_a_model_without_frames() -> None:
    assert made("text", text=ANSWER) == Constraint("json_schema", SCHEMA)
    assert made("hermes", text=ANSWER) == Constraint("json_schema", SCHEMA)
    assert made("text", text=OBJECT) == Constraint("json_object")
    assert made("text", [READ], text=ANSWER, tool_choice=NONE) == Constraint("json_schema", SCHEMA)


def test_harmony_may_think_before_an_answer_that_follows_the_schema() -> None:
    thinking, at_once = tag("harmony", text=ANSWER)["elements"]
    thought, between, answer = thinking["elements"]
    assert (thought["begin"], thought["end"]) == ("<|channel|>analysis<|message|>", "<|end|>")
    assert between == {"type": "const_string", "value": "<|start|>assistant"}
    assert answer == at_once
    assert answer["begin"] == "<|channel|>final<|message|>"
    assert list(answer["content"]["json_schema"]["properties"]) == ["b", "a"]


def test_an_answer_with_a_schema_leaves_tools_to_the_model() -> None:
    element = tag("harmony", [READ], text=ANSWER)["elements"][1]
    assert begins(element) == [
        "<|channel|>final<|message|>",
        "<|channel|>commentary to=functions.read <|constrain|>json<|message|>",
    ]
    assert begins(tag("harmony", [READ], text=ANSWER, tool_choice=NONE)["elements"][1]) == begins(element)[:1]


def test_a_required_call_may_be_of_any_tool_and_is_no_answer() -> None:
    element = tag("harmony", [READ, WRITE, PATCH], text=ANSWER, tool_choice=REQUIRED)["elements"][1]
    assert begins(element) == [
        "<|channel|>commentary to=functions.read <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.write <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.patch<|message|>",
    ]
    assert [each["content"]["type"] for each in element["elements"]] == ["json_schema", "json_schema", "any_text"]


def test_tools_in_a_namespace_are_called_by_its_name() -> None:
    space = Tool(namespace=NamespaceTool(name="files", tools=[READ]))
    assert begins(tag("harmony", [space], tool_choice=REQUIRED)["elements"][1]) == [
        "<|channel|>commentary to=files.read <|constrain|>json<|message|>"
    ]


def test_a_named_call_is_of_that_tool() -> None:
    named = ToolChoice(named=NamedToolChoice(type="function", name="write"))
    element = tag("hermes", [READ, WRITE], tool_choice=named)
    assert element["begin"] == '<tool_call>\n{"name": "write", "arguments": '
    assert element["end"] == "}\n</tool_call>"


def test_a_call_with_bare_arguments_is_held_to_them() -> None:
    element = tag("qwen-coder", [READ], tool_choice=REQUIRED)
    assert (element["begin"], element["end"]) == ("<tool_call>\n<function=read>\n", "\n</function>\n</tool_call>")
    assert element["content"] == {"type": "qwen_xml_parameter", "json_schema": {"type": "object"}}


def test_allowed_tools_narrow_the_choice_and_force_it_only_where_required() -> None:
    allowed = NamedToolChoice(type="allowed_tools", mode="required", tools=['{"type":"function","name":"read"}'])
    assert begins(tag("hermes", [READ, WRITE], tool_choice=ToolChoice(named=allowed))) == [
        '<tool_call>\n{"name": "read", "arguments": '
    ]
    allowed.mode = "auto"
    assert made("hermes", [READ, WRITE], tool_choice=ToolChoice(named=allowed)) is None


def test_what_a_format_cannot_be_held_to_is_left_to_the_model() -> None:
    assert made("text", [READ], tool_choice=REQUIRED) is None
    assert made("text", [READ], text=ANSWER) is None
    assert made("hermes", [PATCH], tool_choice=REQUIRED) is None
    assert made("harmony", tool_choice=REQUIRED) is None
