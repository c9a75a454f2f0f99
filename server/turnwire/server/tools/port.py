"""The port for hosted tools: the sampling loop waits for them just as it waits for the client's."""

from __future__ import annotations

from typing import Protocol

from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Listed, Target
from turnwire.v1.tool_pb2 import ToolSet


class HostedTools(Protocol):
    """The tools that this server runs."""

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns the functions, as the model calls them, of the declared tools that the server runs.

        Asked once for a set of tools, possibly in a thread; tools of MCP servers are known only when they are listed.

        Raises:
            turnwire.v1.errors.RequestError: A declared tool cannot be run.
        """
        ...

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        """Returns the labels of the declared MCP servers that the server calls."""
        ...

    async def list_tools(self, label: str, tools: ToolSet, principal: str) -> Listed:
        """Lists the tools of an MCP server.

        Args:
            label: One of `hosted_servers`.
            tools: All tools declared for the response, for the server's own settings.
            principal: Who asks; connections are not shared between principals.

        Returns:
            The tools or why there are none; the response goes on either way. An exception is reported to the client as
            a failure without details.

        Cancelling it is safe.
        """
        ...

    async def run(self, target: Target, arguments: str, tools: ToolSet, principal: str) -> ToolResult:
        """Runs a tool.

        Args:
            target: What the function that the model called stands for.
            arguments: JSON text as the model wrote it; it may be invalid.
            tools: All tools declared for the response, for the tool's own settings.
            principal: Who asks.

        Returns:
            The outcome; a failure is an outcome too, which the model is told. An exception is reported to the model as
            a failure without details.

        Cancelling it stops the tool.
        """
        ...


class NoHostedTools:
    """Runs nothing."""

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns no names."""
        return frozenset()

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        """Returns no labels."""
        return ()

    async def list_tools(self, label: str, tools: ToolSet, principal: str) -> Listed:
        """Is never called, since no server is called. Safe to cancel."""
        return Listed((), f"This server does not call the MCP server '{label}'.")

    async def run(self, target: Target, arguments: str, tools: ToolSet, principal: str) -> ToolResult:
        """Is never called, since no name is hosted. Safe to cancel."""
        return ToolResult(f"There is no tool '{target.name}' on this server.", failed=True)
