"""How long a pass may take is the client's to say, however often it moves."""

from __future__ import annotations

import asyncio

from turnwire.client import connect
from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.routing.pool import Pool
from turnwire.server.testing import ManualClock, make_services, serving

BOUND = 15.0


async def test_the_time_to_the_first_token_counts_over_all_upstreams() -> None:
    engines = [StepEngine([ModelInfo("m")]) for _ in range(2)]
    members: list[tuple[str, Engine, float]] = [(f"http://{at}", engine, 1.0) for at, engine in enumerate(engines)]
    clock = ManualClock()
    services = make_services([SpreadEngine(Pool(members))], clock=clock)
    async with serving(services) as address, connect(address) as session, asyncio.timeout(BOUND):
        stream = await session.create(model="m", input="Hi.", timeouts={"first_token": 10.0})
        started = [asyncio.create_task(engine.started(1)) for engine in engines]
        await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
        first = next(engine for engine in engines if engine.passes)
        second = next(engine for engine in engines if engine is not first)
        clock.advance(6.0)
        first.fail(0, "engine_unavailable")
        await second.started(1)
        clock.advance(3.9)
        assert not second.passes[0].aborted
        clock.advance(0.2)
        await second.told(0, "abort")
        done = await stream.until_done()
        assert done.error.code == "first_token_timeout"
        assert not first.passes[0].aborted
        for task in started:
            task.cancel()
