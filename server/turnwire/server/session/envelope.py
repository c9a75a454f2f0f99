"""What can be wrong with a client event before anybody asks what it wants: names, size, the event itself."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message as ProtoMessage
from google.protobuf.unknown_fields import UnknownFieldSet

from turnwire.server.session.limits import MAX_NAME
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import RequestError, reject

_NAMES: Final = {
    "create": ("previous_response_id",),
    "append": ("response_id",),
    "steer": ("previous_response_id",),
    "cancel": ("response_id", "target_request_id"),
}
"""Members by which an event names responses and requests."""


def check_names(kind: str | None, request: ConnectRequest) -> None:
    """Checks the length of the names by which an event refers to something.

    Raises:
        RequestError: `string_above_max_length`.
    """
    for param in _NAMES.get(kind or "", ()):
        length = len(getattr(getattr(request, kind or ""), param))
        if length > MAX_NAME:
            message = (
                f"Invalid '{param}': string too long. Expected a string with maximum length {MAX_NAME}, but got a"
                f" string with length {length} instead."
            )
            raise reject("string_above_max_length", message, param=param, limit=str(MAX_NAME), length=str(length))


def about(kind: str | None, request: ConnectRequest) -> str:
    """Returns the response that an event names, for the answer that refuses it."""
    match kind:
        case "append":
            return request.append.response_id
        case "cancel":
            return request.cancel.response_id
        case _:
            return ""


def _unknown_fields(message: ProtoMessage) -> list[int]:
    """Returns the numbers of the fields that this version does not know."""
    fields: Any = UnknownFieldSet(message)
    return [field.field_number for field in fields]


def no_event(request: ConnectRequest) -> RequestError:
    """Builds the error for a message without an event that this version knows."""
    unknown = _unknown_fields(request)
    if unknown:
        message = f"Unknown event (field {unknown[0]}). This server may be older than the client; see GetCapabilities."
        return reject("unknown_event", message, param="event")
    return reject("missing_event", "The message holds no event. Set one member of 'event'.", param="event")


def too_large(request: ConnectRequest, limit: int) -> RequestError:
    """Builds the error for a request over the limit, naming its largest parameter."""
    kind = request.WhichOneof("event") or "event"
    message: ProtoMessage = getattr(request, kind) if request.WhichOneof("event") else request
    largest, most = str(kind), -1
    for field, value in message.ListFields():
        probe = type(message)()
        if field.is_repeated or field.message_type is not None:
            getattr(probe, field.name).MergeFrom(value)
        else:
            setattr(probe, field.name, value)
        if probe.ByteSize() > most:
            largest, most = field.name, probe.ByteSize()
    text = f"The request is larger than {limit} bytes, mostly by '{largest}'. Send less, or in parts."
    return reject("request_too_large", text, param=largest, limit=str(limit))
