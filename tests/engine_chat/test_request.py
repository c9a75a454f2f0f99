"""What goes out, and when: requests are written before anything else gets its turn."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from turnwire.server.engine.chat.request import WRITE, ChatBody, EagerRequest, begun

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Peer:
    """The other end of one connection, read without an event loop, so that it is seen what is there already."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.connection: socket.socket | None = None
        self.over: list[ResponseHandler] = []

    async def ask(self, session: aiohttp.ClientSession, *pieces: bytes) -> int:
        url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/"
        async with session.post(url, data=ChatBody(pieces, self.over.append)) as response:
            return response.status

    async def take(self, ending: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        if self.connection is None:
            self.connection, _ = await loop.sock_accept(self.listener)
            self.connection.setblocking(False)
        taken = b""
        while not taken.endswith(ending):
            taken += await loop.sock_recv(self.connection, 1 << 20)
        return taken

    async def answer(self) -> None:
        assert self.connection is not None
        await asyncio.get_running_loop().sock_sendall(self.connection, ANSWER)

    def close(self) -> None:
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


async def test_a_kept_connection_is_written_to_before_anything_else_gets_its_turn() -> None:
    peer = Peer()
    async with aiohttp.ClientSession(request_class=EagerRequest) as session:
        first = asyncio.create_task(peer.ask(session, b"one"))
        await peer.take(b"one")
        await peer.answer()
        assert await first == 200
        second = asyncio.create_task(peer.ask(session, b"t", b"wo"))
        await asyncio.sleep(0)
        assert peer.connection is not None
        assert peer.connection.recv(1 << 16).endswith(b"\r\n\r\ntwo")
        await peer.answer()
        assert await second == 200
    peer.close()
    assert peer.over[0] is peer.over[1]


async def test_what_a_connection_does_not_take_at_once_follows() -> None:
    peer = Peer()
    pieces = (b"a" * (20 * WRITE), b"b" * 1000, b"end")
    async with aiohttp.ClientSession(request_class=EagerRequest) as session:
        asked = asyncio.create_task(peer.ask(session, *pieces))
        taken = await peer.take(b"end")
        await peer.answer()
        assert await asked == 200
    peer.close()
    assert taken.partition(b"\r\n\r\n")[2] == b"".join(pieces)


async def test_work_that_waits_goes_on_in_a_task() -> None:
    said: list[str] = []
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        said.append("begun")
        said.append(await gate)
        await asyncio.sleep(0)
        said.append("done")

    rest = begun(work())
    assert said == ["begun"]
    task = asyncio.create_task(rest)
    await asyncio.sleep(0)
    gate.set_result("came")
    await task
    assert said == ["begun", "came", "done"]


async def test_work_that_waits_can_be_cancelled() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cleaned: list[bool] = []

    async def work() -> None:
        try:
            await gate
        finally:
            cleaned.append(gate.cancelled())

    task = asyncio.create_task(begun(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "later"])
async def test_what_work_raises_is_raised(waits: bool) -> None:
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await begun(work())
