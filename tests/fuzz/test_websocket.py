"""The JSON and the protobuf entrance of the WebSocket door, fed with what nobody would write.

Whatever comes, what is sent back is well formed, the server has no fault of its own, and the socket can be used
afterwards, or was closed by a code that says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.engine.port import ModelInfo, Sink
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Channel, Finish, FinishReason, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.testing import make_services
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, Message, MessageContent, Role, ToolOutput
from turnwire.v1.json.plan import shape_of
from turnwire.v1.response_pb2 import Input, InputItems, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse

pytestmark = pytest.mark.fuzz

_BOUND = 20.0
_bounded = settings(max_examples=250, derandomize=True, deadline=None, database=None)


class _InstantPass:
    def __init__(self, prompt: Prompt, sink: Sink) -> None:
        self._sink = sink
        self._aborted = False
        self._calls = prompt.turn % 2 == 0 and bool(prompt.tools.data)
        asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        if self._aborted:
            return
        if self._calls:
            self._sink.output([CallStart("look", call_id="call_1"), CallDelta("{}"), CallEnd()])
        self._sink.output([TextChunk(Channel.TEXT, "so be it")])
        if not self._aborted:
            self._sink.ended(Finish(FinishReason.STOP))

    def pause(self) -> None:
        """It is over before anybody could ask."""

    resume = pause

    def abort(self) -> None:
        self._aborted = True


class _InstantEngine:
    """Says the same at once, whatever it is asked; calls a tool every other turn if it has any."""

    name = "instant"

    def models(self) -> Sequence[ModelInfo]:
        return (ModelInfo("m"),)

    def start(self, prompt: Prompt, sink: Sink) -> _InstantPass:
        return _InstantPass(prompt, sink)

    async def aclose(self) -> None:
        """Nothing is open."""


class _Faults(logging.Handler):
    """Notes what is logged as an error: a fault of the server's own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


class _Server:
    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.port = 0
        self.faults = _Faults()
        runner.run(self._start())

    async def _start(self) -> None:
        room = SessionRoom(make_services([_InstantEngine()]))
        app = web.Application()
        app.router.add_get("/v1/responses", WebSocketDoor(LocalBackend(room)).handle)
        self._app = web.AppRunner(app, access_log=None)
        await self._app.setup()
        await web.TCPSite(self._app, "127.0.0.1", 0).start()
        self.port = self._app.addresses[0][1]

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        self._runner.run(asyncio.wait_for(body, _BOUND))
        assert not self.faults.records, self.faults.records

    def connect(self, *subprotocols: Any) -> connect:
        url = f"ws://127.0.0.1:{self.port}/v1/responses"
        return connect(
            url,
            subprotocols=subprotocols or None,
            ping_interval=None,
            compression=None,
            max_size=None,
            proxy=None,
            close_timeout=1,
        )

    def stop(self) -> None:
        self._runner.run(self._app.cleanup())


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    with asyncio.Runner() as runner:
        serving = _Server(runner)
        logging.getLogger().addHandler(serving.faults)
        yield serving
        logging.getLogger().removeHandler(serving.faults)
        serving.stop()


# JSON

_TYPES = ["response.create", "response.append", "response.cancel", "response.steer", "response.done", "error", ""]
_KEYS = [field.key for field in shape_of(ResponseCreate.DESCRIPTOR).fields if field.key]
_OTHER_KEYS = ["stream_id", "response_id", "append_index", "type", "extra", "generate", "hold", "input"]
_ITEM_TYPES = ["message", "function_call", "function_call_output", "reasoning", "item_reference", "compaction", "web"]
_words = st.sampled_from(["", "a", "m", "auto", "none", "call_1", "look", "resp_1", "msg_1", "é\x00", "x" * 300, "{}"])
_scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | _words | st.text(max_size=5)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3), max_leaves=6
)
_items = st.fixed_dictionaries(
    {"type": st.sampled_from(_ITEM_TYPES) | _values},
    optional={
        "role": st.sampled_from(["user", "assistant", "system"]) | _values,
        "content": _words | _values,
        "call_id": _words | _values,
        "name": _words | _values,
        "arguments": _words | _values,
        "output": _words | _values,
        "id": _words | _values,
        "summary": _values,
    },
)
_tools = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom", "mcp", "web_search", "namespace", "later"]) | _values},
    optional={"name": _words | _values, "parameters": _values, "format": _values, "server_label": _words},
)
_creates = st.fixed_dictionaries(
    {
        "type": st.just("response.create"),
        "model": st.just("m") | _values,
        "input": _words | st.lists(_items, max_size=3),
    },
    optional={
        "stream_id": _words | _values,
        "previous_response_id": _words | _values,
        "tools": st.lists(_tools, max_size=2) | _values,
        "hold": st.booleans() | _values,
        "generate": st.booleans() | _values,
        "store": st.booleans(),
        "background": st.booleans() | _values,
        "stream_options": _values | st.just({"include_obfuscation": True}),
        "text": _values,
        "reasoning": _values,
        "metadata": _values,
    },
)
_events = st.dictionaries(st.sampled_from(_KEYS + _OTHER_KEYS), _values, max_size=4).flatmap(
    lambda fields: st.sampled_from(_TYPES).map(lambda kind: {**fields, "type": kind})
)


