"""The port for hosted tools: the sampling loop waits for them just as it waits for the client's."""

from __future__ import annotations

from typing import Protocol

from turnwire.server.session.effects import ToolResult
from turnwire.v1.tool_pb2 import ToolSet


class HostedTools(Protocol):
    """The tools that this server runs."""

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns the names, as the model calls them, of the declared tools that the server runs."""
        ...

    async def run(self, name: str, arguments: str, tools: ToolSet) -> ToolResult:
        """Runs a tool.

        Args:
            name: The name the model called.
            arguments: JSON text as the model wrote it; it may be invalid.
            tools: All tools declared for the response, for the tool's own settings.

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

    async def run(self, name: str, arguments: str, tools: ToolSet) -> ToolResult:
        """Is never called, since no name is hosted. Safe to cancel."""
        return ToolResult(f"There is no tool '{name}' on this server.", failed=True)
