"""Errors as gRPC statuses: the second plane, for what ends an RPC."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, NoReturn, Protocol

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import lookup

DOMAIN: Final = "turnwire.v1"
_DETAILS_KEY: Final = "grpc-status-details-bin"
# A status travels in trailers, which clients refuse above 8 KiB: together these stay below it, percent-encoded or not.
_MAX_MESSAGE: Final = 768
_MAX_VALUE: Final = 192
_MAX_WAIT: Final = 0.25
"""Seconds that an RPC waits until its status is on its way. Behind a write that flow control blocks it arrives when the
client reads again, for which nobody has to wait."""


class Abortable(Protocol):
    """The part of a servicer context that ends an RPC."""

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, str | bytes], ...] = ()
    ) -> NoReturn:
        """Ends the RPC with a status."""
        ...


def status_code(error: Error) -> grpc.StatusCode:
    """Returns the status of an error by the one table."""
    return grpc.StatusCode[lookup(error.code).grpc_status]


def status_details(error: Error) -> bytes:
    """Returns the rich status of an error, serialized: ErrorInfo, and RetryInfo where a wait is known."""
    info = ErrorInfo(reason=error.code.upper(), domain=DOMAIN)
    for key, value in error.metadata.items():
        info.metadata[key] = _clipped(value, _MAX_VALUE)
    info.metadata["code"] = error.code
    info.metadata["type"] = error.type
    if error.HasField("param"):
        info.metadata["param"] = _clipped(error.param, _MAX_VALUE)
    details: list[AnyMessage] = []
    packed = AnyMessage()
    packed.Pack(info)
    details.append(packed)
    if error.HasField("retry_after"):
        retry = AnyMessage()
        retry.Pack(RetryInfo(retry_delay=error.retry_after))
        details.append(retry)
    code: int = status_code(error).value[0]
    data: bytes = Status(code=code, message=_message(error), details=details).SerializeToString()
    return data


async def abort(context: Abortable, error: Error) -> None:
    """Ends an RPC with an error; what the handler does afterwards is of no consequence.

    Raises:
        grpc.aio.AbortError: The status is on its way.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MAX_WAIT):
            await context.abort(status_code(error), _message(error), ((_DETAILS_KEY, status_details(error)),))


def _message(error: Error) -> str:
    return _clipped(error.message, _MAX_MESSAGE)


def _clipped(text: str, limit: int) -> str:
    """Shortens what repeats a client's own words to a number of bytes."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "…"
