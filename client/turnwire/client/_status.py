"""Turns gRPC statuses into the client's exceptions.

Below: grpc and the google.rpc details a server packs its errors into. Above: the transport and the one-shot methods.
"""

from __future__ import annotations

from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped,unused-ignore]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped,unused-ignore]
from grpc import StatusCode, aio

from turnwire.client.exceptions import (
    AuthenticationError,
    ConnectError,
    RequestRejectedError,
    RpcFailedError,
    TurnwireError,
)
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import lookup

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "turnwire.v1"

# What gRPC writes into a handshake's failure to what is wrong there.
_TLS_HINTS = {
    "CERTIFICATE_VERIFY_FAILED": "no authority that is trusted here has signed its certificate; trust the one that has "
    "by root_certificates of ChannelOptions (--ca-file of the commands)",
    "Hostname Verification": "its certificate is for another name; connect to that name, or give it as server_name of "
    "ChannelOptions",
    "WRONG_VERSION_NUMBER": "it does not speak TLS; leave out grpcs://",
}


def error_details(error: aio.AioRpcError) -> Error | None:
    """Returns the error of the table that a status carries, where it carries one."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            return _read(Status.FromString(value))
    return None


def _read(status: Status) -> Error | None:
    info, retry = ErrorInfo(), RetryInfo()
    found: Error | None = None
    for detail in status.details:
        if detail.Unpack(info) and info.domain == _DOMAIN:
            metadata = dict(info.metadata)
            code = metadata.pop("code", "") or info.reason.lower()
            kind = metadata.pop("type", "") or lookup(code).type
            param = metadata.pop("param", None)
            found = Error(code=code, type=kind, message=status.message, param=param, metadata=metadata)
    for detail in status.details:
        if found is not None and detail.Unpack(retry):
            found.retry_after.CopyFrom(retry.retry_delay)
    return found


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
            unknown = f"{cause.details}; check the address and that the server runs"
            why = next((hint for mark, hint in _TLS_HINTS.items() if mark in cause.details), unknown)
            return ConnectError(f"cannot reach {address}: {why}")
        if cause.status == "UNIMPLEMENTED":
            return ConnectError(f"the server at {address} does not speak turnwire.v1: {cause.details}")
        return ConnectError(f"{address} opened no session: {cause}")
    return cause
