"""Guarded doors in this process, with an engine that the test commands, and a classifier behind HTTP that does too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from aiohttp import ClientResponse, ClientSession, web
from prometheus_client import CollectorRegistry

from turnwire.server.address import Address
from turnwire.server.config import ServerConfig
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.guarding import guarded
from turnwire.server.policy.safety.rules_file import load_safety_file
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Channel, TextChunk
from turnwire.server.testing import make_services, serving
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub
from turnwire.v1.server_event_pb2 import ServerEvent

BOUND = 5.0
"""Seconds after which a test gives up waiting for what should come at once."""


class Classifier:
    """A remote classifier whose answers wait for the test."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = self.well
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_once = 0
        self.most_at_once = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.arrived.set()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
            return await self.answer(request)
        finally:
            self.at_once -= 1

    async def well(self, request: web.Request) -> web.Response:
        """Flags nothing but texts with the word flagme."""
        results = [self.result("flagme" in text) for text in self.bodies[-1]["input"]]
        return web.json_response({"id": "modr_1", "model": "m", "results": results})

    @staticmethod
    def result(flagged: bool) -> dict[str, Any]:
        return {
            "flagged": flagged,
            "categories": {"violence": flagged, "self-harm": False, "illicit": None},
            "category_scores": {"violence": 0.9},
        }


@pytest.fixture
async def classifier() -> AsyncIterator[Classifier]:
    """Serves a classifier on loopback."""
    classifier = Classifier()
    app = web.Application()
    app.router.add_post("/v1/moderations", classifier.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    classifier.url = f"http://{host}:{port}/v1/moderations"
    yield classifier
    classifier.gate.set()
    await runner.cleanup()


@dataclass
class Peer:
    """The client's end of a gRPC stream."""

    call: Any
    seen: list[ServerEvent] = field(default_factory=list[ServerEvent])
    _waiting: list[ServerEvent] = field(default_factory=list[ServerEvent])

    async def send(self, **event: Any) -> None:
        await self.call.write(ConnectRequest(**event))

    async def until(self, kind: str) -> Any:
        while True:
            while not self._waiting:
                async with asyncio.timeout(BOUND):
                    batch = await self.call.read()
                assert batch is not grpc.aio.EOF
                self._waiting.extend(batch.events)
            event = self._waiting.pop(0)
            self.seen.append(event)
            if event.WhichOneof("event") == kind:
                return getattr(event, kind)

    @property
    def text(self) -> str:
        return "".join(event.output_text_delta.delta for event in self.seen)


class Doors:
    """A gRPC and an HTTP door over one guarded core."""

    def __init__(self, services: Services, engine: StepEngine, registry: CollectorRegistry) -> None:
        self.services = services
        self.engine = engine
        self.registry = registry
        self.stack = AsyncExitStack()
        self.grpc = ""
        self.http = ""
        self.client: ClientSession

    async def open(self) -> None:
        self.grpc = await self.stack.enter_async_context(serving(self.services))
        room = SessionRoom(self.services)
        server = HttpServer(LocalBackend(room, None), self.services.clock)
        self.stack.push_async_callback(server.stop, 0)
        self.stack.push_async_callback(room.background.aclose)
        self.http = f"http://{await server.listen(Address('127.0.0.1', 0))}"
        self.client = await self.stack.enter_async_context(ClientSession())
        self.stack.push_async_callback(self.services.guard.aclose)

    async def peer(self) -> Peer:
        channel = await self.stack.enter_async_context(grpc.aio.insecure_channel(self.grpc))
        return Peer(ResponsesServiceStub(channel).Connect())

    async def post(self, **body: Any) -> ClientResponse:
        asked = {"model": "stepped", "input": "hello", **body}
        async with asyncio.timeout(BOUND):
            return await self.client.post(f"{self.http}/v1/responses", json=asked)

    async def events(self, response: ClientResponse) -> list[dict[str, Any]]:
        """Reads a whole event stream."""
        async with asyncio.timeout(BOUND):
            text = await response.text()
        frames = [frame.split("\ndata: ", 1) for frame in text.split("\n\n")]
        return [json.loads(frame[1]) for frame in frames if len(frame) == 2]

    async def sampling(self, passes: int = 1) -> SteppedPass:
        async with asyncio.timeout(BOUND):
            return (await self.engine.started(passes))[-1]

    async def aborted(self, passes: int = 1) -> None:
        async with asyncio.timeout(BOUND):
            await self.engine.told(passes - 1, "abort")

    @staticmethod
    def say(sampling: SteppedPass, *texts: str) -> None:
        for text in texts:
            sampling.emit([TextChunk(Channel.TEXT, text)])

    @staticmethod
    def call(sampling: SteppedPass, name: str, call_id: str) -> None:
        sampling.emit([CallStart(name, call_id=call_id), CallDelta("{}"), CallEnd()])

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


OpenDoors = Callable[..., Awaitable[Doors]]


@pytest.fixture
async def open_doors() -> AsyncIterator[OpenDoors]:
    """Opens doors that are guarded by the rules of a file."""
    async with AsyncExitStack() as stack:

        async def open_some(rules: str, *disable: str, **more: Any) -> Doors:
            engine = StepEngine()
            services = make_services([engine], **more)
            registry = CollectorRegistry()
            config = ServerConfig(safety=load_safety_file(rules, {"KEY": "secret-key"}), disable=frozenset(disable))
            services.policy, services.guard = guarded(config, services.policy, registry)
            doors = Doors(services, engine, registry)
            await stack.enter_async_context(doors.stack)
            await doors.open()
            return doors

        yield open_some
