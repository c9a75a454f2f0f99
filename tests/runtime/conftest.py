"""A session run by hand: the engine, the tools and the clock are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from turnwire.server.engine.stepped import StepEngine
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.server.session.limits import SessionLimits
from turnwire.server.testing import ManualClock, make_services
from turnwire.server.tools.port import HostedTools
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.server_event_pb2 import ServerEvent


class Desk:
    """One runner and what its client would see."""

    def __init__(self, services: Services, engine: StepEngine, clock: ManualClock) -> None:
        self.services = services
        self.engine = engine
        self.clock = clock
        self.runner = SessionRunner(services, "", "test")
        self.events: list[ServerEvent] = []

    def send(self, event: dict[str, Any], request_id: str = "", lane: str = "") -> None:
        """Sends a client event in proto JSON."""
        request = ParseDict(event, ConnectRequest())
        request.request_id = request_id
        if lane:
            request.lane = lane
        self.runner.receive(request, request.ByteSize())

    def create(self, text: str = "hi", request_id: str = "", lane: str = "", **body: Any) -> None:
        """Sends a create."""
        self.send({"create": {"model": "stepped", "input": {"text": text}, **body}}, request_id, lane)

    async def batch(self) -> list[ServerEvent] | None:
        """Takes the next batch; None at the end of the stream."""
        async with asyncio.timeout(5):
            batch = await self.runner.next_batch()
        if batch is None:
            return None
        self.runner.sent(batch.ByteSize(), len(batch.events))
        self.events += batch.events
        return list(batch.events)

    async def until(self, kind: str) -> ServerEvent:
        """Takes batches until an event of a kind comes."""
        while True:
            events = await self.batch()
            assert events is not None, f"the stream ended before {kind}"
            for event in events:
                if event.WhichOneof("event") == kind:
                    return event

    async def idle(self) -> bool:
        """Whether nothing is to be sent."""
        waiting = asyncio.create_task(self.runner.next_batch())
        for _ in range(5):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            return True
        return False


@pytest.fixture
def make_desk() -> Callable[..., Desk]:
    def make(*, tools: HostedTools | None = None, batch_window: float = 0.0, **limits: Any) -> Desk:
        engine, clock = StepEngine(), ManualClock()
        services = make_services(
            [engine], limits=SessionLimits(**limits), tools=tools, clock=clock, batch_window=batch_window
        )
        return Desk(services, engine, clock)

    return make


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    return make_desk()
