"""The bidi stream: one reader, one writer, both moving bytes and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from turnwire.server.doors.grpc.status import abort
from turnwire.server.runtime.runner import SessionRunner
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import make_error

_log: Final = logging.getLogger(__name__)

BytesContext = grpc.aio.ServicerContext[bytes, bytes]
"""An RPC of serialized messages: the door parses and serializes itself, so that undecodable bytes get a clear status
and the size of every message is known."""


async def serve_stream(runner: SessionRunner, context: BytesContext) -> None:
    """Serves one stream to its end. Cancelled by gRPC when the client goes: the engine is freed at once."""
    reader = asyncio.create_task(_read(runner, context))
    try:
        await write_until_over(runner, context, _write(runner, context))
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def write_until_over(runner: SessionRunner, context: BytesContext, writing: Coroutine[Any, Any, None]) -> None:
    """Writes until the session is over or cut off, then ends the RPC with the session's error, if it has one.

    Raises:
        RequestError: By what writes, where it does.
    """
    # Not a task for the writing and a wait for it, which would be a kilobyte and a half of each idle session.
    until_cut = asyncio.timeout(None)
    try:
        async with until_cut:
            # A write that flow control blocks knows nothing of the session, so it would outlast it.
            runner.on_cut = partial(until_cut.reschedule, 0.0)
            await writing
    except TimeoutError:
        if not until_cut.expired():
            raise
    finally:
        runner.on_cut = None
        runner.abandon()
    if runner.close_error is not None:
        await abort(context, runner.close_error)


async def send(context: BytesContext, data: bytes) -> bool:
    """Writes a message; returns False when the client is gone."""
    try:
        await context.write(data)
    except grpc.RpcError:
        return False
    except Exception as gone:
        # A write that flow control blocked ends with a private exception of gRPC when the client goes.
        _log.debug("the client went while a write was blocked: %s", type(gone).__name__)
        return False
    return True


async def _write(runner: SessionRunner, context: BytesContext) -> None:
    while (batch := await runner.next_batch()) is not None:
        data = batch.SerializeToString()
        runner.sent(len(data), len(batch.events))
        if not await send(context, data):
            return
        # An idle session would keep them until its next batch.
        del batch, data


async def _read(runner: SessionRunner, context: BytesContext) -> None:
    while True:
        data: Any = await context.read()
        if not isinstance(data, bytes):
            # The end of the client's half, or its end altogether: gRPC tells which by cancelling the handler.
            runner.half_closed()
            return
        try:
            request = ConnectRequest.FromString(data)
        except DecodeError:
            message = "The message is not a ConnectRequest. Check the client's protos, and that strings are UTF-8."
            runner.break_off(make_error("invalid_request_error", message))
            return
        runner.receive(request, len(data))
        # An idle session would keep them until the next event, however large they are.
        del data, request
        await runner.room()
