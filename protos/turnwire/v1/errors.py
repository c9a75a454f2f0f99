"""The one table of error codes: type, HTTP status, gRPC status, and what the client should do.

Every error that turnwire sends, on any transport, is built from this table, and the client maps codes back through it.
Codes equal the public API's wherever it has one. Pure: no I/O, no gRPC import (statuses are named by their strings).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from turnwire.v1.error_pb2 import Error


class Remedy(enum.Enum):
    """What a client should do about an error."""

    FIX = "fix the request; the same one will fail again"
    RETRY = "retry the same request after a pause"
    RESEND = "send the whole conversation again, without previous_response_id"
    RECONNECT = "open another connection and go on there"
    STOP = "stop; a person has to look at it"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row of the table."""

    code: str
    """Value of `Error.code`."""
    type: str
    """Value of `Error.type`."""
    http_status: int
    """Status on HTTP, and `status` of error frames on WebSocket."""
    grpc_status: str
    """Status of one-shot RPCs, and of the stream where the error ends it."""
    remedy: Remedy
    """What the client should do."""


_INVALID: Final = "invalid_request_error"
_AUTH: Final = "authentication_error"
_LIMIT: Final = "rate_limit_error"
_SERVER: Final = "server_error"

_ROWS: Final = (
    # The request itself.
    ErrorCode("invalid_request_error", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_json", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_value", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_type", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("missing_required_parameter", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("unknown_parameter", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("unsupported_parameter", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("string_above_max_length", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("array_above_max_length", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_function_parameters", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("missing_event", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("unknown_event", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("request_too_large", _INVALID, 413, "RESOURCE_EXHAUSTED", Remedy.FIX),
    ErrorCode("unknown_url", _INVALID, 404, "NOT_FOUND", Remedy.FIX),
    ErrorCode("method_not_supported", _INVALID, 405, "UNIMPLEMENTED", Remedy.FIX),
    ErrorCode("unsupported_content_type", _INVALID, 415, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("upgrade_required", _INVALID, 426, "UNIMPLEMENTED", Remedy.FIX),
    ErrorCode("request_id_reused", _INVALID, 409, "ALREADY_EXISTS", Remedy.FIX),
    ErrorCode("model_not_found", _INVALID, 404, "NOT_FOUND", Remedy.FIX),
    ErrorCode("context_length_exceeded", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_prompt", _INVALID, 400, "INVALID_ARGUMENT", Remedy.STOP),
    ErrorCode("cyber_policy", _INVALID, 400, "INVALID_ARGUMENT", Remedy.STOP),
    ErrorCode("bio_policy", _INVALID, 400, "INVALID_ARGUMENT", Remedy.STOP),
    # Images and files.
    ErrorCode("invalid_image", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_image_format", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_base64_image", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_image_url", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("invalid_image_mode", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("image_too_large", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("image_too_small", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("image_parse_error", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("image_content_policy_violation", _INVALID, 400, "INVALID_ARGUMENT", Remedy.STOP),
    ErrorCode("image_file_too_large", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("unsupported_image_media_type", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("empty_image_file", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("failed_to_download_image", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("image_file_not_found", _INVALID, 400, "NOT_FOUND", Remedy.FIX),
    # Lanes and sessions.
    ErrorCode("invalid_stream_id", _INVALID, 400, "INVALID_ARGUMENT", Remedy.FIX),
    ErrorCode("websocket_stream_limit_reached", _INVALID, 400, "RESOURCE_EXHAUSTED", Remedy.FIX),
    ErrorCode("websocket_connection_limit_reached", _INVALID, 400, "UNAVAILABLE", Remedy.RECONNECT),
    ErrorCode("lane_limit_reached", _INVALID, 400, "RESOURCE_EXHAUSTED", Remedy.FIX),
    ErrorCode("lane_held", _INVALID, 409, "FAILED_PRECONDITION", Remedy.FIX),
    ErrorCode("session_already_open", _INVALID, 400, "FAILED_PRECONDITION", Remedy.FIX),
    ErrorCode("session_closing", _INVALID, 409, "UNAVAILABLE", Remedy.RECONNECT),
    ErrorCode("session_lost", _SERVER, 503, "UNAVAILABLE", Remedy.RECONNECT),
    # Continuation, appends, steering.
    ErrorCode("previous_response_not_found", _INVALID, 400, "NOT_FOUND", Remedy.RESEND),
    ErrorCode("response_not_found", _INVALID, 404, "NOT_FOUND", Remedy.FIX),
    ErrorCode("item_not_found", _INVALID, 404, "NOT_FOUND", Remedy.FIX),
    ErrorCode("response_not_held", _INVALID, 409, "FAILED_PRECONDITION", Remedy.FIX),
    ErrorCode("response_already_completed", _INVALID, 409, "FAILED_PRECONDITION", Remedy.FIX),
    ErrorCode("append_index_gap", _INVALID, 409, "OUT_OF_RANGE", Remedy.FIX),
    ErrorCode("append_index_conflict", _INVALID, 409, "ALREADY_EXISTS", Remedy.FIX),
    ErrorCode("steering_not_supported", _INVALID, 400, "UNIMPLEMENTED", Remedy.FIX),
    ErrorCode("not_implemented", _INVALID, 501, "UNIMPLEMENTED", Remedy.STOP),
    # Who asks, and how much.
    ErrorCode("invalid_api_key", _AUTH, 401, "UNAUTHENTICATED", Remedy.STOP),
    ErrorCode("insufficient_quota", _LIMIT, 429, "RESOURCE_EXHAUSTED", Remedy.STOP),
    ErrorCode("rate_limit_exceeded", _LIMIT, 429, "RESOURCE_EXHAUSTED", Remedy.RETRY),
    ErrorCode("too_many_requests", _LIMIT, 429, "RESOURCE_EXHAUSTED", Remedy.RETRY),
    ErrorCode("too_many_connections", _LIMIT, 429, "RESOURCE_EXHAUSTED", Remedy.RETRY),
    ErrorCode("slow_consumer", _LIMIT, 429, "RESOURCE_EXHAUSTED", Remedy.RECONNECT),
    # The server and what stands behind it.
    ErrorCode("server_error", _SERVER, 500, "INTERNAL", Remedy.RETRY),
    ErrorCode("server_is_overloaded", _SERVER, 503, "UNAVAILABLE", Remedy.RETRY),
    ErrorCode("server_shutting_down", _SERVER, 503, "UNAVAILABLE", Remedy.RECONNECT),
    ErrorCode("engine_unavailable", _SERVER, 503, "UNAVAILABLE", Remedy.RETRY),
    ErrorCode("response_timeout", _SERVER, 504, "DEADLINE_EXCEEDED", Remedy.RETRY),
    ErrorCode("first_token_timeout", _SERVER, 504, "DEADLINE_EXCEEDED", Remedy.RETRY),
    ErrorCode("hold_timeout", _INVALID, 408, "DEADLINE_EXCEEDED", Remedy.RESEND),
)

ERRORS: Final[dict[str, ErrorCode]] = {row.code: row for row in _ROWS}
"""Code to row. A code from a newer peer may be missing; use `lookup`."""


def lookup(code: str) -> ErrorCode:
    """Returns the row of a code; unknown codes read as a server error that must not be retried blindly."""
    return ERRORS.get(code) or ErrorCode(code, _SERVER, 500, "UNKNOWN", Remedy.STOP)


def make_error(
    code: str,
    message: str,
    *,
    param: str | None = None,
    retry_after: float | None = None,
    **metadata: str,
) -> Error:
    """Builds an `Error` from a code of the table.

    Args:
        code: A code of `ERRORS`.
        message: Sentence for people; its variable parts belong in `metadata` too.
        param: Dotted path of the offending parameter.
        retry_after: Seconds after which a retry may succeed.
        **metadata: Variable parts of the message.

    Raises:
        KeyError: The code is not in the table: codes are never made up on the spot.
    """
    error = Error(type=ERRORS[code].type, code=code, message=message, param=param, metadata=metadata)
    if retry_after is not None:
        seconds = int(retry_after)
        error.retry_after.CopyFrom(Duration(seconds=seconds, nanos=int((retry_after - seconds) * 1e9)))
    return error


class RequestError(Exception):
    """Carries an `Error` up to whoever has to answer with it; raised by everything that checks input."""

    def __init__(self, error: Error) -> None:
        """Wraps the error."""
        super().__init__(f"{error.code}: {error.message}")
        self.error = error


def reject(code: str, message: str, *, param: str | None = None, **metadata: str) -> RequestError:
    """Builds the exception for a refused request; see `make_error`."""
    return RequestError(make_error(code, message, param=param, retry_after=None, **metadata))
