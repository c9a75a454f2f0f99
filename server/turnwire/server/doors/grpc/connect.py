"""The bidi stream: one reader, one writer, both moving bytes and nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from turnwire.server.doors.grpc.status import abort
from turnwire.server.runtime.runner import SessionRunner
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import make_error

_log: Final = logging.getLogger(__name__)

BytesContext = grpc.aio.ServicerContext[bytes, bytes]
"""A stream of serialized messages: the door parses and serializes itself, so that undecodable bytes get a clear status
and the size of every message is known."""


async def serve_stream(runner: SessionRunner, context: BytesContext) -> None:
    """Serves one stream to its end. Cancelled by gRPC when the client goes: the engine is freed at once."""
    reader = asyncio.create_task(_read(runner, context))
    try:
        await _write(runner, context)
        if runner.close_error is not None:
            await abort(context, runner.close_error)
    finally:
        runner.abandon()
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def _write(runner: SessionRunner, context: BytesContext) -> None:
    while (batch := await runner.next_batch()) is not None:
        data = batch.SerializeToString()
        runner.sent(len(data), len(batch.events))
        try:
            await context.write(data)
        except grpc.RpcError:
            return
        except Exception as gone:
            # A write that flow control blocked ends with a private exception of gRPC when the client goes.
            _log.debug("the client went while a write was blocked: %s", type(gone).__name__)
            return


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
        await runner.room()
