"""All hosted tools of a server behind one port: MCP servers and web search, as far as the operator allows them.

Above: the runtime and policy. Below: MCP servers and search providers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnwire.server.prompt.hosted_calls import WEB_SEARCH
from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Kind, Listed, Target
from turnwire.server.tools.config import ToolsConfig
from turnwire.server.tools.declared import ServerSpec, resolve
from turnwire.server.tools.web_search.port import SearchProvider
from turnwire.server.tools.web_search.search import WebSearch
from turnwire.v1.errors import RequestError
from turnwire.v1.tool_pb2 import ToolSet

if TYPE_CHECKING:
    from turnwire.server.tools.mcp.servers import McpServers

_EXTRA: Final = "hosted tools need the packages of turnwire[tools]: pip install 'turnwire[tools]'"


class MissingExtra(Exception):
    """What the configuration asks for needs packages that are not installed; the text names them."""


class HostedRoom:
    """Runs hosted tools."""

    def __init__(self, config: ToolsConfig, search: SearchProvider | None = None) -> None:
        """Takes what is allowed.

        Args:
            config: What the operator allows.
            search: Who searches the web; None leaves web search to nobody.

        Raises:
            MissingExtra: MCP servers are allowed, and packages that they need are not installed.
        """
        self._config = config.mcp
        self._search = None if search is None else WebSearch(search)
        self._servers: McpServers | None = None
        if config.mcp.servers or config.mcp.allowed_urls:
            self._servers = _servers(config)

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns web search where it is declared and can be had, and checks the declared MCP servers.

        Raises:
            RequestError: An MCP server may not be called.
        """
        names = {tool.function.name or tool.custom.name for tool in tools.tools}
        searches = False
        for index, tool in enumerate(tools.tools):
            match tool.WhichOneof("kind"):
                case "mcp":
                    resolve(tool.mcp, self._config, f"tools[{index}]")
                case "web_search":
                    searches = self._search is not None and WEB_SEARCH not in names
                case _:
                    pass
        return frozenset({WEB_SEARCH}) if searches else frozenset()

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        """Returns the labels of the declared MCP servers."""
        return tuple(tool.mcp.server_label for tool in tools.tools if tool.WhichOneof("kind") == "mcp")

    async def list_tools(self, label: str, tools: ToolSet, principal: str) -> Listed:
        """Lists the tools of an MCP server. Safe to cancel."""
        try:
            spec = self._spec(label, tools)
        except RequestError as refusal:
            return Listed((), refusal.error.message)
        if spec is None or self._servers is None:
            return Listed((), f"The MCP server '{label}' is not among the tools.")
        return await self._servers.list_tools(spec, principal)

    async def run(self, target: Target, arguments: str, tools: ToolSet, principal: str) -> ToolResult:
        """Runs a tool. Cancelling it stops the tool."""
        if target.kind is Kind.SEARCH and self._search is not None:
            declared = next((t.web_search for t in tools.tools if t.WhichOneof("kind") == "web_search"), None)
            return await self._search.run(arguments, declared)
        if target.kind is Kind.MCP and self._servers is not None:
            return await self._call(self._servers, target, arguments, tools, principal)
        return ToolResult(f"There is no tool '{target.name}' on this server.", failed=True)

    async def _call(
        self, servers: McpServers, target: Target, arguments: str, tools: ToolSet, principal: str
    ) -> ToolResult:
        try:
            spec = self._spec(target.label, tools)
        except RequestError as refusal:
            # What was allowed when the set was checked may not be so any more.
            return ToolResult(refusal.error.message, failed=True)
        if spec is None:
            return ToolResult(f"The MCP server '{target.label}' is not among the tools.", failed=True)
        if spec.allowed_tools and target.name not in spec.allowed_tools:
            return ToolResult(f"The tool '{target.name}' of '{target.label}' may not be called.", failed=True)
        return await servers.call(spec, target.name, arguments, principal)

    def _spec(self, label: str, tools: ToolSet) -> ServerSpec | None:
        for index, tool in enumerate(tools.tools):
            if tool.WhichOneof("kind") == "mcp" and tool.mcp.server_label == label:
                return resolve(tool.mcp, self._config, f"tools[{index}]")
        return None

    async def aclose(self) -> None:
        """Lets go of all servers and providers. Safe to cancel."""
        if self._servers is not None:
            await self._servers.aclose()
        if self._search is not None:
            await self._search.aclose()


def open_room(config: ToolsConfig) -> HostedRoom:
    """Returns the room of a configuration; it connects to nobody before it is used.

    Raises:
        MissingExtra: Packages that it needs are not installed.
    """
    if config.web_search is None:
        return HostedRoom(config)
    try:
        from turnwire.server.tools.web_search.brave import BraveSearch
    except ImportError as error:
        raise MissingExtra(_EXTRA) from error
    return HostedRoom(config, BraveSearch(config.web_search))


def _servers(config: ToolsConfig) -> McpServers:
    try:
        from turnwire.server.tools.mcp.servers import McpServers
    except ImportError as error:
        raise MissingExtra(_EXTRA) from error
    return McpServers(config.mcp.limits)
