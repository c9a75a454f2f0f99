"""The way of a stream out of an event loop in another thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import pytest

from turnwire.client._loop_thread import LoopThread, Pipe

PIECE = b"x" * 1000


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


async def pieces(count: int) -> AsyncGenerator[bytes, None]:
    for _ in range(count):
        yield PIECE


def pipe(thread: LoopThread, source: AsyncGenerator[bytes, None]) -> Pipe:
    async def make() -> Pipe:
        return Pipe(source, 5, lambda: TimeoutError("late"), lambda: ConnectionError("cut off"))

    return thread.call(make())


def test_a_stream_is_read_to_its_end_however_long_it_is(thread: LoopThread) -> None:
    stream = pipe(thread, pieces(3000))
    assert sum(len(data) for data in iter(stream.read, b"")) == 3000 * len(PIECE)


@pytest.mark.parametrize("count", [1, 3000])
def test_a_stream_that_is_cut_off_does_not_look_as_if_it_had_ended(thread: LoopThread, count: int) -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        async for piece in pieces(count):
            yield piece
        await thread.loop.create_future()

    stream = pipe(thread, endless())
    assert stream.read()
    thread.stop()
    with pytest.raises(ConnectionError, match="cut off"):
        list(iter(stream.read, b""))
