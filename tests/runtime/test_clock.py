from __future__ import annotations

import asyncio

from turnwire.server.runtime.clock import LoopClock
from turnwire.server.testing import ManualClock


async def test_the_loop_clock_calls_back_and_can_be_cancelled() -> None:
    clock = LoopClock()
    called = asyncio.Event()
    never: list[str] = []
    clock.call_at(clock.now() + 0.001, lambda: never.append("x")).cancel()
    clock.call_at(clock.now() - 1.0, called.set)
    async with asyncio.timeout(5):
        await called.wait()
    assert not never
    assert clock.wall() > 1.7e9


def test_a_clock_moved_by_hand_stops_at_every_call_on_the_way() -> None:
    clock = ManualClock()
    called: list[float] = []

    def again() -> None:
        called.append(clock.now())
        if len(called) < 3:
            clock.call_at(clock.now() + 1.0, again)

    clock.call_at(1.0, again)
    clock.call_at(2.5, lambda: called.append(-1.0)).cancel()
    assert clock.pending == 1
    clock.advance(10.0)
    assert called == [1.0, 2.0, 3.0]
    assert clock.now() == 10.0
    assert clock.pending == 0
