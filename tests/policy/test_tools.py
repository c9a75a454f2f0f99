"""Tool sets are checked once, with the public API's words; tool choices must name what is declared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.policy.prepare import Preparer
from turnwire.server.session.effects import Prepare
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.toolsets import ToolSets
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import McpTool, Tool, ToolChoiceMode, ToolSet

PARAMETERS = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'


def function(name: str = "read", **fields: Any) -> dict[str, Any]:
    return {"function": {"name": name, **fields}}


def custom(name: str = "patch", **fields: Any) -> dict[str, Any]:
    return {"custom": {"name": name, **fields}}


def namespace(*tools: Any, name: str = "git") -> dict[str, Any]:
    return {"namespace": {"name": name, "tools": tools}}


def opaque(kind: str, text: str | None = None) -> dict[str, Any]:
    return {"unknown": {"type": kind, "json": text if text is not None else json.dumps({"type": kind})}}


DEEP = '{"not":' * 101 + "{}" + "}" * 101
BAD_PARAMETERS = "invalid_function_parameters"

BAD: list[tuple[list[Any], str, str]] = [
    ([{}], "missing_required_parameter", "tools[0].type"),
    ([function("")], "missing_required_parameter", "tools[0].name"),
    ([function("a b")], "invalid_value", "tools[0].name"),
    ([function("é")], "invalid_value", "tools[0].name"),
    ([function("a\n")], "invalid_value", "tools[0].name"),
    ([function("a" * 129)], "string_above_max_length", "tools[0].name"),
    ([function("a"), custom("b"), function("a")], "invalid_value", "tools[2].name"),
    ([function("a"), custom("a")], "invalid_value", "tools[1].name"),
    ([function(f"f{n}") for n in range(21)], "array_above_max_length", "tools"),
    ([namespace(*(function(f"f{n}") for n in range(20)))], "array_above_max_length", "tools"),
    ([function(parameters="{")], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters="null")], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters="[]")], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters='{"type":"string"}')], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters='{"type":"object","properties":[]}')], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters='{"required":["a","a"]}')], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters=DEEP)], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters="[" * 100_000)], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters=json.dumps({"enum": list(range(10_000))}))], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters=json.dumps({"title": "x" * 1_100_000}))], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(parameters='{"minimum":1e999}')], BAD_PARAMETERS, "tools[0].parameters"),
    ([function(output_schema='{"type":7}')], BAD_PARAMETERS, "tools[0].output_schema"),
    ([function(extra_json="7")], "invalid_type", "tools[0].extra_json"),
    ([custom("")], "missing_required_parameter", "tools[0].name"),
    ([custom("a" * 129)], "string_above_max_length", "tools[0].name"),
    ([custom(format="{")], "invalid_json", "tools[0].format"),
    ([custom(format="7")], "invalid_type", "tools[0].format"),
    ([custom(format='{"type":"xml"}')], "invalid_value", "tools[0].format.type"),
    ([custom(format='{"type":"grammar","syntax":"bnf"}')], "invalid_value", "tools[0].format.syntax"),
    (
        [custom(format='{"type":"grammar","syntax":"lark"}')],
        "missing_required_parameter",
        "tools[0].format.definition",
    ),
    ([namespace(name="")], "missing_required_parameter", "tools[0].name"),
    ([namespace()], "invalid_value", "tools[0].tools"),
    ([namespace(function("a")), namespace(function("a"))], "invalid_value", "tools[1].name"),
    ([namespace(function("a"), function("a"))], "invalid_value", "tools[0].tools[1].name"),
    ([namespace(function(parameters="7"))], BAD_PARAMETERS, "tools[0].tools[0].parameters"),
    ([namespace({})], "missing_required_parameter", "tools[0].tools[0].type"),
    ([namespace(namespace(function()))], "invalid_value", "tools[0].tools[0].type"),
    ([namespace(opaque("computer"))], "invalid_value", "tools[0].tools[0].type"),
    ([{"mcp": {}}], "missing_required_parameter", "tools[0].server_label"),
    ([{"mcp": {"server_label": "a"}}] * 2, "invalid_value", "tools[1].server_label"),
    ([{"mcp": {"server_label": "a", "allowed_tools": "["}}], "invalid_json", "tools[0].allowed_tools"),
    ([{"web_search": {"search_context_size": "huge"}}], "invalid_value", "tools[0].search_context_size"),
    ([{"web_search": {"filters": "{"}}], "invalid_json", "tools[0].filters"),
    ([{"shell": {"extra_json": "["}}], "invalid_json", "tools[0].extra_json"),
    ([opaque("computer", "")], "invalid_json", "tools[0]"),
    ([opaque("computer", "[]")], "invalid_type", "tools[0]"),
    ([opaque("computer", '{"type":"function","name":"x"}')], "invalid_value", "tools[0].type"),
    ([opaque("", "{}")], "missing_required_parameter", "tools[0].type"),
]

GOOD: list[list[Any]] = [
    [function("a.b:c-D_9"), function("b", parameters=PARAMETERS, strict=True), custom("c d")],
    [function(parameters="{}"), function("b", parameters=""), function("c")],
    [function(parameters='{"type":["object","null"],"x-unknown":{"y":1}}')],
    [function(parameters='{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}]}')],
    [function(parameters='{"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMinimum":true,"minimum":1}')],
    [function(parameters='{"$schema":"urn:unknown","type":"object"}')],
    [function(parameters='{"properties":{"a":{"$ref":"http://127.0.0.1:1/never-fetched"}},"x":1}')],
    [function(parameters='{"properties":{"a":{"pattern":"^\\\\p{L}+$","type":"string"}},"x":1}')],
    [function(parameters=json.dumps({"enum": [str(n) for n in range(5_000)]}))],
    [namespace(function("a"), custom("b")), function("a")],
    [
        custom(format='{"type":"grammar","syntax":"lark","definition":"start: /a/"}'),
        custom("b", format='{"type":"text"}'),
    ],
    [{"mcp": {"server_label": "a", "headers": {"x": "secret"}, "require_approval": '"never"'}}],
    [{"web_search": {"search_context_size": "low"}}, {"apply_patch": {}}, {"local_shell": {}}, opaque("computer")],
]


@pytest.mark.parametrize(("tools", "code", "param"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_tool_is_refused_by_its_path(refuse: Any, tools: list[Any], code: str, param: str) -> None:
    error = refuse(tools=tools)
    assert (error.code, error.param) == (code, param)
    assert len(error.message) < 500


@pytest.mark.parametrize("tools", GOOD, ids=lambda value: str(value)[:50])
def test_a_good_tool_is_taken(prepare: Any, tools: list[Any]) -> None:
    prepare(tools=tools)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            '{"type":"object","properties":{"city":{"type":"strng"}}}',
            "Invalid schema for function 'read': In context=('properties', 'city', 'type'), 'strng' is not valid under"
            " any of the given schemas.",
        ),
        (
            '{"type":"array"}',
            "Invalid schema for function 'read': schema must be a JSON Schema of 'type: \"object\"', got"
            " 'type: \"array\"'.",
        ),
    ],
)
def test_a_bad_schema_is_named_in_the_public_words(refuse: Any, parameters: str, message: str) -> None:
    assert refuse(tools=[function(parameters=parameters)]).message == message


def test_secrets_of_a_server_are_not_repeated(refuse: Any) -> None:
    mcp = {"server_label": "a" * 200, "headers": {"x": "s3cret"}, "authorization": "s3cret", "allowed_tools": "["}
    assert "s3cret" not in str(refuse(tools=[{"mcp": mcp}]))


def test_schemas_of_one_set_share_a_budget(refuse: Any) -> None:
    tools = [function(f"f{n}", parameters=json.dumps({"enum": [str(n)] * 9_000})) for n in range(6)]
    error = refuse(tools=tools)
    assert (error.code, error.param) == ("invalid_value", "tools")


def named(**fields: Any) -> dict[str, Any]:
    return {"named": fields}


TOOLS: list[dict[str, Any]] = [
    function("read"),
    custom("patch"),
    namespace(function("log"), name="git"),
    {"mcp": {"server_label": "docs"}},
    {"web_search": {}},
    opaque("file_search"),
]
NOT_FOUND = "Tool choice 'function' not found in 'tools' parameter."


@pytest.mark.parametrize(
    ("choice", "code", "param", "message"),
    [
        (named(type="function", name="write"), "invalid_value", "tool_choice", NOT_FOUND),
        (named(type="function", name="patch"), "invalid_value", "tool_choice", NOT_FOUND),
        (named(type="custom", name="read"), "invalid_value", "tool_choice", ""),
        (named(type="function", name="git.read"), "invalid_value", "tool_choice", NOT_FOUND),
        (named(type="function"), "missing_required_parameter", "tool_choice.name", ""),
        (named(type="mcp"), "missing_required_parameter", "tool_choice.server_label", ""),
        (named(type="mcp", server_label="other"), "invalid_value", "tool_choice", ""),
        (named(type="computer"), "invalid_value", "tool_choice", ""),
        (named(), "missing_required_parameter", "tool_choice.type", ""),
        (named(type="allowed_tools", tools=['{"type":"web_search"}']), "invalid_value", "tool_choice.mode", ""),
        (named(type="allowed_tools", mode="auto"), "invalid_value", "tool_choice.tools", ""),
        (named(type="allowed_tools", mode="auto", tools=["7"]), "invalid_type", "tool_choice.tools[0]", ""),
        (named(type="allowed_tools", mode="auto", tools=["{"]), "invalid_json", "tool_choice.tools[0]", ""),
        (
            named(type="allowed_tools", mode="auto", tools=["{}"]),
            "missing_required_parameter",
            "tool_choice.tools[0].type",
            "",
        ),
        (
            named(type="allowed_tools", mode="auto", tools=['{"type":"function","name":"write"}']),
            "invalid_value",
            "tool_choice",
            "Tool choice 'write' not found in 'tools' parameter.",
        ),
        ({"mode": 99}, "invalid_value", "tool_choice", ""),
    ],
)
def test_a_choice_of_something_undeclared_is_refused(
    refuse: Any, choice: dict[str, Any], code: str, param: str, message: str
) -> None:
    error = refuse(tools=TOOLS, tool_choice=choice)
    assert (error.code, error.param) == (code, param)
    assert message in ("", error.message)


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"mode": ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED},
        named(type="function", name="read"),
        named(type="function", name="log"),
        named(type="function", name="git.log"),
        named(type="custom", name="patch"),
        named(type="namespace", name="git"),
        named(type="mcp", server_label="docs", name="search"),
        named(type="web_search"),
        named(type="file_search"),
        named(type="allowed_tools", mode="required", tools=['{"type":"function","name":"read"}']),
        named(
            type="allowed_tools", mode="auto", tools=['{"type":"mcp","server_label":"docs"}', '{"type":"web_search"}']
        ),
    ],
)
def test_a_choice_of_something_declared_is_taken(prepare: Any, choice: dict[str, Any]) -> None:
    prepare(tools=TOOLS, tool_choice=choice)


def test_required_needs_tools(refuse: Any, prepare: Any) -> None:
    error = refuse(tool_choice={"mode": ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED})
    assert (error.code, error.param) == ("invalid_value", "tool_choice")
    prepare(tool_choice={"mode": ToolChoiceMode.TOOL_CHOICE_MODE_NONE})


class Catalogue:
    """Runs functions whose name begins with `host_`, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        self.asked += 1
        return frozenset(tool.function.name for tool in tools.tools if tool.function.name.startswith("host_"))

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        return tuple(tool.mcp.server_label for tool in tools.tools if tool.HasField("mcp"))


def test_a_set_is_checked_once_and_knows_its_hosted_tools() -> None:
    catalogue = Catalogue()
    preparer = Preparer(lambda name: name, SessionLimits(), count=len, hosted=catalogue)
    server = Tool(mcp=McpTool(server_label="docs"))
    tools = ToolSets().intern(ToolSet(tools=[Tool(**function("host_time")), Tool(**function("read")), server]))
    request = Prepare(1, (), ResponseCreate(model="m"), tools, frozenset(), 0)
    for _ in range(3):
        preparer.prepare(request)
    assert catalogue.asked == 1
    assert tools.checked
    assert tools.hosted == {"host_time"}
    assert tools.servers == ("docs",)


def test_a_refused_set_stays_unchecked() -> None:
    preparer = Preparer(lambda name: name, SessionLimits(), count=len)
    tools = ToolSets().intern(ToolSet(tools=[Tool(**function("a"))] * 2))
    request = Prepare(1, (), ResponseCreate(model="m"), tools, frozenset(), 0)
    for _ in range(2):
        with pytest.raises(RequestError):
            preparer.prepare(request)
    assert not tools.checked
