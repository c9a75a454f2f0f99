"""What a raw session tells those who listen to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from turnwire.client.commands.rawsession import RawSession
from turnwire.client.testing import FakeServer, MemoryTransport, message
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse


class SlowWriter:
    """Writes are over only when their answer has come, as may happen where others keep the event loop busy."""

    def __init__(self, inner: MemoryTransport, answered: asyncio.Event) -> None:
        self.inner = inner
        self.answered = answered
        self.receive = inner.receive
        self.finish = inner.finish
        self.close = inner.close

    async def send(self, request: ConnectRequest) -> None:
        await self.inner.send(request)
        if request.HasField("create"):
            await self.answered.wait()


async def test_nobody_hears_of_an_answer_before_its_request(fake: FakeServer) -> None:
    fake.answer(message("Hello"))
    answered = asyncio.Event()
    heard: list[str] = []

    def sent(request: ConnectRequest) -> None:
        heard.append(f"sent {request.WhichOneof('event')}")

    def came(batch: ConnectResponse) -> None:
        heard.append("came")
        answered.set()

    async def requests() -> AsyncIterator[ConnectRequest]:
        yield ConnectRequest(request_id="r1", create=ResponseCreate(model="m"))

    session = RawSession(SlowWriter(fake.transport(), answered), "memory", on_sent=sent, on_batch=came)
    async with asyncio.timeout(5):
        await session.run(requests())
    assert heard == ["sent create", "came", "sent close"]
