"""Turns gRPC statuses into the client's exceptions.

Below: grpc. Above: the transport and the one-shot methods.
"""

from __future__ import annotations

from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # pyright reads its stubs, mypy does not
from grpc import StatusCode, aio

from turnwire.client.exceptions import (
    AuthenticationError,
    ConnectError,
    RequestRejectedError,
    RpcFailedError,
    TurnwireError,
)
from turnwire.v1.error_pb2 import Error

_DETAILS_KEY = "grpc-status-details-bin"


def error_details(error: aio.AioRpcError) -> Error | None:
    """Returns the error of the table that a status carries, where it carries one."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            for detail in Status.FromString(value).details:
                found = Error()
                if detail.Is(Error.DESCRIPTOR) and detail.Unpack(found):
                    return found
    return None


def from_status(error: aio.AioRpcError) -> TurnwireError:
    """Returns the exception for a status that ended a call."""
    details = error.details() or ""
    if error.code() is StatusCode.UNAUTHENTICATED:
        return AuthenticationError(details or "the server wants an API key")
    found = error_details(error)
    if found is not None:
        return RequestRejectedError(found)
    return RpcFailedError(error.code().name, details)


def connect_error(address: str, cause: TurnwireError) -> TurnwireError:
    """Returns what to raise when a session could not be opened."""
    if isinstance(cause, RpcFailedError):
        if cause.status == "UNAVAILABLE":
            msg = f"cannot reach {address}: {cause.details}; check the address and that the server runs"
            return ConnectError(msg)
        if cause.status == "UNIMPLEMENTED":
            return ConnectError(f"the server at {address} does not speak turnwire.v1: {cause.details}")
        return ConnectError(f"{address} opened no session: {cause}")
    return cause
