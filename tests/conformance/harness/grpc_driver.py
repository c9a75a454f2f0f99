"""Plays through the gRPC door of a server in this process, speaking with the generated stubs.

Above: the tests. Below: the door, the runtime and the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.policy.prepare import Preparer
from turnwire.server.runtime.services import Services, Unobserved
from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Listed
from turnwire.server.session.session import Session
from turnwire.server.store.memory import MemoryStore
from turnwire.server.testing import ManualClock, fixed_size
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub

from .hosted import Call, CommandedTools
from .inbox import Doorbell, Inbox
from .transcript import Transcript

_PATIENCE = 3.0
"""Seconds after which something that has to happen counts as missing."""


class _Names:
    """Whoever presents a name is that principal."""

    def authenticate(self, authorization: str | None) -> str:
        return (authorization or "Bearer ").removeprefix("Bearer ")


class _Counter(Unobserved):
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


class _Seat:
    def __init__(self, call: Any, inbox: Inbox) -> None:
        self.call = call
        self.inbox = inbox
        self.session: Session | None = None
        self.reader: asyncio.Task[None] | None = None


class GrpcDriver:
    """A real server and real streams; only the engine, the tools and the clock are commanded."""

    def __init__(self, transcript: Transcript) -> None:
        self.bell = Doorbell()
        self.engine = StepEngine()
        self.tools = CommandedTools(self.bell)
        self.store = MemoryStore()
        self._clock = ManualClock()
        self._counter = _Counter(self.bell)
        registry = EngineRegistry((self.engine,))
        self._services = Services(
            engines=registry,
            policy=Preparer(registry.resolve, transcript.limits, count=fixed_size, hosted=self.tools),
            store=self.store,
            tools=self.tools,
            clock=self._clock,
            count_tokens=fixed_size,
            limits=transcript.limits,
            observer=self._counter,
            batch_window=transcript.batch_window,
        )
        self._server = GrpcServer(self._services, _Names())
        self._channel: grpc.aio.Channel | None = None
        self._seats: dict[str, _Seat] = {}
        self._sent = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[GrpcDriver]:
        """Serves for the length of the block."""
        port = self._server.listen("127.0.0.1:0")
        await self._server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as self._channel:
            try:
                yield self
            finally:
                for seat in self._seats.values():
                    seat.call.cancel()
                    if seat.reader is not None:
                        await asyncio.gather(seat.reader, return_exceptions=True)
                await self.until(lambda: not self._services.sessions, "every session was let go")
                await self._server.stop(0)

    async def open(self, name: str, principal: str) -> Inbox:
        """Opens a session under a name of the transcript."""
        assert self._channel is not None
        stub = ResponsesServiceStub(self._channel)
        before = set(self._services.sessions)
        call = stub.Connect(metadata=(("authorization", f"Bearer {principal}"),))
        inbox = Inbox(self.bell)
        seat = self._seats[name] = _Seat(call, inbox)
        seat.reader = asyncio.create_task(self._read(seat))
        await self.until(lambda: len(self._services.sessions) > len(before), "the session has begun")
        (opened,) = set(self._services.sessions) - before
        seat.session = self._services.sessions[opened]
        return inbox

    async def _read(self, seat: _Seat) -> None:
        try:
            async for batch in seat.call:
                seat.inbox.take(batch)
            seat.inbox.end("OK")
        except grpc.aio.AioRpcError as error:
            seat.inbox.end(error.code().name)
        except asyncio.CancelledError:
            seat.inbox.end("CANCELLED")
            raise
        except AssertionError as problem:
            seat.inbox.end(f"a rule was broken: {problem}")

    async def send(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event and waits until the session has it."""
        self._sent += 1
        await self._seats[name].call.write(request)
        await self.until(lambda: self._counter.messages == self._sent, "the message was received")

    async def half_close(self, name: str) -> None:
        """Ends the client's half of the stream."""
        await self._seats[name].call.done_writing()

    async def lose(self, name: str) -> None:
        """Breaks the stream as a vanishing client does."""
        seat = self._seats[name]
        session = self.session(name)
        seat.call.cancel()
        await self.until(lambda: session.id not in self._services.sessions, "the loss was noticed")

    async def go_away(self, reason: str, grace: float) -> None:
        """Asks all clients to leave."""
        self._server.room.go_away(reason, grace, 0.0)

    async def finish_tool(self, call: Call, result: ToolResult | Listed) -> None:
        """Ends a call of a hosted tool."""
        call.result.set_result(result)

    async def advance(self, seconds: float) -> None:
        """Moves the clock."""
        await self.settle()
        self._clock.advance(seconds)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition, from change to change."""
        try:
            async with asyncio.timeout(_PATIENCE):
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
        await self.until(self._quiet, "everything sent has arrived")

    def _quiet(self) -> bool:
        received = sum(seat.inbox.received for seat in self._seats.values())
        waiting = any(
            seat.session.sendable for seat in self._seats.values() if seat.session is not None and not seat.inbox.status
        )
        lost = any(seat.inbox.status == "CANCELLED" for seat in self._seats.values())
        return lost or (not waiting and received == self._counter.events)

    def session(self, name: str) -> Session:
        """Returns the core of a session."""
        session = self._seats[name].session
        assert session is not None
        return session
