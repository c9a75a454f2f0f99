"""The log of one response's events: any number of readers, from any point, within a bound."""

from __future__ import annotations

import asyncio

import pytest

from turnwire.server.runtime.event_log import EventLog, EventsGone
from turnwire.v1.item_pb2 import Item, Message
from turnwire.v1.response_pb2 import Response
from turnwire.v1.server_event_pb2 import (
    ContentPartAdded,
    ContentPartDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ResponseInProgress,
    ServerEvent,
)

_ITEM = Item(message=Message(id="msg_1"))
_STREAM = [
    ServerEvent(created=ResponseCreated(response=Response(id="resp_1"))),
    ServerEvent(in_progress=ResponseInProgress()),
    ServerEvent(output_item_added=OutputItemAdded(item=_ITEM)),
    ServerEvent(content_part_added=ContentPartAdded()),
    ServerEvent(output_text_delta=OutputTextDelta(delta="a")),
    ServerEvent(output_text_delta=OutputTextDelta(delta="b")),
    ServerEvent(content_part_done=ContentPartDone()),
    ServerEvent(output_item_done=OutputItemDone(item=_ITEM)),
    ServerEvent(done=ResponseDone()),
]
for _number, _event in enumerate(_STREAM):
    _event.response = 1
    _event.sequence_number = _number


async def _read(log: EventLog, after: int | None) -> list[int]:
    return [event.sequence_number async for batch in log.follow(after) for event in batch]


@pytest.fixture(params=[1, 2, 4, 9], ids=lambda size: f"chunks of {size}")
def whole(request: pytest.FixtureRequest) -> EventLog:
    log = EventLog(10**6)
    for start in range(0, len(_STREAM), request.param):
        log.add(_STREAM[start : start + request.param])
    log.close()
    return log


async def test_a_reader_gets_all_events_from_the_first_one(whole: EventLog) -> None:
    assert await _read(whole, None) == list(range(9))


@pytest.mark.parametrize(
    ("after", "again"),
    [(0, [0]), (1, [0]), (2, [0, 2]), (3, [0, 2, 3]), (5, [0, 2, 3]), (6, [0, 2]), (7, [0]), (8, [0, 8]), (99, [0, 8])],
)
async def test_a_reader_who_joins_later_first_gets_what_the_rest_needs(
    whole: EventLog, after: int, again: list[int]
) -> None:
    assert await _read(whole, after) == [*again, *range(after + 1, 9)]


async def test_readers_wait_for_what_comes_and_do_not_disturb_each_other() -> None:
    log = EventLog(10**6)
    log.add(_STREAM[:2])
    first = asyncio.create_task(_read(log, None))
    second = asyncio.create_task(_read(log, 0))
    await asyncio.sleep(0)
    log.add(_STREAM[2:8])
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    log.add(_STREAM[8:])
    log.close()
    async with asyncio.timeout(5):
        assert await first == list(range(9))


async def test_a_log_is_bounded_and_says_what_it_does_not_have() -> None:
    log = EventLog(60)
    for event in _STREAM[:6]:
        log.add([event])
    assert log.bytes <= 60
    with pytest.raises(EventsGone):
        await _read(log, None)
    for event in _STREAM[6:]:
        log.add([event])
    log.close()
    # What announced the open item is remembered though it was let go.
    assert await _read(log, 5) == [0, 2, 3, 6, 7, 8]


async def test_one_event_larger_than_the_bound_is_kept_until_the_next() -> None:
    log = EventLog(10)
    log.add(_STREAM[:6])
    log.close()
    assert await _read(log, None) == list(range(6))


async def test_a_reader_who_falls_too_far_behind_is_told() -> None:
    log = EventLog(60)
    log.add(_STREAM[:1])
    reader = log.follow(None)
    assert [event.sequence_number for event in await anext(reader)] == [0]
    for event in _STREAM[1:]:
        log.add([event])
    with pytest.raises(EventsGone):
        await anext(reader)


async def test_readers_of_a_log_that_is_let_go_are_told() -> None:
    log = EventLog(10**6)
    log.add(_STREAM[:2])
    reader = asyncio.create_task(_read(log, None))
    await asyncio.sleep(0)
    log.clear()
    async with asyncio.timeout(5):
        with pytest.raises(EventsGone):
            await reader
    assert log.bytes == 0
