"""Chat requests on their way out."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
from aiohttp.client_proto import ResponseHandler

from turnwire.server.engine.chat.request import WRITE, ChatBody, ChatRequest

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


async def test_a_request_tells_its_body_over_which_connection_it_goes() -> None:
    peer = Peer()
    async with aiohttp.ClientSession(request_class=ChatRequest) as session:
        for pieces in ((b"one",), (b"t", b"wo")):
            asked = asyncio.create_task(peer.ask(session, *pieces))
            taken = await peer.take(pieces[-1])
            assert taken.partition(b"\r\n\r\n")[2] == b"".join(pieces)
            await peer.answer()
            assert await asked == 200
    peer.close()
    first, second = peer.over
    assert first is second


async def test_what_a_connection_does_not_take_at_once_follows() -> None:
    peer = Peer()
    pieces = (b"a" * (20 * WRITE), b"b" * 1000, b"end")
    async with aiohttp.ClientSession(request_class=ChatRequest) as session:
        asked = asyncio.create_task(peer.ask(session, *pieces))
        taken = await peer.take(b"end")
        await peer.answer()
        assert await asked == 200
    peer.close()
    assert taken.partition(b"\r\n\r\n")[2] == b"".join(pieces)
