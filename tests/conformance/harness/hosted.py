"""Hosted tools that the transcript commands: functions and MCP servers named `hosted_…`, and web search.

Above: the drivers. Below: nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Kind, Listed, Target
from turnwire.v1.tool_pb2 import ToolSet

from .inbox import Doorbell


@dataclass
class Call:
    """One call of a hosted tool, or one listing."""

    name: str
    arguments: str
    result: asyncio.Future[ToolResult | Listed] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    cancelled: bool = False


def call_name(target: Target) -> str:
    """Returns the name of a call in transcripts: `label/tool` for a tool of a server, else that of the function."""
    return f"{target.label}/{target.name}" if target.kind is Kind.MCP else target.name


def listing_name(label: str) -> str:
    """Returns the name of a listing in transcripts."""
    return f"{label}/"


class CommandedTools:
    """Tools that run until the transcript finishes them."""

    def __init__(self, bell: Doorbell) -> None:
        self.calls: list[Call] = []
        self._bell = bell

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns the declared functions whose names say that they are hosted, and web search."""
        functions = {t.function.name for t in tools.tools if t.function.name.startswith("hosted_")}
        return frozenset(functions | {"web_search" for t in tools.tools if t.HasField("web_search")})

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        """Returns the declared servers whose labels say that they are hosted."""
        return tuple(t.mcp.server_label for t in tools.tools if t.mcp.server_label.startswith("hosted_"))

    def begin(self, name: str, arguments: str) -> Call:
        """Notes that a call has begun."""
        call = Call(name, arguments)
        self.calls.append(call)
        self._bell.ring()
        return call

    async def list_tools(self, label: str, tools: ToolSet, principal: str) -> Listed:
        """Waits for the transcript. Safe to cancel: the listing is then noted as cancelled."""
        listed = await self._finished(listing_name(label), "")
        assert isinstance(listed, Listed), "a listing ends with tools or with an error"
        return listed

    async def run(self, target: Target, arguments: str, tools: ToolSet, principal: str) -> ToolResult:
        """Waits for the transcript. Safe to cancel: the call is then noted as cancelled."""
        result = await self._finished(call_name(target), arguments)
        assert isinstance(result, ToolResult), "a call ends with an output"
        return result

    async def _finished(self, name: str, arguments: str) -> ToolResult | Listed:
        call = self.begin(name, arguments)
        try:
            return await call.result
        except asyncio.CancelledError:
            call.cancelled = True
            self._bell.ring()
            raise

    def running(self, name: str, arguments: str | None) -> Call:
        """Returns the oldest call of a tool that still runs.

        Raises:
            LookupError: None does.
        """
        for call in self.calls:
            if call.name == name and arguments in (None, call.arguments) and not (call.result.done() or call.cancelled):
                return call
        msg = f"no call of {name} runs"
        raise LookupError(msg)
