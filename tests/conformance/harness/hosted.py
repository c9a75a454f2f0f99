"""Hosted tools that the transcript commands: functions whose names begin with `hosted_`.

Above: the drivers. Below: nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from turnwire.server.session.effects import ToolResult
from turnwire.v1.tool_pb2 import ToolSet

from .inbox import Doorbell


@dataclass
class Call:
    """One call of a hosted tool."""

    name: str
    arguments: str
    result: asyncio.Future[ToolResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    cancelled: bool = False


class CommandedTools:
    """Tools that run until the transcript finishes them."""

    def __init__(self, bell: Doorbell) -> None:
        self.calls: list[Call] = []
        self._bell = bell

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns the declared functions whose names say that they are hosted."""
        return frozenset(t.function.name for t in tools.tools if t.function.name.startswith("hosted_"))

    def begin(self, name: str, arguments: str) -> Call:
        """Notes that a call has begun."""
        call = Call(name, arguments)
        self.calls.append(call)
        self._bell.ring()
        return call

    async def run(self, name: str, arguments: str, tools: ToolSet) -> ToolResult:
        """Waits for the transcript. Safe to cancel: the call is then noted as cancelled."""
        del tools
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
