"""Errors in the official shapes: bodies of HTTP answers, and frames inside a stream or on a WebSocket.

Above it: `http` and the WebSocket doors. Below it: the error table, the JSON codec, and what `answer` says of lines.

The published description of SSE shows a flat `error` event; the live service, Open Responses and all clients that were
looked at take the nested one, so that is what is sent everywhere. On a WebSocket `status` and a string `code` are what
clients decide by: one of them ignores a frame without `status` and waits for minutes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from msgspec import Raw

from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import ERRORS, Remedy, lookup, make_error
from turnwire.v1.json import encoder
from turnwire.v1.official.answer import line

_pack: Final = msgspec.json.Encoder().encode
_encode_error: Final = encoder(Error, fill=True)
_BY_TYPE: Final = {"invalid_request_error": 400, "authentication_error": 401, "rate_limit_error": 429}
"""Statuses of codes that this version does not know: newer servers may have more of them."""
_DEFAULT_TYPE: Final = "server_error"
_RETRIED: Final = frozenset({408, 409, 429})
"""Statuses below 500 that the official SDKs send again by themselves."""


def http_status(error: Error) -> int:
    """Returns the HTTP status of an error by the one table; of an unknown code by its type, else 500."""
    row = ERRORS.get(error.code)
    return row.http_status if row else _BY_TYPE.get(error.type, 500)


def error_headers(error: Error) -> dict[str, str]:
    """Returns the headers that go with an error: how long to wait, in seconds and in milliseconds, where known."""
    if not error.HasField("retry_after"):
        return {}
    wait = error.retry_after.seconds + error.retry_after.nanos / 1e9
    return {"retry-after": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))}


def answer_headers(error: Error) -> dict[str, str]:
    """Returns the headers of an HTTP answer that is an error.

    Beside `error_headers`, `x-should-retry: false` keeps the official SDKs from sending again what they would by its
    status, where the table says that it would fail again.
    """
    headers = error_headers(error)
    status = http_status(error)
    if (status in _RETRIED or status >= 500) and lookup(error.code).remedy not in (Remedy.RETRY, Remedy.RECONNECT):
        headers["x-should-retry"] = "false"
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def error_body(error: Error) -> bytes:
    """Returns the body of an HTTP answer: `{"error": {message, type, param, code}}`."""
    return b'{"error":' + _error(error) + b"}"


def error_frame(error: Error, *, stream_id: str = "", sequence_number: int | None = None) -> bytes:
    """Returns an `error` event, one JSON object in one line.

    Args:
        error: What went wrong.
        stream_id: The lane, where the client named one and its name is good. Empty leaves it out.
        sequence_number: The event's place in the stream of a response. None leaves it out, for what concerns a request
            that became no response, or the connection.
    """
    frame: dict[str, Any] = {"type": "error", "status": http_status(error), "error": Raw(_error(error))}
    headers = error_headers(error)
    if headers:
        frame["headers"] = headers
    if sequence_number is not None:
        frame["sequence_number"] = sequence_number
    if stream_id:
        frame["stream_id"] = stream_id
    return _pack(frame)


def internal_error() -> Error:
    """Returns the error that stands for a fault of the server's own."""
    return make_error("server_error", "The server had an error while processing your request. Try again.")


def _error(error: Error) -> bytes:
    if error.code and error.type:
        data = _encode_error(error)
    else:
        # Clients decide by strings; a peer that left one out must not make them wait.
        whole = Error()
        whole.CopyFrom(error)
        whole.type = error.type or _DEFAULT_TYPE
        whole.code = error.code or whole.type
        data = _encode_error(whole)
    # Keys that this version does not know may hold JSON text with line breaks between tokens.
    return line(data)
