"""The bare libraries: servers that send recorded events at a set pace, with nothing behind them.

    python -m turnwire.bench.doors_bare RECORDING

Above it: `doors`, which runs it in a process of its own. Below it: aiohttp and grpc.aio, used as their documentation
says, and the scripted engine's ticker, so that the pace costs what it costs a real server.

What is sent is what the real server sent once, serialized and encoded beforehand. It prints where it listens.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec
import uvloop
from aiohttp import WSMsgType, web

from turnwire.server.engine.scripted.pacing import Ticker
from turnwire.server.engine.scripted.script import Script
from turnwire.server.engine.scripted.turns import Speed
from turnwire.server.session.chunks import EngineFailure, Finish, FinishReason, PassUsage
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.responses_service_pb2 import ConnectResponse, StreamResponseRequest

LANE: Final = "LANE"
"""Stands in recordings for the name of a lane."""
PING: Final = "ping"
"""The input that is answered at once and shortly."""


class Recording(msgspec.Struct):
    """What is played, and how fast."""

    ttft: float
    """Seconds to the first token."""
    tokens_per_second: float
    official: dict[str, list[bytes]]
    """JSON events in order, by the input that they answer; each token is one event of the kind `delta`."""
    compact: dict[str, list[bytes]]
    """The same as ConnectResponses of one event each."""


class _Played(msgspec.Struct):
    """A recording cut at its tokens."""

    begin: list[bytes]
    tokens: list[bytes]
    end: list[bytes]


def _cut(events: Sequence[bytes], is_token: Callable[[bytes], bool]) -> _Played:
    at = [place for place, event in enumerate(events) if is_token(event)]
    return _Played(list(events[: at[0]]), list(events[at[0] : at[-1] + 1]), list(events[at[-1] + 1 :]))


def _is_json_token(event: bytes) -> bool:
    return event.startswith(b'{"type":"response.output_text.delta"')


def _is_compact_token(batch: bytes) -> bool:
    return ConnectResponse.FromString(batch).events[0].WhichOneof("event") == "output_text_delta"


class _Queue:
    """What responses have said and was not written yet; one writer."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._something = asyncio.Event()
        self.at_work = 0
        """Responses that have not ended."""

    def put(self, events: Sequence[bytes]) -> None:
        self._waiting += events
        self._something.set()

    async def take(self) -> list[bytes]:
        await self._something.wait()
        self._something.clear()
        taken, self._waiting = self._waiting, []
        return taken


class _Sink:
    """One response: puts into a queue what is due."""

    def __init__(self, queue: _Queue, end: list[bytes]) -> None:
        self._queue = queue
        self._end = end

    def output(self, chunks: Sequence[Any], /) -> None:
        self._queue.put(chunks)

    def ended(self, outcome: Finish | EngineFailure, /) -> None:
        self._queue.at_work -= 1
        self._queue.put(self._end)


