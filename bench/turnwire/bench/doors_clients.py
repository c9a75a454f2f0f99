"""Clients of the doors that do as little as they can: they take bytes as they come, or parse each event and no more.

Above it: `doors`. Below it: aiohttp and grpc.aio. Each drives a number of lanes; in each, responses follow one another.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final, Protocol

import aiohttp
import grpc

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import Input, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse, StreamResponseRequest, StreamResponseResponse
from turnwire.v1.session_pb2 import SessionOpen

MODEL: Final = "scripted"
SOCKET_LANES: Final = 16
"""Responses at work on one WebSocket at most, by the public API's limit."""
_END: Final = b'{"type":"response.completed"'
_SERVICE: Final = "/turnwire.v1.ResponsesService/"
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


class Client(Protocol):
    """Drives one door."""

    async def open(self, lanes: int) -> None:
        """Connects. When cancelled, `close` has to follow."""
        ...

    async def run(self, text: str, turns: int, *, parsed: bool) -> list[float]:
        """Runs so many responses in each lane; returns what each took, in seconds. Once cancelled, it has to be closed.

        Raises:
            RuntimeError: A response did not end well.
        """
        ...

    async def close(self) -> None:
        """Disconnects. Cancelling it leaves connections to the garbage collector."""
        ...


class SseClient:
    """HTTP: a connection and an event stream for each response."""

    def __init__(self, url: str) -> None:
        """Takes the base URL, without a path."""
        self._url = f"{url}/v1/responses"
        self._lanes = 0
        self._session: aiohttp.ClientSession

    async def open(self, lanes: int) -> None:
        """Makes room for connections; see `Client`."""
        self._lanes = lanes
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def run(self, text: str, turns: int, *, parsed: bool) -> list[float]:
        """Runs the responses; see `Client`."""
        body = json.dumps({"model": MODEL, "input": text, "store": False, "stream": True}).encode()
        took: list[float] = []
        await asyncio.gather(*(self._lane(body, turns, took, parsed=parsed) for _ in range(self._lanes)))
        return took

    async def _lane(self, body: bytes, turns: int, took: list[float], *, parsed: bool) -> None:
        headers = {"content-type": "application/json"}
        for _ in range(turns):
            began = time.perf_counter()
            async with self._session.post(self._url, data=body, headers=headers) as response:
                last = await (_parsed_stream(response) if parsed else _taken_stream(response))
            took.append(time.perf_counter() - began)
            if response.status != 200 or _END not in last:
                msg = f"HTTP {response.status}: {last.decode(errors='replace')[:500]}"
                raise RuntimeError(msg)

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        await self._session.close()


async def _taken_stream(response: aiohttp.ClientResponse) -> bytes:
    """Reads a stream to its end; returns its last pieces."""
    before = last = b""
    while piece := await response.content.readany():
        before, last = last, piece
    return before + last


async def _parsed_stream(response: aiohttp.ClientResponse) -> bytes:
    """Reads a stream to its end, and parses every event; returns the last one."""
    rest = b""
    last = b""
    while piece := await response.content.readany():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                last = line[6:]
                json.loads(last)
    return last


