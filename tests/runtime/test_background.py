"""Background responses within their bounds: how many there are, and what is kept of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from turnwire.server.engine.stepped import StepEngine
from turnwire.server.runtime.background import Background, BackgroundLimits, BackgroundRun
from turnwire.server.runtime.local import LocalCaller
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import Channel, TextChunk
from turnwire.server.testing import ManualClock, make_services
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import DoneReason, Input, ResponseCreate, ResponseStatus

Make = Callable[..., "Desk"]


async def settle() -> None:
    """Lets tasks take the steps that they are ready for."""
    for _ in range(5):
        await asyncio.sleep(0)


class Desk:
    """A registry over a real room, with an engine and a clock that the test commands."""

    def __init__(self, **limits: float) -> None:
        self.engine, self.clock = StepEngine(), ManualClock()
        self.services = make_services([self.engine], clock=self.clock)
        self.room = SessionRoom(self.services)
        self.background = Background(self.room, self.clock, BackgroundLimits(**limits))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def start(self, principal: str = "", **more: object) -> BackgroundRun:
        asked: dict[str, object] = {"model": "stepped", "input": Input(text="x"), "background": True, **more}
        create = ResponseCreate(**asked)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        async with asyncio.timeout(5):
            return await self.background.start(principal, create, RequestContext())

    def say(self, run: BackgroundRun, size: int) -> None:
        self.engine.find(run.id).emit([TextChunk(Channel.TEXT, "x" * size)])

    async def finish(self, run: BackgroundRun) -> None:
        self.engine.finish(run.id)
        await self.over(run)

    async def over(self, run: BackgroundRun) -> None:
        assert run.task is not None
        async with asyncio.timeout(5):
            await run.task

    async def read(self, run: BackgroundRun, after: int | None = None) -> list[str]:
        async with asyncio.timeout(5):
            return [event.WhichOneof("event") or "" async for batch in run.follow(after) for event in batch]

    async def refusal(self, run: BackgroundRun, after: int | None = None) -> str:
        with pytest.raises(RequestError) as refused:
            await self.read(run, after)
        assert "can no longer be streamed" in refused.value.error.message
        return refused.value.error.code


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    desks: list[Desk] = []

    def make_one(**limits: float) -> Desk:
        desks.append(Desk(**limits))
        return desks[-1]

    yield make_one
    for desk in desks:
        await desk.background.aclose()
        assert not desk.room
        assert len(desk.background) == 0
        assert desk.clock.pending == 0


async def test_there_are_so_many_of_a_principal_and_so_many_in_all(make: Make) -> None:
    desk = make(max_runs=3, max_runs_per_principal=2)
    first, _ = await desk.start("a"), await desk.start("a")
    for principal, limit in (("a", "2"), ("b", None), ("b", "3")):
        if limit is None:
            await desk.start(principal)
            continue
        with pytest.raises(RequestError) as refused:
            await desk.start(principal)
        error = refused.value.error
        assert (error.code, error.param, error.metadata["limit"]) == ("too_many_requests", "background", limit)
    await desk.finish(first)
    await desk.start("a")


async def test_a_refused_response_leaves_nothing_behind(make: Make) -> None:
    desk = make()
    with pytest.raises(RequestError):
        await desk.start(temperature=9.0)
    assert len(desk.background) == 0


async def test_a_caller_who_leaves_before_the_response_exists_cancels_it(make: Make) -> None:
    desk = make()
    starting = asyncio.create_task(desk.start(input=Input(text="x" * 100_000)))
    await settle()
    assert desk.room
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled()
    assert not desk.room
    assert all(each.aborted for each in desk.engine.passes)


async def test_a_long_response_can_be_followed_from_what_is_kept_of_it(make: Make) -> None:
    desk = make(max_log_bytes=10_000)
    run = await desk.start()
    live = asyncio.create_task(desk.read(run))
    for _ in range(20):
        desk.say(run, 1_000)
        await settle()
    assert run.log.bytes <= 10_000
    assert await desk.refusal(run) == "invalid_request_error"
    seen = run.next_sequence - 1
    await desk.finish(run)
    kinds = await desk.read(run, seen)
    assert kinds[:3] == ["created", "output_item_added", "content_part_added"]
    assert kinds[-1] == "done"
    # Who kept up got all of it.
    assert (await live).count("output_text_delta") == 20


async def test_what_has_ended_makes_room_first(make: Make) -> None:
    desk = make(max_bytes=70_000)
    old = await desk.start()
    desk.say(old, 10_000)
    await desk.finish(old)
    assert "done" in await desk.read(old)
    running = await desk.start()
    desk.say(running, 10_000)
    await desk.finish(running)
    assert await desk.refusal(old) == "invalid_request_error"
    assert desk.background.find("", old.id) is None
    assert "done" in await desk.read(running)
    # It is forgotten as a stream only.
    state = await desk.services.store.get("", old.id)
    assert state is not None
    assert state.status == ResponseStatus.RESPONSE_STATUS_COMPLETED


async def test_only_so_many_that_have_ended_are_kept(make: Make) -> None:
    desk = make(max_ended=2)
    runs = [await desk.start() for _ in range(3)]
    for run in runs:
        await desk.finish(run)
    assert [desk.background.find("", run.id) is not None for run in runs] == [False, True, True]
    desk.clock.advance(300.0)
    assert [desk.background.find("", run.id) for run in runs] == [None, None, None]


async def test_who_follows_a_response_that_is_deleted_is_not_told_to_retrieve_it(make: Make) -> None:
    desk = make()
    caller = LocalCaller(desk.room, "", "http")
    create = ResponseCreate(model="stepped", input=Input(text="x"), background=True)
    reader = caller.respond(create, RequestContext())
    async with asyncio.timeout(5):
        (first, *_) = await anext(reader)
        response_id = first.created.response.id
        run = desk.room.background.find("", response_id)
        assert run is not None
        await caller.delete_response(response_id)

        with pytest.raises(RequestError) as refused:
            _ = [batch async for batch in run.follow(None)]
        assert refused.value.error.code == "response_not_found"
        with pytest.raises(RequestError) as refused:
            _ = [batch async for batch in reader]
        assert refused.value.error.code == "response_not_found"


async def test_a_session_that_breaks_down_ends_its_response_for_all_who_follow(make: Make) -> None:
    desk = make()
    run = await desk.start()
    assert run.runner is not None
    reading = asyncio.create_task(desk.read(run))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        run.runner.crashed()
    await desk.over(run)
    assert (await reading)[-1] == "done"
    assert run.broken is not None
    assert (run.broken.status, run.broken.error.code) == (ResponseStatus.RESPONSE_STATUS_FAILED, "server_error")
    stored = await desk.services.store.get("", run.id)
    assert stored is not None
    assert stored.status != ResponseStatus.RESPONSE_STATUS_IN_PROGRESS
    events = [event async for batch in run.follow(0) for event in batch]
    assert events[-1].done.reason == DoneReason.DONE_REASON_FAILED
    assert events[-1].sequence_number > events[-2].sequence_number
