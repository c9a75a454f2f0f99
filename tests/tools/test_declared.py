from __future__ import annotations

from typing import Any

import pytest

from turnwire.server.tools.config import McpConfig, McpServer, ToolsConfig
from turnwire.server.tools.declared import resolve
from turnwire.server.tools.room import HostedRoom
from turnwire.server.tools.urls import permitted
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError
from turnwire.v1.tool_pb2 import CustomTool, FunctionTool, McpTool, Tool, ToolSet, WebSearchTool

URLS = ("https://mcp.example.com/tools", "http://10.0.0.1:8080/")
CONFIG = McpConfig(
    {"files": McpServer(command=("files",)), "docs": McpServer(url="https://docs.example.com/mcp")}, URLS
)


def refused(*, among: McpConfig = CONFIG, **fields: Any) -> Error:
    with pytest.raises(RequestError) as refusal:
        resolve(McpTool(**fields), among, "tools[3]")
    return refusal.value.error


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://mcp.example.com/tools", True),
        ("https://mcp.example.com/tools/", True),
        ("https://mcp.example.com/tools/a?b=c", True),
        ("https://mcp.example.com:443/tools", True),
        ("https://MCP.example.com/tools", True),
        ("http://10.0.0.1:8080/anything", True),
        ("http://10.0.0.1:8080", True),
        ("https://mcp.example.com/toolshed", False),
        ("https://mcp.example.com/", False),
        ("http://mcp.example.com/tools", False),
        ("https://mcp.example.com:8443/tools", False),
        ("https://mcp.example.com.evil.org/tools", False),
        ("https://mcp.example.com@evil.org/tools", False),
        ("https://evil.org/?https://mcp.example.com/tools", False),
        ("https://evil.org#https://mcp.example.com/tools", False),
        ("https://mcp.example.com/tools/../admin", False),
        ("https://mcp.example.com/tools/%2e%2e/admin", False),
        ("https://mcp.example.com/tools/%252e%252e/admin", False),
        ("https://mcp.example.com/tools\\..\\admin", False),
        ("https://mcp.example.com/tools/%5c..", False),
        ("https://mcp.example.com/tools\n", False),
        ("https://mcp.example.com/ tools", False),
        ("https://mcp.\u0435xample.com/tools", False),
        ("http://10.0.0.1:8081/", False),
        ("http://10.0.0.1:99999999/", False),
        ("http://[::1/", False),
        ("http://169.254.169.254/latest", False),
        ("file:///etc/passwd", False),
        ("mcp.example.com/tools", False),
        ("", False),
    ],
)
def test_only_what_begins_with_an_allowed_url_is_called(url: str, allowed: bool) -> None:
    assert permitted(url, URLS) is allowed


def test_nothing_is_allowed_by_default() -> None:
    room = HostedRoom(ToolsConfig())
    tools = ToolSet(tools=[Tool(mcp=McpTool(server_label="a", server_url="http://127.0.0.1:1/"))])
    with pytest.raises(RequestError) as refusal:
        room.hosted_names(tools)
    assert refusal.value.error.code == "unsupported_parameter"
    assert refusal.value.error.param == "tools[0].server_url"


def test_a_url_that_is_not_allowed_is_refused_by_name() -> None:
    error = refused(
        server_label="a", server_url="http://127.0.0.1:22/", authorization="s3cret", headers={"x": "s3cret"}
    )
    assert (error.code, error.param) == ("unsupported_parameter", "tools[3].server_url")
    assert "s3cret" not in str(error)


def test_a_label_that_names_no_server_needs_a_url() -> None:
    for config in (CONFIG, McpConfig()):
        error = refused(among=config, server_label="unknown")
        assert (error.code, error.param) == ("missing_required_parameter", "tools[3].server_url")


def test_a_preset_is_named_by_its_label() -> None:
    files = resolve(McpTool(server_label="files"), CONFIG, "tools[0]")
    assert (files.command, files.url) == (("files",), "")
    docs = resolve(McpTool(server_label="docs", authorization="t"), CONFIG, "tools[0]")
    assert (docs.url, docs.headers) == ("https://docs.example.com/mcp", {"authorization": "Bearer t"})
    same = resolve(McpTool(server_label="docs", server_url="https://docs.example.com/mcp"), CONFIG, "tools[0]")
    assert same.url == docs.url


