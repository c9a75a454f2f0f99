"""What a streamed token costs server and client: all responses in lanes of one stream, against a stream for each.

The server is a real process with the scripted engine, a simulation of a model at a set speed; its cost is part of the
server's figure. The client is the client library in this process.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from turnwire.bench.process import ServerProcess, server_process
from turnwire.client import Session, connect


@dataclass(frozen=True, slots=True)
class LaneCost:
    """One measurement."""

    lanes: int
    """Responses at the same time."""
    streams: int
    """Streams that they travelled over."""
    server_us: float
    """CPU time of the server per token, in microseconds."""
    client_us: float
    """CPU time of the client per token, in microseconds."""
    stretch: float
    """Wall time over the ideal at the set speed; 1 means that the rate was held."""


def scenario(tokens_per_second: int, tokens: int) -> str:
    """Returns a scenario in which every response is so many tokens of text at that speed."""
    return (
        f"[speed]\nttft_ms = 20\ntokens_per_second = {tokens_per_second}\n\n[[turn]]\ntext = {{ tokens = {tokens} }}\n"
    )


async def _consume(session: Session, lane: str) -> None:
    stream = await session.create(model="scripted", input="Go.", lane=lane, store=False)
    async for _ in stream:
        pass


async def _run(server: ServerProcess, lanes: int, *, one_stream: bool) -> tuple[float, float, float]:
    async with AsyncExitStack() as stack:
        streams = 1 if one_stream else lanes
        sessions = [await stack.enter_async_context(connect(server.address)) for _ in range(streams)]
        server_cpu, client_cpu, began = server.cpu(), time.process_time(), time.perf_counter()
        await asyncio.gather(*(_consume(sessions[n % streams], f"lane{n}") for n in range(lanes)))
        took = time.perf_counter() - began
        return server.cpu() - server_cpu, time.process_time() - client_cpu, took


def measure(lanes: Sequence[int], tokens_per_second: int = 1000, tokens: int = 1000) -> list[LaneCost]:
    """Measures each number of lanes both ways, one after the other against the same server process."""
    costs: list[LaneCost] = []
    ideal = 0.02 + tokens / tokens_per_second
    with server_process(scenario(tokens_per_second, tokens)) as server:
        asyncio.run(_run(server, 1, one_stream=True))  # warms both sides up
        for number in lanes:
            # One response has one stream either way.
            for one_stream in (True, False) if number > 1 else (True,):
                server_cpu, client_cpu, took = asyncio.run(_run(server, number, one_stream=one_stream))
                total = number * tokens
                costs.append(
                    LaneCost(
                        lanes=number,
                        streams=1 if one_stream else number,
                        server_us=server_cpu / total * 1e6,
                        client_us=client_cpu / total * 1e6,
                        stretch=took / ideal,
                    )
                )
    return costs


@dataclass(frozen=True, slots=True)
class QuietLane:
    """How late the tokens of a quiet lane are, in milliseconds, against the same lane alone."""

    alone_p50: float
    alone_p99: float
    flooded_p50: float
    flooded_p99: float


FLOOD = """
[model]
names = ["quiet", "flood"]

[speed]
ttft_ms = 5
tokens_per_second = 100

[[turn]]
when = "flood"
text = { tokens = 200000 }
[turn.speed]
tokens_per_second = "unlimited"

[[turn]]
text = { tokens = 150 }
"""


async def _gaps(session: Session) -> list[float]:
    """Returns how much later than the set pace each token came, in milliseconds."""
    stream = await session.create(model="quiet", input="quiet", lane="quiet", store=False)
    late: list[float] = []
    first: float | None = None
    number = 0
    async for _ in stream.text_deltas():
        now = time.perf_counter()
        if first is None:
            first = now
        late.append((now - first - number / 100) * 1e3)
        number += 1
    # The earliest token defines the pace: what matters is how much the others were delayed against it.
    best = min(late)
    return [value - best for value in late]


async def _quiet(address: str) -> QuietLane:
    async with connect(address) as session:
        alone = await _gaps(session)
        flood = await session.create(model="flood", input="flood", lane="flood", store=False)

        async def drink() -> None:
            async for _ in flood:
                pass

        drinking = asyncio.create_task(drink())
        flooded = await _gaps(session)
        drinking.cancel()
        await asyncio.gather(drinking, return_exceptions=True)
        await flood.cancel()
    return QuietLane(*(round(value, 2) for value in (*_middle_and_tail(alone), *_middle_and_tail(flooded))))


def _middle_and_tail(values: list[float]) -> tuple[float, float]:
    return statistics.median(values), statistics.quantiles(values, n=100)[98]


def measure_quiet_lane() -> QuietLane:
    """Measures a lane at 100 tokens a second, alone and beside a lane that floods the same stream."""
    with server_process(FLOOD) as server:
        return asyncio.run(_quiet(server.address))
