"""gRPC: a stream for each response, all on one connection; chained through the store, since there is no session.

Above it: the registry. Below it: the messages of `compact`, and grpc.aio without generated stubs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import grpc

from turnwire.bench.drivers.compact import asked, create, take
from turnwire.bench.drivers.grpc_session import SERVICE, connect
from turnwire.bench.drivers.port import Conversation, Failed, New, Target, Turn
from turnwire.bench.scenario.compiling import Rollout
from turnwire.v1.responses_service_pb2 import StreamResponseRequest, StreamResponseResponse


class GrpcStreams:
    """Plays conversations on streams that last one response."""

    def __init__(self, target: Target, rollout: Rollout) -> None:
        """Takes where the server is, and the rollout."""
        self._target = target
        self._rollout = rollout
        self._channel: grpc.aio.Channel | None = None
        self._method: Any = None

    async def open(self, conversations: int) -> None:
        """Connects; see `Driver`."""
        self._channel = connect(self._target)
        await self._channel.channel_ready()
        channel: Any = self._channel
        self._method = channel.unary_stream(f"{SERVICE}StreamResponse")

    def conversation(self, name: str) -> Conversation:
        """Begins a conversation; see `Driver`."""
        return _Conversation(self._method, self._rollout)

    async def close(self) -> None:
        """Disconnects; see `Driver`."""
        if self._channel is not None:
            await self._channel.close()


class _Conversation:
    def __init__(self, method: Any, rollout: Rollout, previous: str = "") -> None:
        self._method = method
        self._rollout = rollout
        self._previous = previous

    async def turn(self, new: Sequence[New]) -> Turn:
        turn = Turn(counts=asked(self._rollout))
        turn.send()
        body = create(self._rollout, new, self._previous, store=True)
        call = self._method(StreamResponseRequest(create=body).SerializeToString())
        ended = False
        while (data := await call.read()) is not grpc.aio.EOF:
            now = time.perf_counter()
            for event in StreamResponseResponse.FromString(data).events:
                kind = event.WhichOneof("event") or ""
                if kind == "created":
                    self._previous = event.created.response.id
                else:
                    ended = take(turn, event, kind, now) or ended
        if not ended:
            raise Failed(f"{await call.code()}: {await call.details()}")
        return turn

    def fork(self, name: str) -> Conversation:
        return _Conversation(self._method, self._rollout, self._previous)