class BareServer:
    """Plays a recording through each library."""

    def __init__(self, recording: Recording) -> None:
        """Takes what is played."""
        self._official = {text: _cut(events, _is_json_token) for text, events in recording.official.items()}
        self._compact = {text: _cut(events, _is_compact_token) for text, events in recording.compact.items()}
        self._speed = Speed(recording.ttft, recording.tokens_per_second)
        self._ticker = Ticker()
        self._lanes: dict[tuple[str, str], _Played] = {}
        """Recordings with the names of lanes put in, by input and lane."""

    def _play(self, played: _Played, queue: _Queue, *, at_once: bool) -> None:
        queue.at_work += 1
        queue.put(played.begin)
        count = len(played.tokens)
        outcome = Finish(FinishReason.STOP, PassUsage())
        chunks: Any = played.tokens
        self._ticker.start(
            Script(chunks, range(count + 1), outcome), Speed() if at_once else self._speed, _Sink(queue, played.end)
        )

    # aiohttp

    async def sse(self, request: web.Request) -> web.StreamResponse:
        """Serves one response as an event stream. Cancelling it is safe."""
        body = await request.json()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        queue = _Queue()
        self._play(self._as_sse(body["input"]), queue, at_once=body["input"] == PING)
        while queue.at_work:
            await response.write(b"".join(await queue.take()))
        await response.write_eof()
        return response

    def _as_sse(self, text: str) -> _Played:
        played = self._lanes.get((text, "sse"))
        if played is None:
            found = self._official[text]
            played = self._lanes[text, "sse"] = _Played(
                *(_sse(part) for part in (found.begin, found.tokens, found.end))
            )
        return played

    async def websocket(self, request: web.Request) -> web.StreamResponse:
        """Serves responses on a socket. Cancelling it is safe."""
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        queue = _Queue()

        async def write() -> None:
            while True:
                for event in await queue.take():
                    await socket.send_frame(event, WSMsgType.TEXT)

        writing = asyncio.create_task(write())
        async for message in socket:
            create = msgspec.json.decode(message.data)
            self._play(self._in_lane(create["input"], create["stream_id"]), queue, at_once=create["input"] == PING)
        writing.cancel()
        return socket

    def _in_lane(self, text: str, lane: str) -> _Played:
        played = self._lanes.get((text, lane))
        if played is None:
            found = self._official[text]
            old, new = f'"{LANE}"'.encode(), f'"{lane}"'.encode()
            parts = ([event.replace(old, new) for event in part] for part in (found.begin, found.tokens, found.end))
            played = self._lanes[text, lane] = _Played(*parts)
        return played

    # grpc.aio

    async def stream_response(self, data: bytes, context: Any) -> None:
        """Serves one response on a stream of its own. Cancelling it is safe."""
        text = StreamResponseRequest.FromString(data).create.input.text
        queue = _Queue()
        self._play(self._compact[text], queue, at_once=text == PING)
        while queue.at_work:
            await context.write(b"".join(await queue.take()))

    async def connect(self, requests: Any, context: Any) -> None:
        """Serves responses on one stream. Cancelling it is safe."""
        queue = _Queue()

        async def write() -> None:
            while True:
                # Messages of one event each, end to end, are a message of all their events.
                await context.write(b"".join(await queue.take()))

        writing = asyncio.create_task(write())
        async for data in requests:
            request = ConnectRequest.FromString(data)
            if request.WhichOneof("event") == "create":
                text = request.create.input.text
                self._play(self._for_handle(text, request.lane), queue, at_once=text == PING)
        writing.cancel()

    def _for_handle(self, text: str, lane: str) -> _Played:
        played = self._lanes.get((text, f"compact {lane}"))
        if played is None:
            found = self._compact[text]
            handle = int(lane.removeprefix("l")) + 1
            parts = (
                [_renamed(batch, handle, lane) for batch in part] for part in (found.begin, found.tokens, found.end)
            )
            played = self._lanes[text, f"compact {lane}"] = _Played(*parts)
        return played


def _sse(events: Sequence[bytes]) -> list[bytes]:
    lane = f',"stream_id":"{LANE}"'.encode()
    return [b"event: %b\ndata: %b\n\n" % (event.split(b'"', 4)[3], event.replace(lane, b"")) for event in events]


def _renamed(batch: bytes, handle: int, lane: str) -> bytes:
    message = ConnectResponse.FromString(batch)
    for event in message.events:
        event.response = handle
        if event.HasField("created"):
            event.created.lane = lane
    return message.SerializeToString()


async def _serve(server: BareServer) -> None:
    application = web.Application()
    handlers: list[tuple[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]] = [
        ("POST", server.sse),
        ("GET", server.websocket),
    ]
    for method, handler in handlers:
        application.router.add_route(method, "/v1/responses", handler)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    methods: dict[str, Any] = {
        "Connect": grpc.stream_stream_rpc_method_handler(server.connect),
        "StreamResponse": grpc.unary_stream_rpc_method_handler(server.stream_response),
    }
    grpc_server = grpc.aio.server()
    grpc_server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("turnwire.v1.ResponsesService", methods),)
    )
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()
    print(f"grpc listening on 127.0.0.1:{port}", flush=True)
    print(f"http listening on http://127.0.0.1:{site.port}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serves until it is ended."""
    recording = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=Recording)

    async def run() -> None:
        # The ticker belongs to a loop.
        await _serve(BareServer(recording))

    uvloop.run(run())


if __name__ == "__main__":
    main()
