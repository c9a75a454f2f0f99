"""Upstreams are asked how they are where that is configured, and their answers count."""

from __future__ import annotations

import asyncio

import pytest

from turnwire.server.routing.checks import Checks
from turnwire.server.routing.health import RoutingPolicy
from turnwire.server.routing.pool import Pool, Routing
from turnwire.server.session.chunks import EngineFailure

BOUND = 10.0


class Asked:
    """An engine that says how it is; `None` raises."""

    def __init__(self) -> None:
        self.answers: list[EngineFailure | Exception | None] = []
        self.asked = 0

    async def check(self) -> EngineFailure | None:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


class Ticks:
    """Sleeps that end when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self.slept: list[float] = []
        self._sleeping: asyncio.Event | None = None

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        wake = asyncio.Event()
        self.asked.put_nowait(wake)
        await wake.wait()

    async def next(self) -> None:
        """Lets one interval pass, and what follows it happen."""
        async with asyncio.timeout(BOUND):
            self._sleeping = self._sleeping or await self.asked.get()
            self._sleeping.set()
            self._sleeping = await self.asked.get()


@pytest.mark.parametrize("trouble", [EngineFailure("engine_unavailable", "gone"), RuntimeError("a bug")], ids=str)
async def test_an_upstream_that_does_not_answer_goes_out_and_comes_back(trouble: EngineFailure | Exception) -> None:
    now = 0.0
    engine, ticks = Asked(), Ticks()
    engine.answers = [trouble, trouble]
    policy = RoutingPolicy(max_failures=2, check_interval=7.0)
    pool = Pool([("a:1", engine, 1.0)], policy, Routing(clock=lambda: now))
    checks = Checks(pool, ticks)
    for _ in range(2):
        assert pool.members[0].health.well
        await ticks.next()
    assert not pool.members[0].health.well
    now = 1.0
    await ticks.next()
    assert pool.members[0].health.well
    assert set(ticks.slept) == {7.0}
    await checks.aclose()


async def test_nobody_is_asked_where_nothing_is_configured_or_nobody_can_answer() -> None:
    ticks = Ticks()
    quiet = Checks(Pool([("a:1", Asked(), 1.0)]), ticks)
    mute = Checks(Pool([("a:1", object(), 1.0)], RoutingPolicy(check_interval=1.0)), ticks)
    await asyncio.sleep(0)
    assert ticks.slept == []
    await quiet.aclose()
    await mute.aclose()
