"""A body on its way to a client, with a client that stops taking at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from turnwire.server.doors.http.event_stream import EventStream
from turnwire.server.doors.http.options import HttpOptions
from turnwire.server.testing import ManualClock

from .conftest import BOUND


class Client:
    """Takes what is written until it does not any more; stands for request, response and transport."""

    def __init__(self, takes: int) -> None:
        self.left = takes
        self.written: list[bytes] = []
        self.stopped = asyncio.Event()
        self.gone = asyncio.Event()
        self.ended = False
        self.transport = self

    async def prepare(self, request: object) -> None:
        pass

    async def write(self, data: bytes) -> None:
        assert not self.ended, "written after the end"
        self.written.append(data)
        await self._taken()

    async def write_eof(self, data: bytes) -> None:
        self.ended = True
        await self._taken()

    async def _taken(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.stopped.set()
            await self.gone.wait()
            raise ConnectionResetError

    def abort(self) -> None:
        self.gone.set()


async def two_pieces() -> AsyncGenerator[bytes, None]:
    yield b"one"
    yield b"two"


@pytest.mark.parametrize("takes", [0, 1, 2])
@pytest.mark.parametrize("filler", [b": filler", b""])
async def test_a_client_that_stops_taking_is_cut_off_wherever_it_stops(takes: int, filler: bytes) -> None:
    client, clock = Client(takes), ManualClock()
    options = HttpOptions(stall_timeout=60, comment_interval=15)
    stream = EventStream(cast("Any", client), cast("Any", client), filler, None, clock, options)
    serving = asyncio.create_task(stream.serve(two_pieces()))
    async with asyncio.timeout(BOUND):
        await client.stopped.wait()

        for _ in range(3):
            clock.advance(16)
            await asyncio.sleep(0)
            assert not client.gone.is_set()
        clock.advance(16)

        with pytest.raises(ConnectionResetError):
            await serving
    assert client.written == [b"one", b"two"][: takes + 1]
    assert clock.pending == 0
