"""Clients that do as little as they can: bytes are taken as they come, and read once the clock has stopped.

Above it: `checking` and `measuring`. Below it: aiohttp and grpc.aio. Each has one connection and asks one thing at a
time. gRPC has to be parsed as it comes, since nothing else finds the end of a response on a stream that goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
import grpc
import msgspec

from turnwire.bench.fakes.upstream import FIRST, MODEL, Said
from turnwire.bench.peers.conversations import chat_body, responses_body, socket_body
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.response_pb2 import DoneReason, Input, InputItems, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.session_pb2 import SessionOpen

PATIENCE: Final = 60.0
"""Seconds that an answer may take."""
_DELTA: Final = b"response.output_text.delta"
_COMPLETED: Final = b"response.completed"
_OVERLAP: Final = 64
"""Bytes of the piece before that a mark may have begun in."""
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}


class Failed(RuntimeError):
    """A turn did not end well; the gateway's own words are in the text."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request."""

    ttft: float
    """Seconds from the first byte written to the arrival of the first visible text."""
    total: float
    """Seconds to the arrival of the end."""
    id: str
    """The response's; empty where the form has none."""
    text: str


class Client(Protocol):
    """Asks one gateway over one connection."""

    async def open(self) -> None:
        """Connects. When cancelled, `close` has to follow."""
        ...

    def request(self, messages: Sequence[Said], previous: str = "", *, store: bool = False) -> bytes:
        """Returns a request; making it belongs to no measurement."""
        ...

    async def ask(self, request: bytes) -> Answer:
        """Sends a request and takes its answer. Once cancelled or failed, the client has to be closed.

        Raises:
            Failed: It was refused, or did not complete.
            OSError, TimeoutError: The connection broke, or nothing came; so do the errors of aiohttp and gRPC.
        """
        ...

    async def close(self) -> None:
        """Disconnects. Cancelling it leaves connections to the garbage collector."""
        ...


class _Response(msgspec.Struct):
    id: str = ""


class _Event(msgspec.Struct):
    type: str = ""
    delta: str = ""
    response: _Response | None = None


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


_EVENT: Final = msgspec.json.Decoder(_Event)
_CHUNK: Final = msgspec.json.Decoder(_Chunk)


def read_events(events: Sequence[bytes]) -> tuple[str, str]:
    """Reads the JSON of a response's events; returns its id and its text.

    Raises:
        Failed: It did not complete.
    """
    text: list[str] = []
    for data in events:
        event = _EVENT.decode(data)
        if event.type == "response.output_text.delta":
            text.append(event.delta)
        elif event.type == "response.completed" and event.response is not None:
            return event.response.id, "".join(text)
    raise Failed(f"the response did not complete: {b' '.join(events[-2:]).decode(errors='replace')[:500]}")


def read_chunks(events: Sequence[bytes]) -> tuple[str, str]:
    """Reads the JSON of a chat completion's chunks; returns no id, and its text."""
    chunks = [_CHUNK.decode(data) for data in events]
    return "", "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


class Sse:
    """HTTP, one connection that is kept."""

    def __init__(self, url: str, *, key: str = "", model: str = MODEL) -> None:
        """Takes a gateway's base URL, without a path, what it is to be shown, and its name for the model."""
        self._url = f"{url}/v1/responses"
        self._headers = _HEADERS | ({"Authorization": f"Bearer {key}"} if key else {})
        self._model = model
        self._first, self._end, self._read = _DELTA, _COMPLETED, read_events
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Makes room for the connection; see `Client`."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), timeout=timeout)

    def request(self, messages: Sequence[Said], previous: str = "", *, store: bool = False) -> bytes:
        """Returns a body; see `Client`."""
        return responses_body(messages, model=self._model, previous=previous, store=store)

    async def ask(self, request: bytes) -> Answer:
        """Posts a body; see `Client`."""
        assert self._http is not None
        pieces: list[bytes] = []
        before = b""
        first = end = 0.0
        began = time.perf_counter()
        async with self._http.post(self._url, data=request, headers=self._headers) as response:
            while piece := await response.content.readany():
                now = time.perf_counter()
                pieces.append(piece)
                seen = before + piece
                if not first and self._first in seen:
                    first = now
                if not end and self._end in seen:
                    end = now
                before = seen[-_OVERLAP:]
        data = b"".join(pieces)
        if response.status != 200 or not end:
            raise Failed(f"HTTP {response.status}: {data[-500:].decode(errors='replace')}")
        name, text = self._read([line[6:] for line in data.splitlines() if line.startswith(b"data: {")])
        return Answer((first or end) - began, end - began, name, text)

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        if self._http is not None:
            await self._http.close()


class DirectResponses(Sse):
    """The upstream itself, by responses: what gateways are held against that ask it so."""


