"""Requests and answers of HTTP as values, and what can be read from a request: query values and bodies.

Above it: `http` and its parts, and whoever carries requests to them. Below it: the JSON codec and the error table.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Raw

from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.json import decoder
from turnwire.v1.json.refusal import shown
from turnwire.v1.response_pb2 import ResponseCreate

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
MAX_BODY: Final = 32 * 1024 * 1024
"""Largest body of a request, in bytes; twice what the public API takes in one WebSocket message, since clients go on
over HTTP with what is too large there."""

_FRAME_KEYS: Final = ("type", "stream_id", "event_id")
"""Keys that only a WebSocket message has. Clients that fall back to HTTP post their message as it was."""
_EVENT_TYPE: Final = "response.create"
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}

_decode_create: Final = decoder(ResponseCreate)
_unpack_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_pack: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, whole."""

    method: str
    """In capitals."""
    path: str
    """Without query, percent-decoded."""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Every value of every name, decoded."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By lower-case name."""
    body: bytes = b""
    """After decompression."""


@dataclass(slots=True)
class HttpResponse:
    """An answer."""

    status: int
    headers: dict[str, str]
    """By lower-case name; `content-type` among them where there is a body."""
    body: bytes | AsyncGenerator[bytes, None] = b""
    """The whole body, or the pieces of a stream, each at least one whole event. Closing the generator cancels
    the response behind it; it has begun, so that closing works at once. Whoever takes the answer has to close it."""

    filler: bytes = b""
    """What may be sent between pieces of a stream that is silent, so that nobody takes it for dead."""

    @property
    def whole(self) -> bytes:
        """The whole body; empty for a stream."""
        return self.body if isinstance(self.body, bytes) else b""


def json_answer(body: bytes) -> HttpResponse:
    """Returns an answer of JSON."""
    return HttpResponse(200, {"content-type": JSON}, body)


def stream_answer(body: AsyncGenerator[bytes, None], kind: str, filler: bytes) -> HttpResponse:
    """Returns an answer that is a stream, of a content type and with what is sent while it is silent."""
    # Proxies that gather what they pass on would turn a stream into one late answer.
    headers = {"content-type": kind, "cache-control": "no-cache", "x-accel-buffering": "no"}
    return HttpResponse(200, headers, body, filler)


def context_of(request: HttpRequest) -> RequestContext:
    """Returns what the headers say about the request."""
    headers = request.headers
    return RequestContext(traceparent=headers.get("traceparent", ""), tracestate=headers.get("tracestate", ""))


def check_body(request: HttpRequest, kinds: Sequence[str], limit: int) -> None:
    """Checks that a body is of a content type and not too large.

    A body without a content type is refused too: pages of other origins can send such ones without asking.

    Raises:
        RequestError: `unsupported_content_type` or `request_too_large`.
    """
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind not in kinds:
        message = (
            f"Unsupported content type: '{shown(given)}'. This path takes '{kinds[0]}': send it in the header"
            " 'Content-Type'."
        )
        raise reject("unsupported_content_type", message, content_type=shown(given))
    if len(request.body) > limit:
        raise too_large(limit)


def too_large(limit: int) -> RequestError:
    """Builds the error for a body over the limit, in bytes."""
    message = f"The request body is larger than {limit} bytes. Send less, or continue from a previous response."
    return reject("request_too_large", message, limit=str(limit))


def read_create(request: HttpRequest, limit: int) -> ResponseCreate:
    """Reads the body of a request as that of a create.

    Raises:
        RequestError: It is none, or too large; or it holds `hold`, which needs a session.
    """
    check_body(request, (JSON,), limit)
    create = _decode_create(request.body)
    if create.extra_json:
        _drop_frame_keys(create)
    if create.hold:
        raise no_hold()
    return create


def no_hold() -> RequestError:
    """Builds the error for a held response where nothing can be appended."""
    message = "'hold' is not supported over HTTP, which has no way to append: use a WebSocket or a gRPC session."
    return reject("unsupported_parameter", message, param="hold")


def _drop_frame_keys(create: ResponseCreate) -> None:
    unknown = _unpack_object(create.extra_json)
    if not any(key in unknown for key in _FRAME_KEYS):
        return
    kind = unknown.get("type")
    if kind is not None and bytes(kind) not in (b"null", _pack(_EVENT_TYPE)):
        message = f"Invalid 'type': this path takes the body of a response, as '{_EVENT_TYPE}' or without a type."
        raise reject("invalid_value", message, param="type")
    for key in _FRAME_KEYS:
        unknown.pop(key, None)
    create.extra_json = _pack(unknown).decode() if unknown else ""


def read_flag(request: HttpRequest, name: str) -> bool | None:
    """Reads a query value that is true or false; None where it is absent.

    Raises:
        RequestError: `invalid_value`.
    """
    text = _last(request, name)
    if text is None:
        return None
    flag = _FLAGS.get(text.lower())
    if flag is None:
        message = f"Invalid value for '{name}': expected true or false, but got '{shown(text)}'."
        raise reject("invalid_value", message, param=name, value=shown(text))
    return flag


def read_integer(request: HttpRequest, name: str, low: int, high: int) -> int | None:
    """Reads a query value that is a whole number from `low` to `high`; None where it is absent.

    Raises:
        RequestError: `invalid_type` or `invalid_value`.
    """
    text = _last(request, name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        message = f"Invalid type for '{name}': expected an integer, but got '{shown(text)}' instead."
        raise reject("invalid_type", message, param=name, value=shown(text))
    # Longer ones are out of any range, and Python refuses to read very long ones.
    number = int(text) if len(digits) <= 18 else high + 1
    if not low <= number <= high:
        message = f"Invalid value for '{name}': expected an integer from {low} to {high}, but got '{shown(text)}'."
        raise reject("invalid_value", message, param=name, value=shown(text))
    return number


def read_choice(request: HttpRequest, name: str, allowed: Sequence[str]) -> str | None:
    """Reads a query value that is one of a few words; None where it is absent.

    Raises:
        RequestError: `invalid_value`.
    """
    text = _last(request, name)
    if text is not None and text not in allowed:
        supported = " and ".join(f"'{word}'" for word in allowed)
        message = f"Invalid value: '{shown(text)}'. Supported values are: {supported}."
        raise reject("invalid_value", message, param=name, value=shown(text))
    return text


def read_text(request: HttpRequest, name: str) -> str | None:
    """Reads a query value as it is; None where it is absent."""
    return _last(request, name)


def _last(request: HttpRequest, name: str) -> str | None:
    values = request.query.get(name)
    return values[-1] if values else None
