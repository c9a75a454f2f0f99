"""One response as it is known so far, and its public JSON in pieces that are encoded once.

Above it: `stream` and `http`. Below it: `echo` and the JSON codec.

A response is said in full three times in a stream, and most of it is what it repeats of its request: twenty kilobytes
of tools are usual. So that part is encoded once and joined with the little that changes; items are encoded when they
are finished and joined again at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from google.protobuf.message import Message
from msgspec import Raw

from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import encoder
from turnwire.v1.official.echo import echo, overlay
from turnwire.v1.response_pb2 import (
    DoneReason,
    IncompleteDetails,
    Response,
    ResponseCreate,
    ResponseError,
    ResponseStatus,
)
from turnwire.v1.server_event_pb2 import ResponseDone
from turnwire.v1.usage_pb2 import Usage

STATUS: Final[dict[DoneReason.ValueType, ResponseStatus.ValueType]] = {
    DoneReason.DONE_REASON_TOOL_CALLS: ResponseStatus.RESPONSE_STATUS_IN_PROGRESS,
    DoneReason.DONE_REASON_COMPLETED: ResponseStatus.RESPONSE_STATUS_COMPLETED,
    DoneReason.DONE_REASON_INCOMPLETE: ResponseStatus.RESPONSE_STATUS_INCOMPLETE,
    DoneReason.DONE_REASON_FAILED: ResponseStatus.RESPONSE_STATUS_FAILED,
    DoneReason.DONE_REASON_CANCELLED: ResponseStatus.RESPONSE_STATUS_CANCELLED,
}
"""What a `done` says of its response."""

_CHANGING: Final = (
    "id",
    "object",
    "created_at",
    "status",
    "completed_at",
    "error",
    "incomplete_details",
    "model",
    "output",
    "usage",
)
"""Keys that are written anew each time; the rest is the echo."""
_OPEN: Final = (ResponseStatus.RESPONSE_STATUS_QUEUED, ResponseStatus.RESPONSE_STATUS_IN_PROGRESS)

_pack: Final = msgspec.json.Encoder().encode
_unpack_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_encode_response: Final = encoder(Response, fill=True)
_encode_item: Final = encoder(Item, fill=True)
_encode_error: Final = encoder(ResponseError, fill=True)
_encode_incomplete: Final = encoder(IncompleteDetails, fill=True)
_encode_usage: Final = encoder(Usage, fill=True)
_STATUS_TEXT: Final[dict[ResponseStatus.ValueType, bytes]] = {
    number: _pack(name.removeprefix("RESPONSE_STATUS_").lower()) for name, number in ResponseStatus.items()
}


def line(data: bytes) -> bytes:
    """Returns JSON text in one line: JSON text that went through untouched may have line breaks between its tokens."""
    if b"\n" in data or b"\r" in data:
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def item_json(item: Item) -> bytes:
    """Returns an item in its public form, in one line."""
    return line(_encode_item(item))


def item_id(item: Item) -> str:
    """Returns the id of an item; empty where it has none."""
    kind = item.WhichOneof("kind")
    if kind is None:
        return ""
    if kind != "opaque":
        value: str = getattr(item, kind).id
        return value
    try:
        carried = msgspec.json.decode(item.opaque.json or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return ""
    found = carried.get("id")
    return found if isinstance(found, str) else ""


class Answer:
    """Collects what the events of one response say of it."""

    def __init__(self, create: ResponseCreate) -> None:
        """Takes the request, whose settings the response repeats."""
        self._known = echo(create, create.tools if create.HasField("tools") else None)
        self._known.status = ResponseStatus.RESPONSE_STATUS_IN_PROGRESS
        self._echo: bytes | None = None
        self._items: dict[int, Item] = {}
        self._texts: dict[int, bytes] = {}

    @property
    def id(self) -> str:
        """The id of the response; empty until it was announced."""
        return self._known.id

    @property
    def status(self) -> ResponseStatus.ValueType:
        """How far the response has come."""
        return self._known.status

    @status.setter
    def status(self, status: ResponseStatus.ValueType) -> None:
        self._known.status = status

    def announce(self, said: Response) -> None:
        """Takes the response of a `created`: compact, or with everything that it repeats of its request, which then
        stands for the request. Whatever it says of later is left out."""
        self._take(said)
        for field in ("usage", "error", "incomplete_details", "completed_at"):
            self._known.ClearField(field)
        if self._known.status not in _OPEN:
            self._known.status = ResponseStatus.RESPONSE_STATUS_IN_PROGRESS

    def add(self, index: int, item: Item) -> bytes:
        """Takes a finished item at its place in the output, and returns its public form, in one line."""
        text = item_json(item)
        self._items[index] = item
        self._texts[index] = text
        return text

    def finish(self, done: ResponseDone) -> None:
        """Takes a `done`, which may hold output, or the whole response."""
        known = self._known
        for item in done.output:
            self.add(max(self._items, default=-1) + 1, item)
        if done.HasField("response"):
            self._items.clear()
            self._texts.clear()
            for index, item in enumerate(done.response.output):
                self.add(index, item)
            self._take(done.response)
        known.status = STATUS.get(done.reason, known.status)
        if done.usage.input_tokens or done.usage.output_tokens:
            known.usage.CopyFrom(done.usage)
        else:
            # Nothing was counted, which is not the same as nothing used.
            known.ClearField("usage")
        if done.HasField("completed_at"):
            known.completed_at = done.completed_at
        if done.HasField("error"):
            known.error.CopyFrom(ResponseError(code=done.error.code, message=done.error.message))
        if done.HasField("incomplete_details"):
            known.incomplete_details.CopyFrom(done.incomplete_details)

    def fail(self, code: str, message: str) -> None:
        """Ends the response by an error that no `done` told of."""
        self._known.status = ResponseStatus.RESPONSE_STATUS_FAILED
        self._known.error.CopyFrom(ResponseError(code=code, message=message))

    def cut_short(self, reason: str) -> None:
        """Ends the response early."""
        self._known.status = ResponseStatus.RESPONSE_STATUS_INCOMPLETE
        self._known.incomplete_details.CopyFrom(IncompleteDetails(reason=reason))

    def response(self) -> Response:
        """Returns the response as it is known so far; costs its whole size."""
        response = Response()
        response.CopyFrom(self._known)
        for index in sorted(self._items):
            response.output.append(self._items[index])
        return response

    def json(self) -> bytes:
        """Returns the public form of the response as it is known so far, in one line."""
        known = self._known
        if self._echo is None:
            members = _unpack_object(_encode_response(known))
            for key in _CHANGING:
                members.pop(key, None)
            self._echo = line(_pack(members))[1:]
        output = b",".join([self._texts[index] for index in sorted(self._texts)])
        return b"".join(
            (
                b'{"id":%b,"object":"response","created_at":%d,"status":%b,"completed_at":%b'
                % (
                    _pack(known.id),
                    known.created_at,
                    _STATUS_TEXT[known.status],
                    b"%d" % known.completed_at if known.HasField("completed_at") else b"null",
                ),
                b',"error":',
                _member(known, "error", _encode_error),
                b',"incomplete_details":',
                _member(known, "incomplete_details", _encode_incomplete),
                b',"model":',
                _pack(known.model),
                b',"output":[',
                output,
                b'],"usage":',
                _member(known, "usage", _encode_usage),
                b",",
                self._echo,
            )
        )

    def _take(self, said: Response) -> None:
        """Takes what a response says, but for its output."""
        overlay(self._known, said)
        self._known.ClearField("output")
        self._echo = None


def _member(response: Response, name: str, encode: Callable[[Any], bytes]) -> bytes:
    """Returns the text of a message field, or null."""
    if not response.HasField(name):  # type: ignore[arg-type]
        return b"null"
    value: Message = getattr(response, name)
    return line(encode(value))
