from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.session.hosted import Kind, Listing, Target
from turnwire.server.session.offers import offer, offered_settings
from turnwire.server.session.toolsets import Tools, ToolSets
from turnwire.v1.item_pb2 import Item, McpListTools
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import FunctionTool, McpTool, NamedToolChoice, Tool, ToolChoice, ToolChoiceMode, ToolSet

READ: dict[str, Any] = {"name": "read", "annotations": {"readOnlyHint": True}, "description": "Reads."}
WRITE: dict[str, Any] = {"name": "write", "input_schema": {"type": "object"}}


def listing(label: str, *tools: Any) -> Listing:
    texts = [tool if isinstance(tool, str) else json.dumps(tool) for tool in tools]
    return Listing(label, Item(mcp_list_tools=McpListTools(server_label=label, tools=texts)).SerializeToString())


def declared(*tools: Tool) -> Tools:
    made = ToolSets().intern(ToolSet(tools=tools))
    made.servers = tuple(tool.mcp.server_label for tool in tools if tool.HasField("mcp"))
    return made


def server(label: str = "s", **fields: Any) -> Tool:
    return Tool(mcp=McpTool(server_label=label, **fields))


def offered(tool: Tool, *tools: Any) -> Tools:
    return offer(declared(tool), {"s": listing("s", *tools)}, ToolSets())


def names(tools: Tools) -> list[str]:
    return [tool.function.name for tool in tools.parsed().tools]


def test_a_set_without_servers_is_offered_as_it_is() -> None:
    tools = declared(Tool(function=FunctionTool(name="f")))
    assert offer(tools, {}, ToolSets()) is tools


def test_tools_of_a_server_stand_where_the_server_was_declared() -> None:
    tools = declared(Tool(function=FunctionTool(name="f")), server(), Tool(function=FunctionTool(name="g")))
    made = offer(tools, {"s": listing("s", READ, WRITE)}, ToolSets())
    assert names(made) == ["f", "s__read", "s__write", "g"]
    assert made.hosted == {"s__read", "s__write"}
    assert made.target("s__read") == Target(Kind.MCP, "s", "read", asks=True)
    function = made.parsed().tools[2].function
    assert (function.parameters, function.HasField("description")) == ('{"type":"object"}', False)


def test_equal_offers_are_one_object() -> None:
    tools = declared(server())
    sets = ToolSets()
    assert offer(tools, {"s": listing("s", READ)}, sets) is offer(tools, {"s": listing("s", READ)}, sets)
    assert offer(tools, {"s": listing("s", WRITE)}, sets) is not offer(tools, {}, sets)
    for number in range(100):
        offer(tools, {"s": listing("s", {"name": f"t{number}"})}, sets)
    assert len(tools.offers) <= 8


def test_a_function_of_the_clients_keeps_its_name() -> None:
    tools = declared(server(), Tool(function=FunctionTool(name="s__read", description="mine")))
    made = offer(tools, {"s": listing("s", READ, WRITE)}, ToolSets())
    assert names(made) == ["s__write", "s__read"]
    assert "s__read" not in made.hosted


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"name":1}', '{"name":""}'])
def test_a_replayed_definition_that_is_none_is_left_out(text: str) -> None:
    assert names(offered(server(), text, READ)) == ["s__read"]


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("null", ["s__read", "s__write"]),
        ("[]", []),
        ('["write"]', ["s__write"]),
        ('{"read_only":true}', ["s__read"]),
        ('{"read_only":false}', ["s__write"]),
        ('{"tool_names":["read","write"],"read_only":true}', ["s__read"]),
        ("{}", []),
        ('"nonsense"', []),
    ],
)
def test_allowed_tools(rule: str, kept: list[str]) -> None:
    assert names(offered(server(allowed_tools=rule), READ, WRITE)) == kept


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        (None, {"read", "write"}),
        ("null", {"read", "write"}),
        ('"always"', {"read", "write"}),
        ('"never"', set[str]()),
        ('{"never":{"tool_names":["read"]}}', {"write"}),
        ('{"never":{"read_only":true}}', {"write"}),
        ('{"always":{"tool_names":["read"]},"never":{"tool_names":["read","write"]}}', {"read"}),
        ('{"always":{"tool_names":["write"]}}', {"read", "write"}),
        ("{", {"read", "write"}),
    ],
)
def test_require_approval(rule: str | None, asked: set[str]) -> None:
    fields = {} if rule is None else {"require_approval": rule}
    targets = offered(server(**fields), READ, WRITE).targets.values()
    assert {target.name for target in targets if target.asks} == asked


def choice(**named: Any) -> ResponseCreate:
    return ResponseCreate(tool_choice=ToolChoice(named=NamedToolChoice(**named)))


def test_a_choice_of_a_server_is_a_choice_of_its_functions() -> None:
    made = offered(server(), READ, WRITE)
    one = offered_settings(choice(type="mcp", server_label="s", name="read"), made).tool_choice.named
    assert (one.type, one.name) == ("function", "s__read")
    every = offered_settings(choice(type="mcp", server_label="s"), made).tool_choice.named
    assert (every.type, every.mode, len(every.tools)) == ("allowed_tools", "required", 2)
    texts = ['{"type":"mcp","server_label":"s","name":"write"}', '{"type":"function","name":"f"}']
    some = offered_settings(choice(type="allowed_tools", mode="auto", tools=texts), made).tool_choice.named
    assert (some.mode, list(some.tools)) == ("auto", ['{"type":"function","name":"s__write"}', texts[1]])


def test_a_choice_of_what_could_not_be_listed_is_none() -> None:
    made = offered(server(), READ)
    settings = offered_settings(choice(type="mcp", server_label="s", name="gone"), made)
    assert settings.tool_choice.mode == ToolChoiceMode.TOOL_CHOICE_MODE_NONE


def test_other_choices_stay_as_they_are() -> None:
    made = offered(server(), READ)
    for settings in (
        ResponseCreate(),
        choice(type="function", name="f"),
        choice(type="allowed_tools", mode="auto", tools=['{"type":"function","name":"f"}', "nonsense"]),
    ):
        assert offered_settings(settings, made) is settings
