"""What recording a response costs: before its `done` may leave, and in all, with and without overlap.

Runs the real core, policy, runtime, journal and database in this process, with an engine that answers at once. Three
servers take turns: one that keeps everything in memory, one that records and consumes what it recorded in a thread, and
one that consumes it before `done` (`--disable overlapped-ledger`).
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnwire.server.engine.port import Generation, ModelInfo, Sink
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.ledger.budgets import Budgets
from turnwire.server.ledger.config import DataConfig
from turnwire.server.ledger.opening import DataRoom
from turnwire.server.ledger.port import NoLedger
from turnwire.server.policy.prepare import Preparer
from turnwire.server.prompt.vocabulary import count
from turnwire.server.runtime.clock import LoopClock
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.server.session.chunks import Channel, Finish, PassUsage, TextChunk
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.store.memory import MemoryStore
from turnwire.server.tools.port import NoHostedTools
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import Input, ResponseCreate

WAYS: Final = ("memory", "overlapped", "before done")
_INSTRUCTIONS: Final = "You are a careful agent that reads before it writes. " * 380
"""20 KB, as a coding agent's."""
_OUTPUT: Final = "the quick brown fox jumps over the lazy dog and reads one more line of the log\n" * 13
"""A tool's output of 1 KB."""
_BLOCK: Final = 50
"""Turns that one server takes before the next one does."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one turn costs, medians in microseconds."""

    done: float
    """From the end of sampling until `done` may be taken."""
    turn: float
    """The whole turn on the event loop's thread, in CPU time."""
    process: float
    """The whole turn in all threads, in CPU time: the mean, since they overlap with later turns."""
    append: float
    """Writing the record; 0 where there is none."""
    record: float
    """Bytes of it."""


class _Answering(Generation):
    def pause(self) -> None:
        """Does nothing."""

    def resume(self) -> None:
        """Does nothing."""

    def abort(self) -> None:
        """Does nothing."""


class _Engine:
    """Takes prompts and lets the caller end them."""

    name = "null"

    def __init__(self) -> None:
        self.sinks: asyncio.Queue[Sink] = asyncio.Queue()
        self.response_id = ""

    def models(self) -> Sequence[ModelInfo]:
        return (ModelInfo("null"),)

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        self.sinks.put_nowait(sink)
        self.response_id = prompt.response_id
        return _Answering()

    async def aclose(self) -> None:
        """Has nothing to close. Safe to cancel."""


class _Appends:
    """Notes what appending took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.sizes: list[int] = []

    def appended(self, size: int, seconds: float) -> None:
        self.sizes.append(size)
        self.seconds.append(seconds)

    def not_appended(self) -> None:
        msg = "the journal cannot be written"
        raise OSError(msg)


class _Server:
    """One server with one conversation."""

    def __init__(self, way: str, folder: Path) -> None:
        self.way = way
        self._engine = _Engine()
        self._appends = _Appends()
        registry = EngineRegistry((self._engine,))
        limits = SessionLimits()
        clock = LoopClock()
        tool_sets = ToolSets()
        self._data: DataRoom | None = None
        if way != "memory":
            config = DataConfig(folder, overlapped=way == "overlapped")
            budgets = Budgets({}, clock.wall)
            self._data = DataRoom(config, budgets, lambda model: None, clock.wall, tool_sets, self._appends)
        services = Services(
            engines=registry,
            policy=Preparer(registry.resolve, limits, count=count),
            store=MemoryStore() if self._data is None else self._data.store,
            ledger=NoLedger() if self._data is None else self._data.ledger,
            tool_sets=tool_sets,
            tools=NoHostedTools(),
            clock=clock,
            count_tokens=count,
            limits=limits,
        )
        self._runner = SessionRunner(services, "", "bench")
        self._drained = asyncio.create_task(self._drain())
        self.done: list[float] = []
        self.turn: list[float] = []
        self.process = 0.0

    async def _drain(self) -> None:
        while await self._runner.next_batch() is not None:
            pass

    async def go_on(self) -> None:
        create = ResponseCreate(
            model="null",
            instructions=_INSTRUCTIONS,
            input=Input(text=_OUTPUT),
            previous_response_id=self._engine.response_id,
        )
        data = ConnectRequest(create=create).SerializeToString()
        thread = time.thread_time()
        self._runner.receive(ConnectRequest.FromString(data), len(data))
        sink = await self._engine.sinks.get()
        sink.output((TextChunk(Channel.TEXT, "ok"),))
        began = time.perf_counter()
        sink.ended(Finish(usage=PassUsage(100, 0, 10)))
        self.done.append(time.perf_counter() - began)
        self.turn.append(time.thread_time() - thread)

    async def go_on_a_while(self, turns: int) -> None:
        """Takes some turns, and waits for what they left to other threads."""
        process = time.process_time()
        for _ in range(turns):
            await self.go_on()
        if self._data is not None:
            await self._data.caught_up()
        self.process += time.process_time() - process

    async def end(self) -> Cost:
        self._runner.abandon()
        await self._drained
        if self._data is not None:
            await self._data.aclose()
        seconds, sizes = self._appends.seconds or [0.0], self._appends.sizes or [0]
        return Cost(
            done=statistics.median(self.done) * 1e6,
            turn=statistics.median(self.turn) * 1e6,
            process=self.process / len(self.turn) * 1e6,
            append=statistics.median(seconds) * 1e6,
            record=statistics.median(sizes),
        )


async def _measure(turns: int) -> dict[str, Cost]:
    with tempfile.TemporaryDirectory() as folder:
        servers = [_Server(way, Path(folder) / str(number)) for number, way in enumerate(WAYS)]
        # Interleaved, so that whatever else the machine does falls on all alike.
        for _ in range(turns // _BLOCK):
            for server in servers:
                await server.go_on_a_while(_BLOCK)
        return {server.way: await server.end() for server in servers}


def measure(turns: int = 1_000) -> dict[str, Cost]:
    """Measures turns of a chain, each with 20 KB of instructions and 1 KB of input.

    Args:
        turns: Turns per server, a multiple of 50.

    Returns:
        Costs by `WAYS`.
    """
    count(_OUTPUT)  # loads the vocabulary outside the measurement
    return asyncio.run(_measure(turns))


def main() -> None:
    """Prints the figures."""
    print(f"{'':12} {'done':>8} {'turn CPU':>9} {'all CPU':>8} {'append':>7} {'record':>8}")
    for way, cost in measure().items():
        figures = (
            f"{cost.done:6.0f}µs {cost.turn:7.0f}µs {cost.process:6.0f}µs {cost.append:5.0f}µs {cost.record:7.0f}B"
        )
        print(f"{way:12} {figures}")


if __name__ == "__main__":
    main()
