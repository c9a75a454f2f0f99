"""Plays creates as event streams through the HTTP door.

Above it: the tests. Below it: the door, and `official`, which knows what JSON does not say.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp

from turnwire.server.address import Address
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.runtime.local import LocalBackend
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.json import to_json

from . import official
from .door_driver import PATIENCE, AnyName, DoorDriver
from .inbox import Inbox
from .skips import wants_all
from .transcript import Transcript

_STEPS: int = 25
"""Rounds of the event loop in which what was written to a loopback socket is read."""


class HttpDriver(DoorDriver):
    """Real requests to a real server; a session of the transcript is a key."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._inboxes: dict[str, tuple[Inbox, str]] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._url = ""
        self._http: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Serves for the length of the block."""
        server = HttpServer(LocalBackend(self.room, AnyName()), self.clock)
        self._url = f"http://{await server.listen(Address('127.0.0.1', 0))}/v1/responses"
        async with aiohttp.ClientSession() as self._http:
            try:
                yield self
            finally:
                for task in self._reading:
                    task.cancel()
                await asyncio.gather(*self._reading, return_exceptions=True)
                await self.until(lambda: not self.services.sessions, "every session was let go")
                await server.stop(0)

    async def open(self, name: str, principal: str) -> Inbox:
        """Gives a name to a key."""
        inbox = Inbox(self.bell)
        self._inboxes[name] = inbox, principal
        return inbox

    def expected(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Returns what the door says of an event that a transcript expects; None where it says nothing."""
        return official.expected(wanted)

    async def send(self, name: str, request: ConnectRequest) -> None:
        """Sends a create, and waits until it was refused or its response exists."""
        await self.say(name, request)

    async def say(self, name: str, request: ConnectRequest) -> None:
        """Sends a create, and reads its events from then on."""
        assert self._http is not None
        body: dict[str, Any] = json.loads(to_json(request))
        del body["type"]
        inbox, principal = self._inboxes[name]
        async with asyncio.timeout(PATIENCE):
            answer = await self._http.post(
                self._url, json={**body, "stream": True}, headers={"Authorization": f"Bearer {principal}"}
            )
        translation = official.Translation(inbox, full=wants_all(self.transcript))
        if answer.status != 200:
            translation.take(json.dumps({"type": "error", "status": answer.status, **await answer.json()}))
            return
        task = asyncio.create_task(self._read(answer, inbox, translation))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read(self, answer: aiohttp.ClientResponse, inbox: Inbox, translation: official.Translation) -> None:
        try:
            async with answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        translation.take(line.removeprefix(b"data: "))
        except Exception as problem:
            inbox.end(f"a rule was broken: {problem!r}")

    async def half_close(self, name: str) -> None:
        """Is never called: see `skips`."""
        raise NotImplementedError

    async def vanish(self, name: str) -> None:
        """Is never called: see `skips`."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Waits until nothing is on its way."""
        await super().settle()
        for _ in range(_STEPS):
            await asyncio.sleep(0)

    def quiet(self) -> bool:
        """Tells whether everything that waited has been sent."""
        return not any(session.sendable for session in self.services.sessions.values())
