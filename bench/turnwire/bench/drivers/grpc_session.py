"""gRPC: all conversations on one stream, by creates or by appends.

Above it: the registry. Below it: `compact`, and grpc.aio without generated stubs, which would call the same methods.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import grpc

from turnwire.bench.drivers.compact import CompactConversation, Serialized, Session
from turnwire.bench.drivers.port import Failed, Target
from turnwire.bench.scenario.compiling import Rollout

SERVICE: Final = "/turnwire.v1.ResponsesService/"
OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


def connect(target: Target) -> grpc.aio.Channel:
    """Returns a channel of its own, with TLS where the target has it."""
    if target.ca:
        credentials = grpc.ssl_channel_credentials(Path(target.ca).read_bytes())
        return grpc.aio.secure_channel(target.grpc, credentials, options=OPTIONS)
    return grpc.aio.insecure_channel(target.grpc, options=OPTIONS)


class GrpcSession:
    """Plays conversations on one stream."""

    def __init__(self, target: Target, rollout: Rollout, *, hold: bool) -> None:
        """Takes where the server is, the rollout and the shape."""
        self._target = target
        self._hold = hold
        self._channel: grpc.aio.Channel | None = None
        self._call: Any = None
        self._writing = asyncio.Lock()
        self._session = Session(rollout, Serialized(self._write, self._read))

    async def open(self, conversations: int) -> None:
        """Opens the stream and the session; see `Driver`."""
        self._channel = connect(self._target)
        channel: Any = self._channel
        make: Any = channel.stream_stream(f"{SERVICE}Connect")
        self._call = make()
        await self._session.open()

    async def _write(self, data: bytes) -> None:
        # grpc.aio breaks the whole call where a write begins before the one before it has ended.
        async with self._writing:
            await self._call.write(data)

    async def _read(self) -> bytes:
        data = await self._call.read()
        if data is grpc.aio.EOF:
            raise Failed(f"the stream ended: {await self._call.code()} {await self._call.details()}")
        return bytes(data)

    def conversation(self, name: str) -> CompactConversation:
        """Begins a conversation; see `Driver`."""
        return self._session.conversation(name, hold=self._hold)

    async def close(self) -> None:
        """Disconnects; see `Driver`."""
        await self._session.close()
        if self._call is not None:
            self._call.cancel()
        if self._channel is not None:
            await self._channel.close()
