"""What the drivers of all doors share: a real core in this process, whose engine, tools and clock are commanded.

Above it: the drivers. Below it: the runtime and the core.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.policy.prepare import Preparer
from turnwire.server.runtime.services import Services, Unobserved
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Listed
from turnwire.server.session.session import Session
from turnwire.server.store.memory import MemoryStore
from turnwire.server.testing import ManualClock, fixed_size
from turnwire.v1.client_event_pb2 import ConnectRequest

from .hosted import Call, CommandedTools
from .inbox import Doorbell, Inbox
from .transcript import Transcript

PATIENCE = 3.0
"""Seconds after which something that has to happen counts as missing."""


class AnyName:
    """Whoever presents a name is that principal."""

    def authenticate(self, authorization: str | None) -> str:
        return (authorization or "Bearer ").removeprefix("Bearer ")


class Counter(Unobserved):
    """Counts what goes in and out of all sessions."""

    def __init__(self, bell: Doorbell) -> None:
        self.messages = 0
        self.events = 0
        self._bell = bell

    def received(self, door: str, size: int) -> None:
        self.messages += 1
        # The message takes effect right after this call returns, before whoever waits for the bell can go on.
        self._bell.ring()

    def sent(self, door: str, size: int, events: int) -> None:
        self.events += events
        self._bell.ring()

    def session_opened(self, door: str) -> None:
        self._bell.ring()

    def session_closed(self, door: str) -> None:
        self._bell.ring()


class DoorDriver(ABC):
    """A real server; only the engine, the tools and the clock are commanded."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.bell = Doorbell()
        self.engine = StepEngine()
        self.tools = CommandedTools(self.bell)
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.counter = Counter(self.bell)
        registry = EngineRegistry((self.engine,))
        self.services = Services(
            engines=registry,
            policy=Preparer(registry.resolve, transcript.limits, count=fixed_size, hosted=self.tools),
            store=self.store,
            tools=self.tools,
            clock=self.clock,
            count_tokens=fixed_size,
            limits=transcript.limits,
            observer=self.counter,
            batch_window=transcript.batch_window,
        )
        self.room = SessionRoom(self.services)
        self.sessions: dict[str, Session] = {}

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[Self]:
        """Serves for the length of the block."""

    @abstractmethod
    async def open(self, name: str, principal: str) -> Inbox:
        """Opens a session under a name of the transcript."""

    @abstractmethod
    async def say(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event."""

    @abstractmethod
    async def half_close(self, name: str) -> None:
        """Ends the client's half of the stream."""

    @abstractmethod
    async def vanish(self, name: str) -> None:
        """Drops the client's connection."""

    @abstractmethod
    def quiet(self) -> bool:
        """Tells whether everything sent has arrived, as far as that can be seen."""

    def expected(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Returns what the door says of an event that a transcript expects; None where it says nothing."""
        return wanted

    async def send(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event and waits until the session has it."""
        before = self.counter.messages
        await self.say(name, request)
        await self.until(lambda: self.counter.messages == before + 1, "the message was received")

    async def lose(self, name: str) -> None:
        """Breaks the stream as a vanishing client does."""
        session = self.session(name)
        await self.vanish(name)
        await self.until(lambda: session.id not in self.services.sessions, "the loss was noticed")

    async def go_away(self, reason: str, grace: float) -> None:
        """Asks all clients to leave."""
        self.room.go_away(reason, grace, 0.0)

    async def finish_tool(self, call: Call, result: ToolResult | Listed) -> None:
        """Ends a call of a hosted tool."""
        call.result.set_result(result)

    async def advance(self, seconds: float) -> None:
        """Moves the clock."""
        await self.settle()
        self.clock.advance(seconds)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition, from change to change."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await self.bell.wait()
        except TimeoutError:
            msg = f"not so: {what}"
            raise AssertionError(msg) from None

    async def settle(self) -> None:
        """Waits until nothing is on its way."""
        for _ in range(5):
            # Lets tasks take the step that they are ready for.
            await asyncio.sleep(0)
        await self.until(self.quiet, "everything sent has arrived")

    def session(self, name: str) -> Session:
        """Returns the core of a session."""
        return self.sessions[name]

    async def take_new(self, name: str, before: set[str]) -> None:
        """Waits for the one session that was not there before, and gives it a name."""
        await self.until(lambda: len(self.services.sessions) > len(before), "the session has begun")
        (opened,) = set(self.services.sessions) - before
        self.sessions[name] = self.services.sessions[opened]
