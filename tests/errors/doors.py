"""Every way to create a response, as one thing that takes an official body and tells how it ended.

Above it: the tests that go through every door. Below it: a server in this process, and a bridge in front of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from tests.bridge.scene import BOUND, Server, bridging, serving
from websockets.asyncio.client import connect

from turnwire.client.remote import RemoteBackend
from turnwire.server.keys import KeyRing
from turnwire.server.session.limits import SessionLimits
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError
from turnwire.v1.json import from_json
from turnwire.v1.official.errors import http_status
from turnwire.v1.official.stream import OfficialStream
from turnwire.v1.response_pb2 import ResponseCreate, Verbosity

Body = dict[str, Any]
Event = dict[str, Any]

DOORS: Final = (
    "grpc",
    "turnwire.v1",
    "http",
    "http-stream",
    "websocket",
    "bridge-http",
    "bridge-stream",
    "bridge-websocket",
)
STREAMS: Final = tuple(door for door in DOORS if not door.endswith("http"))
"""Those through which events come."""
TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


@dataclass
class Outcome:
    """How a create ended."""

    status: int | None = None
    """The HTTP status, of a frame or of the table; None for a failure that an event of the response told."""
    code: str = ""
    """Of the error; empty without one."""
    param: str | None = None
    message: str = ""
    response: dict[str, Any] | None = None
    """As it was told last."""
    events: list[Event] = field(default_factory=list[Event])
    """All of them, in the official form."""


class Entrance:
    """One door of a server."""

    def __init__(
        self, name: str, server: Server, http: aiohttp.ClientSession, base: str, remote: RemoteBackend
    ) -> None:
        """Made by `entering`."""
        self.name = name
        self.server = server
        self.authorization: str | None = None
        self._http = http
        self._base = base
        self._remote = remote

    async def create(self, body: Body) -> Outcome:
        """Creates a response and waits for its end."""
        async with asyncio.timeout(BOUND):
            return await self._way()(body)

    async def retrieve(self, response_id: str) -> dict[str, Any]:
        """Retrieves a stored response over HTTP, from the same server or through the bridge."""
        async with asyncio.timeout(BOUND), self._http.get(f"{self._base}/v1/responses/{response_id}") as answer:
            found: dict[str, Any] = await answer.json()
            assert answer.status == 200, found
            return found

    def _way(self) -> Callable[[Body], Awaitable[Outcome]]:
        match self.name.rpartition("-")[2]:
            case "http":
                return self._whole
            case "stream":
                return self._stream
            case "websocket":
                return self._socket
            case _:
                return self._messages

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self.authorization} if self.authorization else {}

    async def _whole(self, body: Body) -> Outcome:
        async with self._http.post(f"{self._base}/v1/responses", json=body, headers=self._headers()) as answer:
            said = await answer.json()
            return Outcome(200, response=said) if answer.status == 200 else _refused(answer.status, said["error"])

    async def _stream(self, body: Body) -> Outcome:
        asked = {**body, "stream": True}
        async with self._http.post(f"{self._base}/v1/responses", json=asked, headers=self._headers()) as answer:
            if answer.status != 200:
                return _refused(answer.status, (await answer.json())["error"])
            text = (await answer.read()).decode()
        frames = [frame for frame in text.split("\n\n") if frame and not frame.startswith(":")]
        assert frames.pop() == "data: [DONE]"
        events: list[Event] = []
        for frame in frames:
            event = json.loads(frame.split("\ndata: ", 1)[1])
            assert frame.startswith(f"event: {event['type']}\n")
            events.append(event)
        return _ended(events)

    async def _socket(self, body: Body) -> Outcome:
        url = f"{self._base.replace('http', 'ws', 1)}/v1/responses"
        headers = self._headers()
        async with connect(url, additional_headers=headers, max_size=None, compression=None, proxy=None) as socket:
            await socket.send(json.dumps({"type": "response.create", **body}))
            events: list[Event] = []
            while True:
                event: Event = json.loads(await socket.recv())
                if event["type"] == "error":
                    assert not events
                    return _refused(event["status"], event["error"])
                events.append(event)
                if event["type"] in TERMINAL:
                    break
            # Whatever follows it would come before the answer to a ping.
            await (await socket.ping())
            await socket.close()
            assert [event async for event in socket] == []
        return _ended(events)

    async def _messages(self, body: Body) -> Outcome:
        create = from_json(ResponseCreate, json.dumps(body))
        create.verbosity = Verbosity.VERBOSITY_FULL
        stream = OfficialStream(create)
        events: list[Event] = []
        try:
            async for batch in self._remote.caller(self.authorization).respond(create, RequestContext()):
                for event in batch:
                    assert not stream.ended, "an event after the terminal one"
                    events += [json.loads(frame.data) for frame in stream.feed(event)]
        except RequestError as refusal:
            error = refusal.error
            return Outcome(http_status(error), error.code, _param(error), error.message, events=events)
        return _ended(events)


def _param(error: Error) -> str | None:
    return error.param if error.HasField("param") else None


def _refused(status: int, error: dict[str, Any]) -> Outcome:
    return Outcome(status, error["code"], error["param"], error["message"])


def _ended(events: list[Event]) -> Outcome:
    response: dict[str, Any] = events[-1]["response"]
    error: dict[str, Any] = response["error"] or {}
    return Outcome(None, error.get("code", ""), None, error.get("message", ""), response, events)


@asynccontextmanager
async def entering(
    name: str, *, limits: SessionLimits | None = None, keys: KeyRing | None = None
) -> AsyncGenerator[Entrance]:
    """Opens a server, and one door of it by its name in `DOORS`, for the length of the block."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(limits=limits, keys=keys, http=True))
        base = f"http://127.0.0.1:{server.http_port}"
        if name.startswith("bridge"):
            stage = await stack.enter_async_context(bridging(server))
            base = f"http://127.0.0.1:{stage.port}"
        native = f"ws://127.0.0.1:{server.http_port}" if name == "turnwire.v1" else f"127.0.0.1:{server.grpc_port}"
        remote = await stack.enter_async_context(RemoteBackend(native))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Entrance(name, server, http, base, remote)
