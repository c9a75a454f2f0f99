"""Servers in the test's own process: real doors and a real core, with an engine and a clock that the test commands."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count

from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.engine.port import Engine
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.ledger.port import Ledger, NoLedger
from turnwire.server.policy.prepare import Preparer
from turnwire.server.runtime.clock import Clock, LoopClock, Timer
from turnwire.server.runtime.local import Keys
from turnwire.server.runtime.services import Observer, Services, Unobserved
from turnwire.server.sealing import Seals
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.store.durable import DurableStore
from turnwire.server.store.memory import MemoryStore
from turnwire.server.tools.port import HostedTools, NoHostedTools


class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, wall: float = 1_800_000_000.0) -> None:
        """Starts at 0, which is `wall` seconds since 1970-01-01 UTC."""
        self._now = 0.0
        self._wall = wall
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._tie = count()

    def now(self) -> float:
        """The moment."""
        return self._now

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self._wall + self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Calls back when the clock is moved to or past a moment."""
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._tie), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Moves on, stopping at every call that is due on the way."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now = end

    @property
    def pending(self) -> int:
        """Calls that are due and were not cancelled."""
        return sum(1 for _, _, timer in self._timers if timer.callback is not None)


def fixed_size(text: str) -> int:
    """Counts a token per word: cheap and predictable, for tests that do not test counting."""
    return len(text.split())


def make_services(
    engines: Sequence[Engine],
    *,
    limits: SessionLimits | None = None,
    tools: HostedTools | None = None,
    clock: Clock | None = None,
    observer: Observer | None = None,
    batch_window: float | None = 0.0,
    seals: Seals | None = None,
    store: MemoryStore | DurableStore | None = None,
    ledger: Ledger | None = None,
    tool_sets: ToolSets | None = None,
) -> Services:
    """Builds what sessions share, around the given engines; needs a running event loop unless a clock is given."""
    limits = limits or SessionLimits()
    registry = EngineRegistry(engines)
    tools = tools or NoHostedTools()
    store = store or MemoryStore()
    seals = seals or Seals.fresh()
    return Services(
        engines=registry,
        policy=Preparer(
            registry.resolve, limits, count=fixed_size, hosted=tools, seals=seals, find_items=store.find_items
        ),
        store=store,
        seals=seals,
        tools=tools,
        clock=clock or LoopClock(),
        count_tokens=fixed_size,
        limits=limits,
        observer=observer or Unobserved(),
        ledger=ledger or NoLedger(),
        tool_sets=tool_sets or ToolSets(),
        batch_window=batch_window,
    )


@asynccontextmanager
async def serving(
    services: Services,
    *,
    address: str = "127.0.0.1:0",
    keys: Keys | None = None,
    options: GrpcOptions | None = None,
) -> AsyncGenerator[str, None]:
    """Serves gRPC in this process for the length of the block, and yields the address to connect to."""
    server = GrpcServer(services, keys, options)
    port = server.listen(address)
    await server.start()
    try:
        yield address if address.startswith("unix:") else f"{address.rsplit(':', 1)[0]}:{port}"
    finally:
        await server.stop(0)
