"""What the tests of the HTTP door share: a door with a core behind it, and a client.

Every door checks, when its test is over, that nothing was left behind: no session, no pass in the engine, no timer of
the door, no task.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, TCPConnector, UnixConnector, web

from turnwire.server.address import Address, parse_address
from turnwire.server.doors.http.options import HttpOptions
from turnwire.server.doors.http.origin import Origins
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.keys import KeyRing
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import Channel, TextChunk
from turnwire.server.session.limits import SessionLimits
from turnwire.server.testing import ManualClock, make_services

BOUND = 5.0
"""Seconds after which a test gives up waiting for what should come at once."""
MODEL = "stepped"


@dataclass
class Stream:
    """The client's end of an event stream."""

    response: ClientResponse
    text: str = ""
    """What was read and is no whole frame."""
    comments: int = 0
    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def frame(self) -> str | None:
        """Reads the next frame; None at the end."""
        while "\n\n" not in self.text:
            async with asyncio.timeout(BOUND):
                piece = await self.response.content.readany()
            if not piece:
                assert not self.text
                return None
            self.text += piece.decode()
        frame, self.text = self.text.split("\n\n", 1)
        return frame

    async def next(self) -> dict[str, Any] | None:
        """Reads the next event; None when the stream has said that it is over."""
        while True:
            frame = await self.frame()
            assert frame is not None, "the stream was cut off"
            if frame.startswith(":"):
                self.comments += 1
                continue
            if frame == "data: [DONE]":
                assert await self.frame() is None
                return None
            event: dict[str, Any] = json.loads(frame.split("\ndata: ", 1)[1])
            assert frame.startswith(f"event: {event['type']}\n")
            self.seen.append(event)
            return event

    async def until(self, kind: str) -> dict[str, Any]:
        """Reads events until one of a kind comes."""
        while (event := await self.next()) is not None:
            if event["type"] == f"response.{kind}":
                return event
        msg = f"no {kind} among {[each['type'] for each in self.seen]}"
        raise AssertionError(msg)


class Door:
    """An HTTP door in this process, with an engine and a clock that the test commands."""

    def __init__(self, server: HttpServer, room: SessionRoom, engine: StepEngine, clock: ManualClock) -> None:
        self.server = server
        self.room = room
        self.engine = engine
        self.clock = clock
        self.address = Address()
        self.client: ClientSession

    @property
    def url(self) -> str:
        return "http://door" if self.address.path else f"http://{self.address}"

    @staticmethod
    def asking(**more: Any) -> dict[str, Any]:
        """Builds a valid create."""
        return {"model": MODEL, "input": "hello", **more}

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any, ClientResponse]:
        """Sends a request and reads the whole answer: its status, its JSON, and all of it."""
        async with asyncio.timeout(BOUND):
            async with self.client.request(method, self.url + path, **more) as response:
                text = await response.text()
        return response.status, json.loads(text) if text else None, response

    async def refusal(self, method: str, path: str, **more: Any) -> tuple[int, str, str | None]:
        """Sends a request that must be refused; returns status, code and parameter."""
        status, body, response = await self.ask(method, path, **more)
        assert response.headers["x-request-id"].startswith("req_")
        error = body["error"]
        assert error["message"]
        assert error["type"]
        return status, error["code"], error["param"]

    async def stream(self, **more: Any) -> Stream:
        """Creates a response as a stream."""
        return await self.stream_with({}, **more)

    async def stream_with(self, headers: dict[str, str], **more: Any) -> Stream:
        """Creates a response as a stream, by a request with these headers."""
        body = self.asking(stream=True, **more)
        async with asyncio.timeout(BOUND):
            response = await self.client.post(f"{self.url}/v1/responses", json=body, headers=headers)
        assert response.status == 200, await response.text()
        return Stream(response)

    async def sampling(self, passes: int = 1) -> SteppedPass:
        """Waits until so many passes were started in all and returns the newest."""
        async with asyncio.timeout(BOUND):
            return (await self.engine.started(passes))[-1]

    async def answers(self, text: str = "done", passes: int = 1, **more: Any) -> Any:
        """Creates a response whose pass is the next, and lets the model say something; returns the response."""
        asking = asyncio.create_task(self.ask("POST", "/v1/responses", json=self.asking(**more)))
        self.say(await self.sampling(passes), text)
        self.engine.finish(passes - 1)
        status, body, _ = await asking
        assert status == 200, body
        return body

    @staticmethod
    def say(sampling: SteppedPass, text: str) -> None:
        """Lets the model say something."""
        sampling.emit([TextChunk(Channel.TEXT, text)])

    async def told(self, which: int | str, call: Any) -> None:
        async with asyncio.timeout(BOUND):
            await self.engine.told(which, call)

    async def emptied(self) -> None:
        """Waits until no session is left."""
        async with asyncio.timeout(BOUND):
            await self.room.idle()

    async def check_nothing_left(self) -> None:
        await self.client.close()
        await self.emptied()
        assert len(self.room) == 0
        assert all(each.ended or each.aborted for each in self.engine.passes)


Doors = Callable[..., Awaitable[Door]]


@asynccontextmanager
async def _serving(
    *,
    limits: SessionLimits | None,
    keys: KeyRing | None,
    options: HttpOptions | None,
    address: str,
    websocket: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None,
    kept: bool,
    origins: Origins | None,
) -> AsyncGenerator[Door, None]:
    before = asyncio.all_tasks()
    clock, engine = ManualClock(), StepEngine()
    room = SessionRoom(make_services([engine], limits=limits, clock=clock))
    server = HttpServer(LocalBackend(room, keys), clock, options, websocket, origins=origins)
    door = Door(server, room, engine, clock)
    place = parse_address(address)
    assert place is not None
    try:
        door.address = await server.listen(place)
        connector = UnixConnector(place.path) if place.path else TCPConnector(force_close=not kept)
        door.client = ClientSession(connector=connector, auto_decompress=True)
        yield door
        await door.check_nothing_left()
        await room.background.aclose()
        assert clock.pending == 0
    finally:
        await room.background.aclose()
        await door.client.close()
        await server.stop(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=BOUND)
    assert not left
    assert not place.path or not os.path.exists(place.path)  # noqa: ASYNC240


@pytest.fixture
async def open_door() -> AsyncIterator[Doors]:
    """Opens doors with settings of their own, for the length of a test."""
    async with AsyncExitStack() as stack:

        async def open_one(
            *,
            limits: SessionLimits | None = None,
            keys: str | None = None,
            options: HttpOptions | None = None,
            address: str = "127.0.0.1:0",
            websocket: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None,
            kept: bool = True,
            origins: Origins | None = None,
        ) -> Door:
            ring = None if keys is None else KeyRing.parse(keys)
            return await stack.enter_async_context(
                _serving(
                    limits=limits,
                    keys=ring,
                    options=options,
                    address=address,
                    websocket=websocket,
                    kept=kept,
                    origins=origins,
                )
            )

        yield open_one


@pytest.fixture
async def door(open_door: Doors) -> Door:
    return await open_door()
