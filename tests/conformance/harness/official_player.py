"""Plays transcripts in the public API's own words: JSON in, JSON out, through a JSON door.

Above it: the tests. Below it: a server with all its doors, and a bridge. The format is described in the README beside
this package.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from tests.bridge.scene import BOUND, Server, bridging, serving

from .matching import ANY, Names
from .player import perform

WEBSOCKETS: Final = ("websocket", "bridge")
CREATES: Final = (*WEBSOCKETS, "http", "bridge-http")
"""Doors of transcripts in which nothing but creates is sent."""
_STEPS: Final = frozenset({"send", "text", "engine", "expect", "ask", "closed"})


@dataclass(frozen=True)
class OfficialTranscript:
    """One conversation."""

    id: str
    why: str
    doors: tuple[str, ...]
    steps: tuple[dict[str, Any], ...]


def load_official(folder: Path) -> Iterator[OfficialTranscript]:
    """Yields all transcripts of a folder, by file and by place in the file."""
    for path in sorted(folder.glob("*.yaml")):
        for raw in yaml.safe_load_all(path.read_text()):
            given = dict(raw)
            name = given.pop("name")
            doors = CREATES if given.pop("http") else WEBSOCKETS
            steps = tuple(given.pop("steps"))
            for step in steps:
                assert len(set(step) & _STEPS) == 1, step
                assert set(step) <= _STEPS | {"of"}, step
            yield OfficialTranscript(f"{path.stem}:{name.replace(' ', '_')}", given.pop("why"), doors, steps)
            assert not given, given


class _Client:
    """One client: a socket, or requests with streams, or both."""

    def __init__(self, door: str, base: str, http: aiohttp.ClientSession) -> None:
        self.over_http = door.endswith("http")
        self.base = base
        self.http = http
        self.socket: aiohttp.ClientWebSocketResponse | None = None
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        if not self.over_http:
            self.socket = await self.http.ws_connect(f"{self.base}/v1/responses")
            self._run(self._read(self.socket))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.socket is not None:
            await self.socket.close()

    async def send(self, text: str) -> None:
        if self.socket is not None:
            await self.socket.send_str(text)
        else:
            self._run(self._post({**json.loads(text), "stream": True}))

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            self.events.put_nowait(json.loads(message.data))

    async def _post(self, body: dict[str, Any]) -> None:
        async with self.http.post(f"{self.base}/v1/responses", json=body) as answer:
            if answer.status != 200:
                self.events.put_nowait({"type": "error", "status": answer.status, **await answer.json()})
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    self.events.put_nowait(json.loads(line.removeprefix(b"data: ")))


class OfficialPlayer:
    """Plays one transcript."""

    def __init__(self, transcript: OfficialTranscript, server: Server, client: _Client) -> None:
        self._transcript = transcript
        self._server = server
        self._client = client
        self._names = Names()
        # Null is a value here.
        self._names.absent = "absent"
        self._last = ""

    async def play(self) -> None:
        """Plays all steps; in the end nothing may be left that was not expected."""
        for number, step in enumerate(self._transcript.steps, start=1):
            kind = next(iter(set(step) & _STEPS))
            try:
                async with asyncio.timeout(BOUND):
                    await getattr(self, f"_{kind}")(step)
            except (AssertionError, LookupError, TimeoutError) as problem:
                problem.add_note(f"in step {number} ({kind}: {step[kind]!r})"[:400])
                raise
        assert self._client.events.empty(), self._client.events.get_nowait()

    async def _send(self, step: dict[str, Any]) -> None:
        await self._client.send(json.dumps(self._names.fill(step["send"])))

    async def _text(self, step: dict[str, Any]) -> None:
        await self._client.send(step["text"])

    async def _engine(self, step: dict[str, Any]) -> None:
        response_id = self._names[step.get("of") or self._last]
        engine = self._server.engine
        count = 0
        while not any(each.prompt.response_id == response_id for each in engine.passes):
            count = len(engine.passes)
            await engine.started(count + 1)
        perform(engine.find(response_id), step["engine"], self._names)

    async def _expect(self, step: dict[str, Any]) -> None:
        skip = False
        for raw in step["expect"]:
            if raw == ANY:
                skip = True
                continue
            wanted: dict[str, Any] = {"type": raw} if isinstance(raw, str) else dict(raw)
            name = wanted.pop("as", "")
            while True:
                event = await self._client.events.get()
                problem = self._names.mismatch(wanted, event)
                if not problem:
                    break
                assert skip, f"{problem}\nexpected {wanted}\ngot      {event}"
            skip = False
            if name:
                self._names[name] = event["response"]["id"]
                self._last = name

    async def _ask(self, step: dict[str, Any]) -> None:
        asked = self._names.fill({key: value for key, value in step["ask"].items() if key != "answer"})
        url = f"{self._client.base}{asked['path']}"
        async with self._client.http.request(asked.get("method", "GET"), url, json=asked.get("body")) as answer:
            said = {"status": answer.status, "body": await answer.json()}
        problem = self._names.mismatch({"status": 200, **step["ask"]["answer"]}, said)
        assert not problem, f"{problem}\ngot {said}"

    async def _closed(self, step: dict[str, Any]) -> None:
        socket = self._client.socket
        assert socket is not None
        while not socket.closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert socket.close_code == step["closed"]


@asynccontextmanager
async def official_player(transcript: OfficialTranscript, door: str) -> AsyncGenerator[OfficialPlayer]:
    """Sets up what a transcript is played on."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(http=True))
        base = f"http://127.0.0.1:{server.http_port}"
        if door.startswith("bridge"):
            base = f"http://127.0.0.1:{(await stack.enter_async_context(bridging(server))).port}"
        client = _Client(door, base, await stack.enter_async_context(aiohttp.ClientSession()))
        await client.start()
        stack.push_async_callback(client.stop)
        yield OfficialPlayer(transcript, server, client)