class DirectChat(Sse):
    """The upstream itself, by chat completions: what gateways are held against that ask it so."""

    def __init__(self, url: str) -> None:
        """Takes the upstream's base URL, without a path."""
        super().__init__(url)
        self._url = f"{url}/v1/chat/completions"
        self._first, self._end, self._read = FIRST.encode(), b"[DONE]", read_chunks

    def request(self, messages: Sequence[Said], previous: str = "", *, store: bool = False) -> bytes:
        """Returns a body; there is nothing to go on from. See `Client`."""
        return chat_body(messages)


class Socket:
    """The public API's WebSocket mode."""

    def __init__(self, url: str, *, key: str = "", model: str = MODEL) -> None:
        """Takes a gateway's base URL, without a path, what it is to be shown, and its name for the model."""
        # Some insist on the model here, and none minds it.
        self._url = f"{url}/v1/responses?model={model}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._model = model
        self._http: aiohttp.ClientSession | None = None
        self._socket: Any = None

    async def open(self) -> None:
        """Opens the socket; see `Client`."""
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(
            self._url, compress=0, decode_text=False, max_msg_size=0, headers=self._headers
        )

    def request(self, messages: Sequence[Said], previous: str = "", *, store: bool = False) -> bytes:
        """Returns a message; see `Client`."""
        return socket_body(messages, model=self._model, previous=previous, store=store)

    async def ask(self, request: bytes) -> Answer:
        """Sends a message; see `Client`."""
        events: list[bytes] = []
        first = 0.0
        began = time.perf_counter()
        async with asyncio.timeout(PATIENCE):
            await self._socket.send_frame(request, aiohttp.WSMsgType.TEXT)
            while True:
                message = await self._socket.receive()
                now = time.perf_counter()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    raise Failed(f"the socket ended: {message.data} {message.extra}")
                data: bytes = message.data
                events.append(data)
                if _DELTA in data:
                    first = first or now
                elif _EVENT.decode(data).type in _ENDS:
                    break
        name, text = read_events(events)
        return Answer((first or now) - began, now - began, name, text)

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        if self._socket is not None:
            await self._socket.close()
        if self._http is not None:
            await self._http.close()


_ENDS: Final = frozenset(("response.completed", "response.failed", "response.incomplete", "error"))
_OPENING: Final = ConnectRequest(open=SessionOpen(session_credit_bytes=0, response_credit_bytes=0)).SerializeToString()
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


class Grpc:
    """Our own protocol: one stream, without generated stubs."""

    def __init__(self, address: str) -> None:
        """Takes HOST:PORT."""
        self._address = address
        self._channel: grpc.aio.Channel | None = None
        self._call: Any = None

    async def open(self) -> None:
        """Opens the stream and the session; see `Client`."""
        self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        channel: Any = self._channel
        make: Any = channel.stream_stream("/turnwire.v1.ResponsesService/Connect")
        self._call = make()
        async with asyncio.timeout(PATIENCE):
            await self._call.write(_OPENING)
            await self._call.read()

    def request(self, messages: Sequence[Said], previous: str = "", *, store: bool = False) -> bytes:
        """Returns a message; see `Client`."""
        create = ResponseCreate(model=MODEL, input=Input(items=InputItems(items=map(_item, messages))), store=store)
        if previous:
            create.previous_response_id = previous
        return ConnectRequest(create=create).SerializeToString()

    async def ask(self, request: bytes) -> Answer:
        """Sends a message; see `Client`."""
        text: list[str] = []
        name, first = "", 0.0
        began = time.perf_counter()
        async with asyncio.timeout(PATIENCE):
            await self._call.write(request)
            while True:
                data = await self._call.read()
                now = time.perf_counter()
                if data is grpc.aio.EOF:
                    raise Failed(f"the stream ended: {await self._call.code()} {await self._call.details()}")
                for event in ConnectResponse.FromString(data).events:
                    kind = event.WhichOneof("event")
                    if kind == "output_text_delta":
                        first = first or now
                        text.append(event.output_text_delta.delta)
                    elif kind == "created":
                        name = event.created.response.id
                    elif kind == "rejected":
                        raise Failed(f"{event.rejected.error.code}: {event.rejected.error.message}")
                    elif kind == "done":
                        if event.done.reason != DoneReason.DONE_REASON_COMPLETED:
                            raise Failed(f"{DoneReason.Name(event.done.reason)}: {event.done.error.message}")
                        return Answer((first or now) - began, now - began, name, "".join(text))

    async def close(self) -> None:
        """Disconnects; see `Client`."""
        if self._call is not None:
            self._call.cancel()
        if self._channel is not None:
            await self._channel.close()


def _item(message: Said) -> Item:
    if message.role == "user":
        return Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=message.text)))
    return Item(message=Message(role=Role.ROLE_ASSISTANT, content=MessageContent(text=message.text)))
