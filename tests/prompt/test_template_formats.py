"""What a template writes for a call is what the parser of its models reads as that call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.prompt.parsing import ParsedCallDelta, ParsedCallStart, format_of_template, parser_for
from turnwire.server.prompt.renderer import Head
from turnwire.v1.item_pb2 import FunctionCall, FunctionCallOutput, Item, Message, MessageContent, Role, ToolOutput
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

from .models import model, template

FORMATS = [
    *(("chatml", "hermes"), ("qwen2_5", "hermes"), ("qwen3", "hermes"), ("qwen3_instruct_2507", "hermes")),
    *(("qwen_coder", "qwen-coder"), ("qwen3_5_think", "qwen-coder"), ("qwen3_5_nothink", "qwen-coder")),
    *(("qwen3_6", "qwen-coder"), ("qwen3_8", "qwen-coder"), ("nemotron_3_nano", "qwen-coder")),
    *(("glm", "glm"), ("glm4moe", "glm"), ("dsml", "dsml"), ("deepseekv3", "deepseek"), ("turns", "text")),
]
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "deep": {"type": "boolean"},
        "filters": {"type": "object"},
        "names": {"type": "array", "items": {"type": "string"}},
    },
}
ARGUMENTS: list[dict[str, Any]] = [
    {"path": "a b", "limit": 3, "deep": True},
    {"path": "007", "filters": {"é": [1, None, "x"]}, "names": ["a", "b"]},
    {"path": '  if a < b:\n\treturn "c\\n"\n', "deep": False},
    {"path": "Close it with </tool_call>, or with </function> alone."},
    {},
]


@pytest.mark.parametrize(("name", "expected"), FORMATS)
def test_the_format_of_a_model_is_found_by_its_template(name: str, expected: str) -> None:
    source = template(name)
    assert format_of_template(source) == expected
    assert format_of_template(json.dumps({"chat_template": source})) == expected


def test_the_format_of_a_model_without_a_template_is_plain_text() -> None:
    assert format_of_template("") == "text"


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=["plain", "typed", "blanks", "marks", "none"])
@pytest.mark.parametrize(
    ("name", "output_format"), [pair for pair in FORMATS if pair[1] in ("qwen-coder", "glm", "dsml")]
)
def test_a_rendered_call_is_read_as_it_was(name: str, output_format: str, arguments: dict[str, Any]) -> None:
    made = model(name)
    schemas = {"read": json.dumps(SCHEMA)}
    tools = ToolSet(tools=[Tool(function=FunctionTool(name="read", description="Reads.", parameters=schemas["read"]))])
    head = Head("m", tools=tools, date="2031-01-02")
    asked = Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text="Read it.")))
    called = Item(function_call=FunctionCall(call_id="c1", name="read", arguments=json.dumps(arguments)))
    answered = Item(function_call_output=FunctionCallOutput(call_id="c1", output=ToolOutput(text="It is read.")))
    before, after = made.text(head, [asked]), made.text(head, [asked, called, answered])
    common = next(at for at, (a, b) in enumerate(zip(before + "\0", after, strict=False)) if a != b)
    parser = parser_for(output_format, prompt_text=before[:common], tools=schemas, schemas=schemas)
    events = [event for piece in after[common:] for event in parser.feed((), piece)] + parser.finish("stop")
    assert [event.name for event in events if isinstance(event, ParsedCallStart)] == ["read"]
    text = "".join(event.text for event in events if isinstance(event, ParsedCallDelta))
    assert json.loads(text) == arguments
