"""What the tests of the gRPC door share: a door with a core behind it, and a client that does anything it is told.

Every door checks, when its test is over, that nothing was left behind: no session, no pass in the engine, no timer, no
task, no memory of a session.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.keys import KeyRing
from turnwire.server.runtime.services import Services, Unobserved
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Channel, TextChunk
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.session import Session
from turnwire.server.testing import ManualClock, make_services
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, ToolOutput
from turnwire.v1.response_pb2 import DoneReason, Input, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse, StreamResponseRequest, StreamResponseResponse
from turnwire.v1.server_event_pb2 import ServerEvent

BOUND = 5.0
"""Seconds after which a test gives up waiting for what should come at once."""
MODEL = "stepped"
PIECE = "x" * 4096
SERVICE = "/turnwire.v1.ResponsesService/"


@dataclass
class Ended:
    """How an RPC ended, with the details of its status."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    about: dict[str, str] = field(default_factory=dict[str, str])
    retry_after: float | None = None

    @property
    def error(self) -> tuple[str, str | None]:
        """The code of the table, and the parameter."""
        return self.about.get("code", ""), self.about.get("param")


def _ended(code: grpc.StatusCode, message: str, trailers: Iterable[tuple[str, str | bytes]]) -> Ended:
    ended = Ended(code, message)
    for key, value in trailers:
        if key != "grpc-status-details-bin":
            continue
        assert isinstance(value, bytes)
        status = Status.FromString(value)
        assert (status.code, status.message) == (code.value[0], message)
        for detail in status.details:
            info, retry = ErrorInfo(), RetryInfo()
            if detail.Unpack(info):
                assert info.domain == "turnwire.v1"
                ended.reason, ended.about = info.reason, dict(info.metadata)
            elif detail.Unpack(retry):
                ended.retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return ended


