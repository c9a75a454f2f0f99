from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turnwire.server.tools.config import McpConfig, McpLimits, McpServer, SearchConfig, ToolsConfig
from turnwire.server.tools.room import MissingExtra, open_room
from turnwire.server.tools.tools_file import ToolsFileError, load_tools_file
from turnwire.v1.tool_pb2 import McpTool, Tool, ToolSet, WebSearchTool

ENVIRON = {"DOCS_TOKEN": "s3cret", "BRAVE_KEY": "k3y"}


def load(tmp_path: Path, text: str) -> ToolsConfig:
    path = tmp_path / "tools.toml"
    path.write_text(text, encoding="utf-8")
    return load_tools_file(path, ENVIRON)


def problems(tmp_path: Path, text: str) -> str:
    with pytest.raises(ToolsFileError) as refused:
        load(tmp_path, text)
    return str(refused.value)


def test_a_file_says_what_may_be_called(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        [mcp]
        allowed_urls = ["https://mcp.example.com/"]
        [mcp.limits]
        call_timeout = 30
        max_tools = 5
        [mcp.servers.docs]
        url = "https://docs.example.com/mcp"
        headers = { Authorization = "Bearer ${DOCS_TOKEN}" }
        allowed_tools = ["search"]
        [mcp.servers.files]
        command = ["mcp-files", "--root", "/srv"]
        env = { KEY = "${DOCS_TOKEN}" }
        [web_search]
        provider = "brave"
        api_key = "${BRAVE_KEY}"
        timeout = 5
        """,
    )
    docs = McpServer(
        url="https://docs.example.com/mcp", headers={"Authorization": "Bearer s3cret"}, allowed_tools=("search",)
    )
    assert config.mcp.servers["docs"] == docs
    assert config.mcp.servers["files"].command == ("mcp-files", "--root", "/srv")
    assert config.mcp.allowed_urls == ("https://mcp.example.com/",)
    assert (config.mcp.limits.call_timeout, config.mcp.limits.max_tools) == (30, 5)
    assert config.web_search is not None
    assert (config.web_search.api_key, config.web_search.timeout) == ("k3y", 5)
    assert "s3cret" not in repr(config)
    assert "k3y" not in repr(config)


def test_an_empty_file_allows_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "") == ToolsConfig()


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    text = problems(
        tmp_path,
        """
        colour = 1
        [mcp]
        allowed_urls = ["ftp://x", "https://user@host/"]
        limits = { call_timeout = "long", max_tools = 1.5, speed = 1, idle_timeout = -1 }
        [mcp.servers.both]
        url = "https://x/"
        command = ["x"]
        [mcp.servers.neither]
        [mcp.servers.turnwire]
        command = ["x"]
        [mcp.servers.bad]
        url = "${UNSET}/x"
        port = 1
        [web_search]
        provider = "other"
        """,
    )
    for words in (
        "colour: is not known",
        "'ftp://x' is no http",
        "'https://user@host/' is no http",
        "mcp.limits.call_timeout: must be a number",
        "mcp.limits.max_tools: must be a number",
        "mcp.limits.speed: is not known",
        "mcp.limits.idle_timeout: must be a number",
        "mcp.servers.both: needs either",
        "mcp.servers.neither: needs either",
        "mcp.servers.turnwire: a label",
        "no variable UNSET",
        "mcp.servers.bad.port: is not known",
        "mcp.servers.bad.url: is no http",
        "web_search.provider: 'other' is not known",
        "web_search.api_key: is missing",
    ):
        assert words in text


@pytest.mark.parametrize("text", ["mcp = 1", "[mcp]\nservers = 1", "[mcp]\nallowed_urls = 1", "web_search = 1", "= ="])
def test_what_is_no_tools_file(tmp_path: Path, text: str) -> None:
    assert str(tmp_path) in problems(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ToolsFileError, match="cannot be read"):
        load_tools_file(tmp_path / "nothing.toml", {})


async def test_the_file_of_the_documentation_can_be_used(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "hosted-tools.md"
    text = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    path = tmp_path / "tools.toml"
    path.write_text(text, encoding="utf-8")
    config = load_tools_file(path, {"DOCS_TOKEN": "s3cret", "BRAVE_API_KEY": "k3y"})
    assert config.mcp.limits == McpLimits()
    room = open_room(config)
    declared = ToolSet(tools=[Tool(mcp=McpTool(server_label="docs")), Tool(web_search=WebSearchTool())])
    assert room.hosted_names(declared) == {"web_search"}
    assert room.hosted_servers(declared) == ("docs",)
    await room.aclose()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("turnwire.server.tools.mcp.servers", "turnwire.server.tools.web_search.brave"):
        monkeypatch.setitem(sys.modules, module, None)
    for config in (ToolsConfig(McpConfig(allowed_urls=("https://x/",))), ToolsConfig(web_search=SearchConfig())):
        with pytest.raises(MissingExtra, match=r"turnwire\[tools\]"):
            open_room(config)
    open_room(ToolsConfig())