def test_a_label_does_not_lend_its_preset_to_another_url() -> None:
    error = refused(server_label="docs", server_url="https://elsewhere.example.com/")
    assert error.param == "tools[3].server_url"


def test_a_started_server_takes_no_headers() -> None:
    secrets: list[dict[str, Any]] = [{"headers": {"x": "s3cret"}}, {"authorization": "s3cret"}]
    for fields in secrets:
        error = refused(server_label="files", **fields)
        assert (error.code, error.param) == ("unsupported_parameter", f"tools[3].{next(iter(fields))}")


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\nHost: evil"},
        {"x\n": "a"},
        {"": "a"},
        {"Host": "evil"},
        {"Content-Length": "0"},
        {"Mcp-Session-Id": "1"},
        {"Proxy-Authorization": "1"},
        {"x": "é"},
    ],
)
def test_headers_that_belong_to_the_protocol_are_refused(headers: dict[str, str]) -> None:
    error = refused(server_label="a", server_url=URLS[0], headers=headers)
    assert (error.code, error.param) == ("invalid_value", "tools[3].headers")


def test_a_token_that_is_no_header_is_refused_without_repeating_it() -> None:
    error = refused(server_label="a", server_url=URLS[0], authorization="s3cret\r\nHost: evil")
    assert error.param == "tools[3].authorization"
    assert "s3cret" not in str(error)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("allowed_tools", '"all"'),
        ("allowed_tools", "[1]"),
        ("allowed_tools", '{"names":["a"]}'),
        ("allowed_tools", '{"tool_names":"a"}'),
        ("allowed_tools", '{"read_only":1}'),
        ("require_approval", '"sometimes"'),
        ("require_approval", "[]"),
        ("require_approval", '{"sometimes":{}}'),
        ("require_approval", '{"never":["a"]}'),
    ],
)
def test_a_limit_that_is_not_understood_is_refused(field: str, text: str) -> None:
    fields: dict[str, Any] = {field: text}
    error = refused(server_label="files", **fields)
    assert (error.code, error.param) == ("invalid_value", f"tools[3].{field}")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("allowed_tools", "null"),
        ("allowed_tools", "[]"),
        ("allowed_tools", '["a"]'),
        ("allowed_tools", '{"tool_names":["a"],"read_only":true}'),
        ("require_approval", '"never"'),
        ("require_approval", "null"),
        ("require_approval", '{"always":{"tool_names":["a"]},"never":null}'),
    ],
)
def test_limits_of_the_public_api_are_taken(field: str, text: str) -> None:
    tool = McpTool(server_label="files")
    setattr(tool, field, text)
    resolve(tool, CONFIG, "tools[0]")


def test_the_servers_own_label_is_taken() -> None:
    assert refused(server_label="turnwire").param == "tools[3].server_label"


def test_connections_differ_by_what_they_depend_on() -> None:
    specs = [
        resolve(McpTool(server_label="a", server_url=URLS[0], authorization=token, headers=headers), CONFIG, "")
        for token, headers in (("", {}), ("1", {}), ("2", {}), ("", {"x": "1"}))
    ]
    assert len({spec.fingerprint() for spec in specs}) == 4
    assert "1" not in repr(specs[1])


def test_web_search_without_a_provider_is_left_to_nobody() -> None:
    room = HostedRoom(ToolsConfig())
    assert room.hosted_names(ToolSet(tools=[Tool(web_search=WebSearchTool())])) == frozenset()


class NoSearch:
    async def search(self, query: object) -> list[Any]:
        return []

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    "own", [Tool(function=FunctionTool(name="web_search")), Tool(custom=CustomTool(name="web_search"))]
)
def test_a_tool_of_the_clients_keeps_its_name(own: Tool) -> None:
    room = HostedRoom(ToolsConfig(), NoSearch())
    search = Tool(web_search=WebSearchTool())
    assert room.hosted_names(ToolSet(tools=[search])) == {"web_search"}
    assert room.hosted_names(ToolSet(tools=[search, own])) == frozenset()