class Peer:
    """The client's end of one stream."""

    def __init__(
        self, call: Any, batch: type[ConnectResponse] | type[StreamResponseResponse] = ConnectResponse
    ) -> None:
        self.call = call
        self._batch = batch
        self.waiting: deque[ServerEvent] = deque()
        self.seen: list[ServerEvent] = []
        """Every event that was taken, in order."""
        self.batches = 0
        self.last_event_id = 0

    @staticmethod
    def asking(text: str = "hello", **more: Any) -> ResponseCreate:
        """Builds a valid create."""
        fields: dict[str, Any] = {"model": MODEL, "input": Input(text=text), **more}
        return ResponseCreate(**fields)

    @staticmethod
    def output(call_id: str, text: str = "done") -> Item:
        """Builds the output of a function call."""
        return Item(function_call_output=FunctionCallOutput(call_id=call_id, output=ToolOutput(text=text)))

    async def send(self, **event: Any) -> None:
        await self.send_bytes(ConnectRequest(**event).SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        async with asyncio.timeout(BOUND):
            await self.call.write(data)

    async def next(self) -> ServerEvent:
        while not self.waiting:
            async with asyncio.timeout(BOUND):
                data: Any = await self.call.read()
            if not isinstance(data, bytes):
                msg = f"the stream ended with {await self.call.code()}: {await self.call.details()}"
                raise EOFError(msg)
            batch = self._batch.FromString(data)
            assert not isinstance(batch, ConnectResponse) or batch.first_event_id == self.last_event_id + 1
            self.last_event_id += len(batch.events)
            self.batches += 1
            self.waiting.extend(batch.events)
        event = self.waiting.popleft()
        self.seen.append(event)
        return event

    async def until(self, kind: str, response: int | None = None) -> Any:
        """Takes events until one of a kind (and of a response) comes, and returns its member."""
        while True:
            event = await self.next()
            if event.WhichOneof("event") == kind and response in (None, event.response):
                return getattr(event, kind)

    async def refusal(self, **event: Any) -> tuple[str, str | None]:
        """Sends an event that must be refused; returns the code and the parameter."""
        await self.send(**event)
        error = (await self.until("rejected")).error
        assert error.message
        return error.code, error.param if error.HasField("param") else None

    async def create(self, lane: str = "", text: str = "hello", **more: Any) -> Created:
        """Creates a response and waits until it exists."""
        await self.send(lane=lane, create=self.asking(text, **more))
        while True:
            event = await self.next()
            kind = event.WhichOneof("event")
            if kind == "created" and event.created.lane == lane:
                return Created(event.response, event.created.response.id)
            assert kind != "rejected", event.rejected.error

    async def append(self, response_id: str, *outputs: Item, **more: Any) -> None:
        await self.send(append={"response_id": response_id, "input": outputs}, **more)

    async def ended(self) -> Ended:
        """Reads to the end of the stream and tells how it ended."""
        while True:
            try:
                await self.next()
            except (EOFError, grpc.RpcError):
                break
        return await self.outcome()

    async def outcome(self) -> Ended:
        """Tells how the stream ended, without reading."""
        async with asyncio.timeout(BOUND):
            trailers: Any = await self.call.trailing_metadata()
            return _ended(await self.call.code(), await self.call.details() or "", trailers)

    async def close(self) -> None:
        """Ends the session as a client that is content does."""
        await self.send(close={})
        assert (await self.ended()).code is grpc.StatusCode.OK


@dataclass(frozen=True)
class Created:
    """A response that was announced."""

    handle: int
    id: str


class Watcher(Unobserved):
    """Hears of sessions that begin and end."""

    def __init__(self) -> None:
        self.open = 0
        self.closed = 0
        self.refused_keys = 0
        self.codes: list[str] = []
        self._changed = asyncio.Event()

    def session_opened(self, door: str) -> None:
        self.open += 1
        self._notify()

    def session_closed(self, door: str) -> None:
        self.open -= 1
        self.closed += 1
        self._notify()

    def rejected(self, code: str) -> None:
        self.codes.append(code)

    def key_refused(self, door: str) -> None:
        self.refused_keys += 1

    async def until(self, condition: Callable[[Watcher], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not condition(self):
                changed = self._changed
                await changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Sessions(dict[str, Session]):
    """Live sessions, with a weak memory of all there were."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: list[weakref.ref[Session]] = []

    def __setitem__(self, key: str, session: Session) -> None:
        self.ever.append(weakref.ref(session))
        super().__setitem__(key, session)

    def only(self) -> Session:
        (session,) = self.values()
        return session


class Door:
    """A gRPC door in this process, with an engine and a clock that the test commands."""

    def __init__(
        self,
        server: GrpcServer,
        services: Services,
        engine: StepEngine,
        clock: ManualClock,
        watcher: Watcher,
        address: str,
    ) -> None:
        self.server = server
        self.services = services
        self.engine = engine
        self.clock = clock
        self.watcher = watcher
        self.address = address
        self.channels: list[grpc.aio.Channel] = []
        self._shared: grpc.aio.Channel | None = None

    @property
    def sessions(self) -> Sessions:
        sessions = self.services.sessions
        assert isinstance(sessions, Sessions)
        return sessions

    @property
    def channel(self) -> grpc.aio.Channel:
        """A channel that the streams of a test share."""
        if self._shared is None:
            self._shared = self.new_channel()
        return self._shared

    def new_channel(
        self,
        options: Sequence[tuple[str, Any]] = (),
        credentials: grpc.ChannelCredentials | None = None,
    ) -> grpc.aio.Channel:
        """Connects anew; a pool of its own keeps gRPC from sharing the connection."""
        options = (("grpc.use_local_subchannel_pool", 1), *options)
        if credentials is None:
            channel = grpc.aio.insecure_channel(self.address, options)
        else:
            channel = grpc.aio.secure_channel(self.address, credentials, options)
        self.channels.append(channel)
        return channel

    def connect(
        self,
        *metadata: tuple[str, str | bytes],
        channel: grpc.aio.Channel | None = None,
        timeout: float | None = None,
    ) -> Peer:
        through: Any = channel or self.channel
        method = through.stream_stream(f"{SERVICE}Connect")
        return Peer(method(metadata=metadata, timeout=timeout))

    def stream(self, request: StreamResponseRequest, *, channel: grpc.aio.Channel | None = None) -> Peer:
        """Asks for one response as a stream."""
        through: Any = channel or self.channel
        method = through.unary_stream(f"{SERVICE}StreamResponse")
        return Peer(method(request.SerializeToString()), StreamResponseResponse)

    async def ask(
        self, name: str, request: Any, *metadata: tuple[str, str | bytes], channel: grpc.aio.Channel | None = None
    ) -> bytes | Ended:
        """Calls a unary method; returns the serialized answer, or how it ended."""
        through: Any = channel or self.channel
        method = through.unary_unary(f"{SERVICE}{name}")
        data = request if isinstance(request, bytes) else request.SerializeToString()
        try:
            async with asyncio.timeout(BOUND):
                answer: bytes = await method(data, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            trailers: Any = error.trailing_metadata() or ()
            return _ended(error.code(), error.details() or "", trailers)
        return answer

    @staticmethod
    def created(response_id: str, handle: int = 1) -> Created:
        """Names a response that was announced elsewhere."""
        return Created(handle, response_id)

    def say(self, response: Created, text: str) -> None:
        """Lets the model say something."""
        self.sampling(response).emit([TextChunk(Channel.TEXT, text)])

    def call(self, response: Created, call_id: str, arguments: str = "{}", name: str = "look") -> None:
        """Lets the model call a function."""
        self.sampling(response).emit([CallStart(name, call_id=call_id), CallDelta(arguments), CallEnd()])

    def finish(self, response: Created) -> None:
        """Lets the model stop."""
        self.engine.finish(response.id)

    def sampling(self, response: Created | str) -> SteppedPass:
        """Returns the newest pass of a response."""
        return self.engine.find(response if isinstance(response, str) else response.id)

    async def sampling_again(self, response: Created, passes: int) -> SteppedPass:
        """Waits until so many passes were started in all."""
        async with asyncio.timeout(BOUND):
            await self.engine.started(passes)
        return self.sampling(response)

    async def told(self, response: Created, call: Any) -> None:
        async with asyncio.timeout(BOUND):
            await self.engine.told(response.id, call)

    async def paused(self, peer: Peer, *call_ids: str, lane: str = "", **more: Any) -> Created:
        """Creates a held response and lets the model call tools, so that it waits for the client."""
        response = await peer.create(lane, hold=True, **more)
        for call_id in call_ids or ("call_1",):
            self.call(response, call_id)
        self.finish(response)
        done = await peer.until("done", response.handle)
        assert done.reason == DoneReason.DONE_REASON_TOOL_CALLS
        return response

    async def completes(self, peer: Peer, lane: str = "alive") -> Created:
        """Shows that a stream is alive: a response in another lane runs to its end."""
        response = await peer.create(lane)
        self.say(response, "alive")
        self.finish(response)
        done = await peer.until("done", response.handle)
        assert done.reason == DoneReason.DONE_REASON_COMPLETED
        return response

    async def fill(self, response: Created) -> int:
        """Lets the model talk until it was told to pause and stays paused; returns how many bytes it said."""
        sampling = self.sampling(response)
        pieces = quiet = 0
        while quiet < 25:
            if sampling.paused:
                quiet += 1
                # Socket buffers empty in their own time: only silence tells that they are full.
                await asyncio.sleep(0.002)
                continue
            quiet = 0
            self.say(response, PIECE)
            pieces += 1
            assert pieces < 4_000, "the engine is never paused"
            await asyncio.sleep(0)
        return pieces * len(PIECE)

    async def emptied(self) -> None:
        """Waits until the server has let go of every session."""
        await self.watcher.until(lambda watcher: watcher.open == 0)
        async with asyncio.timeout(BOUND):
            await self.server.room.idle()

    async def check_nothing_left(self) -> None:
        for channel in self.channels:
            await channel.close()
        await self.emptied()
        assert not self.sessions
        assert len(self.server.room) == 0
        assert all(each.ended or each.aborted for each in self.engine.passes)
        assert self.clock.pending == 0


Doors = Callable[..., Awaitable[Door]]


@asynccontextmanager
async def _serving(
    *,
    limits: SessionLimits | None,
    keys: KeyRing | None,
    options: GrpcOptions | None,
    address: str,
    credentials: grpc.ServerCredentials | None,
    engines: Sequence[Any] | None,
    services_of: Callable[[Services], None],
) -> AsyncGenerator[Door, None]:
    before = asyncio.all_tasks()
    clock, engine, watcher = ManualClock(), StepEngine(), Watcher()
    services = make_services([engine] if engines is None else engines, limits=limits, clock=clock, observer=watcher)
    sessions = Sessions()
    services.sessions = sessions
    services_of(services)

    server = GrpcServer(services, keys, options, on_refused=watcher.key_refused)
    port = server.listen(address, credentials)
    await server.start()
    at = address if address.startswith("unix:") else f"{address.rsplit(':', 1)[0]}:{port}"
    door = Door(server, services, engine, clock, watcher, at)
    try:
        yield door
        await door.check_nothing_left()
    finally:
        for channel in door.channels:
            await channel.close()
        await server.stop(0)
    await _no_tasks(before)
    # The engine of a test remembers who listened to its passes.
    door.engine.passes.clear()
    ever = sessions.ever
    del door, server, services, engine, watcher, sessions
    gc.collect()
    assert not [session for ref in ever if (session := ref()) is not None]


async def _no_tasks(before: set[asyncio.Task[Any]]) -> None:
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=BOUND)
    assert not left


@pytest.fixture
async def open_door() -> AsyncIterator[Doors]:
    """Opens doors with settings of their own, for the length of a test."""
    async with AsyncExitStack() as stack:

        async def open_one(
            *,
            limits: SessionLimits | None = None,
            keys: str | None = None,
            options: GrpcOptions | None = None,
            address: str = "127.0.0.1:0",
            credentials: grpc.ServerCredentials | None = None,
            engines: Sequence[Any] | None = None,
            services_of: Callable[[Services], None] = lambda services: None,
        ) -> Door:
            return await stack.enter_async_context(
                _serving(
                    limits=limits,
                    keys=None if keys is None else KeyRing.parse(keys),
                    options=options,
                    address=address,
                    credentials=credentials,
                    engines=engines,
                    services_of=services_of,
                )
            )

        yield open_one


@pytest.fixture
async def door(open_door: Doors) -> Door:
    return await open_door()


@pytest.fixture
def peer(door: Door) -> Peer:
    """A stream of its own through the door."""
    return door.connect()