class WebSocketClient:
    """The public API's WebSocket mode."""

    def __init__(self, url: str, lanes: int = SOCKET_LANES, *, compressed: bool = False) -> None:
        """Takes the base URL, without a path, how many lanes share a socket, and whether compression is offered."""
        self._url = f"{url}/v1/responses"
        self._shared = lanes
        self._compress = 15 if compressed else 0
        self._sockets: list[tuple[aiohttp.ClientWebSocketResponse[Any], list[str]]] = []
        self._session: aiohttp.ClientSession

    async def open(self, lanes: int) -> None:
        """Opens the sockets; see `Client`."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        names = [f"l{n}" for n in range(lanes)]
        for at in range(0, lanes, self._shared):
            socket: Any = await self._session.ws_connect(
                self._url, compress=self._compress, decode_text=False, max_msg_size=0
            )
            self._sockets.append((socket, names[at : at + self._shared]))

    async def run(self, text: str, turns: int, *, parsed: bool) -> list[float]:
        """Runs the responses; see `Client`."""
        runs = [self._socket(socket, lanes, text, turns, parsed=parsed) for socket, lanes in self._sockets]
        return [each for took in await asyncio.gather(*runs) for each in took]

    async def _socket(self, socket: Any, lanes: list[str], text: str, turns: int, *, parsed: bool) -> list[float]:
        left, began, took = dict.fromkeys(lanes, turns), dict[str, float](), list[float]()

        async def create(lane: str) -> None:
            began[lane] = time.perf_counter()
            body = {"type": "response.create", "stream_id": lane, "model": MODEL, "input": text, "store": False}
            await socket.send_str(json.dumps(body))

        for lane in lanes:
            await create(lane)
        while left:
            message = await socket.receive()
            data = message.data
            if parsed:
                kind = json.loads(data)["type"]
                ended, failed = kind == "response.completed", kind == "error"
            else:
                failed = not isinstance(data, bytes) or data.startswith(b'{"type":"error"')
                ended = data.startswith(_END)
            if failed:
                raise RuntimeError(str(message)[:500])
            if ended:
                lane = json.loads(data)["stream_id"]
                took.append(time.perf_counter() - began[lane])
                left[lane] -= 1
                if left[lane]:
                    await create(lane)
                else:
                    del left[lane]
        return took

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        for socket, _ in self._sockets:
            await socket.close()
        self._sockets.clear()
        await self._session.close()


class _Lanes:
    """Turns in lanes of one session that speaks our own protocol; always parsed, since ends are found only so."""

    def __init__(self, lanes: int, text: str, turns: int) -> None:
        self._text = text
        self._left = {f"l{n}": turns for n in range(lanes)}
        self._began: dict[str, float] = {}
        self._names: dict[int, str] = {}
        self.took: list[float] = []

    def start(self) -> list[bytes]:
        """Returns the first requests."""
        return [self._create(lane) for lane in self._left]

    def take(self, data: bytes) -> list[bytes]:
        """Takes a batch; returns what is asked next."""
        asked: list[bytes] = []
        for event in ConnectResponse.FromString(data).events:
            kind = event.WhichOneof("event")
            if kind == "created":
                self._names[event.response] = event.created.lane
            elif kind == "done":
                lane = self._names.pop(event.response)
                self.took.append(time.perf_counter() - self._began[lane])
                self._left[lane] -= 1
                if self._left[lane]:
                    asked.append(self._create(lane))
                else:
                    del self._left[lane]
            elif kind == "rejected":
                raise RuntimeError(event.rejected.error.message)
        return asked

    @property
    def over(self) -> bool:
        return not self._left

    def _create(self, lane: str) -> bytes:
        self._began[lane] = time.perf_counter()
        create = ResponseCreate(model=MODEL, input=Input(text=self._text), store=False)
        return ConnectRequest(create=create, lane=lane).SerializeToString()


_OPENING: Final = ConnectRequest(open=SessionOpen(session_credit_bytes=0, response_credit_bytes=0)).SerializeToString()


class NativeSocketClient:
    """The subprotocol `turnwire.v1`: all lanes on one socket."""

    def __init__(self, url: str) -> None:
        """Takes the base URL, without a path."""
        self._url = f"{url}/v1/responses"
        self._lanes = 0
        self._session: aiohttp.ClientSession
        self._socket: Any = None

    async def open(self, lanes: int) -> None:
        """Opens the socket and the session; see `Client`."""
        self._lanes = lanes
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(self._url, protocols=("turnwire.v1",), max_msg_size=0)
        await self._socket.send_bytes(_OPENING)
        await self._socket.receive()

    async def run(self, text: str, turns: int, *, parsed: bool) -> list[float]:
        """Runs the responses; see `Client`."""
        lanes = _Lanes(self._lanes, text, turns)
        for request in lanes.start():
            await self._socket.send_bytes(request)
        while not lanes.over:
            for request in lanes.take((await self._socket.receive()).data):
                await self._socket.send_bytes(request)
        return lanes.took

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        await self._socket.close()
        await self._session.close()


class GrpcSessionClient:
    """gRPC: all lanes on one stream."""

    def __init__(self, address: str) -> None:
        """Takes HOST:PORT."""
        self._address = address
        self._lanes = 0
        self._channel: grpc.aio.Channel
        self._call: Any = None

    async def open(self, lanes: int) -> None:
        """Opens the stream and the session; see `Client`."""
        self._lanes = lanes
        self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        channel: Any = self._channel
        make: Any = channel.stream_stream(f"{_SERVICE}Connect")
        self._call = make()
        await self._call.write(_OPENING)

    async def run(self, text: str, turns: int, *, parsed: bool) -> list[float]:
        """Runs the responses; see `Client`."""
        lanes = _Lanes(self._lanes, text, turns)
        for request in lanes.start():
            await self._call.write(request)
        while not lanes.over:
            for request in lanes.take(await self._call.read()):
                await self._call.write(request)
        return lanes.took

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        self._call.cancel()
        await self._channel.close()


class GrpcStreamsClient:
    """gRPC: a stream for each response, on one connection."""

    def __init__(self, address: str) -> None:
        """Takes HOST:PORT."""
        self._address = address
        self._lanes = 0
        self._channel: grpc.aio.Channel

    async def open(self, lanes: int) -> None:
        """Connects; see `Client`."""
        self._lanes = lanes
        self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        await self._channel.channel_ready()

    async def run(self, text: str, turns: int, *, parsed: bool) -> list[float]:
        """Runs the responses; see `Client`."""
        create = ResponseCreate(model=MODEL, input=Input(text=text), store=False)
        request = StreamResponseRequest(create=create).SerializeToString()
        channel: Any = self._channel
        method: Any = channel.unary_stream(f"{_SERVICE}StreamResponse")
        took: list[float] = []

        async def lane() -> None:
            for _ in range(turns):
                began = time.perf_counter()
                call = method(request)
                while (data := await call.read()) is not grpc.aio.EOF:
                    if parsed:
                        for event in StreamResponseResponse.FromString(data).events:
                            event.WhichOneof("event")
                took.append(time.perf_counter() - began)
                if await call.code() is not grpc.StatusCode.OK:
                    raise RuntimeError(await call.details())

        await asyncio.gather(*(lane() for _ in range(self._lanes)))
        return took

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        await self._channel.close()