def _cut_short(event: dict[str, Any], length: int) -> str:
    return json.dumps(event)[:length]


_messages = (
    st.builds(json.dumps, _creates)
    | st.builds(json.dumps, _events)
    | st.builds(json.dumps, _values)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.builds(_cut_short, _creates, st.integers(0, 60))
)
_END = "this is the end"
_UNNUMBERED = ("response.appended", "response.steer.failed")
"""Events that answer a request and stand outside a response's order."""


def _check(event: dict[str, Any]) -> None:
    """Checks what every frame has to be, and that no fault is the server's own."""
    kind = event["type"]
    assert isinstance(kind, str)
    if kind == "error":
        assert 400 <= event["status"] < 500, event
        error = event["error"]
        assert all(isinstance(error[key], str) for key in ("type", "code", "message"))
        assert error["param"] is None or isinstance(error["param"], str)
    elif kind == "response.failed":
        assert event["response"]["error"]["code"] != "server_error", event
    if "stream_id" in event:
        assert event["stream_id"]


async def _json_conversation(server: _Server, messages: list[str]) -> None:
    async with server.connect() as socket:
        for message in messages:
            await socket.send(message)
        await socket.send(json.dumps({"type": "response.create", "model": "m", "input": _END, "stream_id": "end"}))
        numbers: dict[str | None, int] = {}
        while True:
            event = json.loads(await socket.recv())
            _check(event)
            lane = event.get("stream_id")
            if event["type"] == "response.created":
                numbers[lane] = -1
            if event["type"].startswith("response.") and event["type"] not in _UNNUMBERED:
                assert event["sequence_number"] == numbers[lane] + 1
                numbers[lane] += 1
            if lane == "end" and event["type"] == "response.completed":
                return
            assert lane != "end" or event["type"] != "error"


@given(messages=st.lists(_messages, max_size=5))
@_bounded
def test_no_json_breaks_the_door(server: _Server, messages: list[str]) -> None:
    server.run(_json_conversation(server, messages))


# Protobuf

_MESSAGE = Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text="hi")))
_OUTPUT = Item(function_call_output=FunctionCallOutput(call_id="call_1", output=ToolOutput(text="seen")))


def _request(**event: Any) -> bytes:
    return ConnectRequest(**event).SerializeToString()


_SEEDS = [
    _request(open={"features": ["append"], "response_credit_bytes": 4096}),
    _request(request_id="r", lane="a", create=ResponseCreate(model="m", input=Input(text="hi"), hold=True)),
    _request(create=ResponseCreate(model="m", input=Input(items=InputItems(items=[_MESSAGE, _OUTPUT])))),
    _request(append={"response_id": "resp_1", "input": [_OUTPUT]}),
    _request(cancel={"target_request_id": "r"}),
    _request(steer={"previous_response_id": "resp_1", "input": Input(text="faster")}),
    _request(credit={"response": 1, "bytes": 100}),
    _request(ack={"last_event_id": 3}),
    _request(ping={"nonce": 7, "describe": True}),
]


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A serialized request with some bytes changed, cut out, or put in."""
    data = bytearray(draw(st.sampled_from(_SEEDS)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        until = min(at + draw(st.integers(0, 3)), len(data))
        data[at:until] = draw(st.binary(max_size=3))
    return bytes(data)


async def _binary_conversation(server: _Server, messages: list[bytes]) -> None:
    batches: list[ConnectResponse] = []
    async with server.connect("turnwire.v1") as socket:
        try:
            for message in messages:
                await socket.send(message)
            await socket.send(_request(ping={"nonce": 4711}))
            while not any(event.pong.nonce == 4711 for batch in batches for event in batch.events):
                batches.append(await _batch(socket))
        except ConnectionClosed:
            # What was sent before the end can still be read.
            with contextlib.suppress(ConnectionClosed):
                while True:
                    batches.append(await _batch(socket))
        else:
            return
        # A mutation may have said `close`; else the last words name what was wrong.
        if (socket.close_code, socket.close_reason) != (1000, ""):
            assert (socket.close_code, socket.close_reason) == (1007, "invalid_request_error")
            assert batches[-1].events[-1].rejected.error.code == "invalid_request_error"


async def _batch(socket: ClientConnection) -> ConnectResponse:
    data = await socket.recv()
    assert isinstance(data, bytes)
    batch = ConnectResponse.FromString(data)
    for event in batch.events:
        assert event.rejected.error.code != "server_error", event
        assert event.done.error.code != "server_error", event
    return batch


@given(messages=st.lists(_mutated() | st.binary(max_size=20), max_size=5))
@_bounded
def test_no_bytes_break_the_subprotocol(server: _Server, messages: list[bytes]) -> None:
    server.run(_binary_conversation(server, messages))
