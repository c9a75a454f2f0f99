"""The client's exceptions and gRPC's statuses as errors of the one table, which official clients understand.

Above it: the rest of `remote`. Below it: the client's exceptions.
"""

from __future__ import annotations

from typing import Final

from grpc import aio

from turnwire.client._status import connect_error, from_status
from turnwire.client.exceptions import (
    ApiError,
    AuthenticationError,
    ConnectError,
    RpcFailedError,
    SessionLost,
    TurnwireError,
)
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error

# Statuses that come without a code of the table: from gRPC itself, from proxies, from other servers.
_CODES: Final = {
    "UNAVAILABLE": "session_lost",
    "CANCELLED": "session_lost",
    "UNAUTHENTICATED": "invalid_api_key",
    "UNIMPLEMENTED": "not_implemented",
    "DEADLINE_EXCEEDED": "response_timeout",
    "RESOURCE_EXHAUSTED": "too_many_requests",
}

# How gRPC tells that a message is too large for the channel rather than the server too busy.
_TOO_LARGE: Final = "larger than max"


class UnreachableError(RequestError):
    """No session could be opened: nobody answers there, or nobody who speaks this protocol.

    Its error is a `session_lost`, which is worth another try; the message says what to check.
    """


def request_error(failure: Exception) -> RequestError:
    """Returns what to raise for an exception of the client's or a status of gRPC's."""
    if isinstance(failure, RequestError):
        return failure
    if isinstance(failure, aio.AioRpcError):
        failure = from_status(failure)
    if isinstance(failure, ConnectError):
        return UnreachableError(make_error("session_lost", _sentence(failure), retry_after=1.0))
    return RequestError(_error(failure))


def open_failure(address: str, failure: Exception) -> RequestError:
    """Returns what to raise where a session could not be opened."""
    cause = failure.__cause__ if isinstance(failure, SessionLost) else failure
    if isinstance(cause, TurnwireError):
        return request_error(connect_error(address, cause))
    return request_error(ConnectError(f"{address} opened no session: {failure}"))


def lost_error(failure: SessionLost) -> Error:
    """Returns the error for what was running when a session was lost."""
    return make_error("session_lost", _sentence(failure), retry_after=0.0, reason=failure.reason)


def ending_error(address: str, failure: Exception, *, opened: bool) -> Error:
    """Returns the error that a session ended by, which may not have been `opened` yet: the server's own where it gave
    one."""
    return request_error(failure).error if opened else open_failure(address, failure).error


def _error(failure: Exception) -> Error:
    if isinstance(failure, ApiError):
        return failure.error
    if isinstance(failure, SessionLost):
        return lost_error(failure)
    if isinstance(failure, AuthenticationError):
        return make_error("invalid_api_key", _sentence(failure))
    if isinstance(failure, RpcFailedError):
        code = _CODES.get(failure.status, "server_error")
        if code == "too_many_requests" and _TOO_LARGE in failure.details:
            code = "request_too_large"
        return make_error(code, _sentence(failure), status=failure.status)
    return make_error("server_error", _sentence(failure))


def _sentence(failure: Exception) -> str:
    text = str(failure) or type(failure).__name__
    return f"{text[0].upper()}{text[1:]}"
