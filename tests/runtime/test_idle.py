"""What a session costs that does nothing: thousands of them stand beside those that talk."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from turnwire.server.runtime.bell import Bell
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.session.chunks import Channel, TextChunk
from turnwire.server.testing import ManualClock, make_services

from .conftest import Desk

_SESSIONS = 200


def test_the_objects_of_an_idle_session_take_five_kilobytes_and_the_collector_little_work() -> None:
    services = make_services((), clock=ManualClock())
    kept = [SessionRunner(services, "", "test") for _ in range(10)]
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept += [SessionRunner(services, "", "test") for _ in range(_SESSIONS)]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown / _SESSIONS < 5.5 * 1024
    gc.collect()
    assert (len(gc.get_objects()) - objects) / _SESSIONS < 60
    for runner in kept:
        runner.abandon()


async def test_an_idle_session_has_one_timer_and_no_task() -> None:
    clock = ManualClock()
    services = make_services((), clock=clock)
    tasks = len(asyncio.all_tasks())
    kept = [SessionRunner(services, "", "test") for _ in range(_SESSIONS)]
    assert clock.pending == _SESSIONS
    assert len(asyncio.all_tasks()) == tasks
    for runner in kept:
        runner.abandon()
    assert clock.pending == 0


async def test_a_turn_leaves_the_garbage_collector_nothing(desk: Desk) -> None:
    async def turn(number: int) -> None:
        desk.create(lane="a")
        await desk.until("created")
        desk.engine.emit(number, [TextChunk(Channel.TEXT, "x")])
        desk.engine.finish(number)
        await desk.until("done")

    await turn(0)
    gc.collect()
    gc.disable()
    try:
        await turn(1)
        assert gc.collect() == 0
    finally:
        gc.enable()


async def test_scraping_an_idle_session_leaves_it_as_small_as_it_was(desk: Desk) -> None:
    gc.collect()
    before = len(gc.get_objects())
    gauges = desk.runner.session.gauges()
    assert (gauges.responses, gauges.state_bytes) == (0, 0)
    del gauges
    gc.collect()
    assert len(gc.get_objects()) <= before


async def test_a_bell_that_rang_before_is_heard_at_once_and_until_it_is_hushed() -> None:
    bell = Bell()
    bell.ring()
    await bell.wait()
    assert bell.rung
    bell.hush()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    bell.ring()
    bell.ring()
    await waiting


async def test_a_wait_for_a_bell_may_be_cancelled_and_begun_again() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    bell.ring()
    async with asyncio.timeout(5):
        await bell.wait()
