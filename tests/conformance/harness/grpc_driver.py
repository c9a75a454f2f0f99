"""Plays through the gRPC door of a server in this process, speaking with the generated stubs.

Above: the tests. Below: the door, the runtime and the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc

from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub

from .door_driver import AnyName, DoorDriver
from .inbox import Inbox
from .transcript import Transcript


class _Seat:
    def __init__(self, call: Any, inbox: Inbox) -> None:
        self.call = call
        self.inbox = inbox
        self.reader: asyncio.Task[None] | None = None


class GrpcDriver(DoorDriver):
    """Real streams to a real server."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._server = GrpcServer(self.services, AnyName(), room=self.room)
        self._channel: grpc.aio.Channel | None = None
        self._seats: dict[str, _Seat] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Serves for the length of the block."""
        port = self._server.listen("127.0.0.1:0")
        await self._server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as self._channel:
            try:
                yield self
            finally:
                for seat in self._seats.values():
                    seat.call.cancel()
                    if seat.reader is not None:
                        await asyncio.gather(seat.reader, return_exceptions=True)
                await self.until(lambda: not self.services.sessions, "every session was let go")
                await self._server.stop(0)

    async def open(self, name: str, principal: str) -> Inbox:
        """Opens a session under a name of the transcript."""
        assert self._channel is not None
        stub = ResponsesServiceStub(self._channel)
        before = set(self.services.sessions)
        call = stub.Connect(metadata=(("authorization", f"Bearer {principal}"),))
        inbox = Inbox(self.bell)
        seat = self._seats[name] = _Seat(call, inbox)
        seat.reader = asyncio.create_task(self._read(seat))
        await self.take_new(name, before)
        return inbox

    async def _read(self, seat: _Seat) -> None:
        try:
            async for batch in seat.call:
                seat.inbox.take(batch)
            seat.inbox.end("OK")
        except grpc.aio.AioRpcError as error:
            seat.inbox.end(error.code().name)
        except asyncio.CancelledError:
            seat.inbox.end("CANCELLED")
            raise
        except AssertionError as problem:
            seat.inbox.end(f"a rule was broken: {problem}")

    async def say(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event."""
        await self._seats[name].call.write(request)

    async def half_close(self, name: str) -> None:
        """Ends the client's half of the stream."""
        await self._seats[name].call.done_writing()

    async def vanish(self, name: str) -> None:
        """Cancels the call."""
        self._seats[name].call.cancel()

    def quiet(self) -> bool:
        """Tells whether everything sent has arrived."""
        received = sum(seat.inbox.received for seat in self._seats.values())
        waiting = any(
            self.sessions[name].sendable
            for name, seat in self._seats.items()
            if name in self.sessions and not seat.inbox.status
        )
        lost = any(seat.inbox.status == "CANCELLED" for seat in self._seats.values())
        return lost or (not waiting and received == self.counter.events)
