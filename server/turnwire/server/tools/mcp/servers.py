"""MCP servers as hosted tools: lists them and calls them, and turns every failure into words.

Above: the room of hosted tools. Below: the pool.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Listed
from turnwire.server.tools.config import McpLimits
from turnwire.server.tools.declared import ServerSpec
from turnwire.server.tools.mcp.connection import Connection, McpFailure
from turnwire.server.tools.mcp.listing import definitions
from turnwire.server.tools.mcp.pool import Pool
from turnwire.server.tools.mcp.results import outcome


class McpServers:
    """All MCP servers."""

    def __init__(self, limits: McpLimits) -> None:
        """Takes what servers may use."""
        self._limits = limits
        self.pool = Pool(limits)
        """Its connections."""

    async def list_tools(self, spec: ServerSpec, principal: str) -> Listed:
        """Lists the tools of a server. Safe to cancel."""
        try:
            tools = await self.pool.use(principal, spec, Connection.list_tools)
        except McpFailure as failure:
            return Listed((), str(failure))
        return Listed(await asyncio.to_thread(definitions, spec, tools, self._limits))

    async def call(self, spec: ServerSpec, name: str, arguments: str, principal: str) -> ToolResult:
        """Calls a tool of a server. Cancelling it tells the server to stop."""
        values = _arguments(arguments)
        if values is None:
            return ToolResult("The arguments are not the text of a JSON object.", failed=True)
        try:
            result = await self.pool.use(principal, spec, lambda connection: connection.call_tool(name, values))
        except McpFailure as failure:
            return ToolResult(str(failure), failed=True)
        return outcome(result, self._limits.max_output_bytes)

    async def aclose(self) -> None:
        """Lets go of all servers. Safe to cancel."""
        await self.pool.aclose()


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        value: object = msgspec.json.decode(text.strip() or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
