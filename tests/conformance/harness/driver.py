"""What the player needs of whatever it plays against.

Above: the player. Below: the drivers, one for the pure core and one per door.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from turnwire.server.engine.stepped import StepEngine
from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Listed
from turnwire.server.session.session import Session
from turnwire.server.store.memory import MemoryStore
from turnwire.v1.client_event_pb2 import ConnectRequest

from .hosted import Call, CommandedTools
from .inbox import Inbox


class Driver(Protocol):
    """One server with an engine, hosted tools and a clock that the transcript commands."""

    engine: StepEngine
    tools: CommandedTools
    store: MemoryStore

    async def open(self, name: str, principal: str) -> Inbox:
        """Opens a session under a name of the transcript."""
        ...

    async def send(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event and returns when the session has it."""
        ...

    def expected(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Returns what is said of an event that a transcript expects; None where nothing is said."""
        ...

    async def half_close(self, name: str) -> None:
        """Ends the client's half of the stream."""
        ...

    async def lose(self, name: str) -> None:
        """Breaks the stream as a vanishing client does."""
        ...

    async def go_away(self, reason: str, grace: float) -> None:
        """Asks all clients to leave."""
        ...

    async def finish_tool(self, call: Call, result: ToolResult | Listed) -> None:
        """Ends a call of a hosted tool."""
        ...

    async def advance(self, seconds: float) -> None:
        """Moves the clock."""
        ...

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Returns when a condition holds, which must need no more than what was already done.

        Raises:
            AssertionError: It does not come to hold.
        """
        ...

    async def settle(self) -> None:
        """Returns when everything that was done has had its effect and every event has arrived."""
        ...

    def session(self, name: str) -> Session:
        """Returns the core of a session."""
        ...
