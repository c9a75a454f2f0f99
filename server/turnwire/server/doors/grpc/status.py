"""Errors as gRPC statuses: the second plane, for what ends an RPC."""

from __future__ import annotations

from typing import Final, NoReturn, Protocol

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import lookup

DOMAIN: Final = "turnwire.v1"
_DETAILS_KEY: Final = "grpc-status-details-bin"


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
    info = ErrorInfo(reason=error.code.upper(), domain=DOMAIN, metadata=error.metadata)
    info.metadata["code"] = error.code
    info.metadata["type"] = error.type
    if error.HasField("param"):
        info.metadata["param"] = error.param
    details: list[AnyMessage] = []
    packed = AnyMessage()
    packed.Pack(info)
    details.append(packed)
    if error.HasField("retry_after"):
        retry = AnyMessage()
        retry.Pack(RetryInfo(retry_delay=error.retry_after))
        details.append(retry)
    code: int = status_code(error).value[0]
    return Status(code=code, message=error.message, details=details).SerializeToString()


async def abort(context: Abortable, error: Error) -> NoReturn:
    """Ends an RPC with an error."""
    await context.abort(status_code(error), error.message, ((_DETAILS_KEY, status_details(error)),))
    msg = "abort returned"
    raise AssertionError(msg)
