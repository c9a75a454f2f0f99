"""The events of a response as an application sees them.

Below: the generated messages, whose `json_type` options name the events. Above: `_fold` wraps what arrives, streams
hand it out. Pure.
"""

from __future__ import annotations

from typing import Any, Final, cast

from google.protobuf.message import Message

from turnwire.v1 import annotations_pb2
from turnwire.v1.item_pb2 import Item
from turnwire.v1.server_event_pb2 import ServerEvent


def _event_types() -> dict[str, str]:
    types: dict[str, str] = {}
    for member in ServerEvent.DESCRIPTOR.oneofs_by_name["event"].fields:
        json_type = member.GetOptions().Extensions[annotations_pb2.json_type]
        types[member.name] = json_type or "response." + member.name
    types["output_item_truncated"] = "response.output_item.truncated"
    return types


EVENT_TYPES: Final = _event_types()
"""Member of `ServerEvent.event` to the official name of the event."""


class Event:
    """One event of a response.

    The fields of the event are attributes: `event.delta`, `event.item`, `event.output_index`. They read straight from
    the message that arrived, so an event costs little until it is looked at. For checked types use
    `event.proto.output_text_delta.delta` after comparing `event.kind`.
    """

    __slots__ = ("kind", "proto")

    def __init__(self, proto: ServerEvent, kind: str) -> None:
        """Wraps a message whose `event` member is `kind`."""
        self.proto: Final = proto
        """The message as it arrived."""
        self.kind: Final = kind
        """The member of `ServerEvent.event` that is set, such as `output_text_delta`."""

    @property
    def type(self) -> str:
        """The official name, such as `response.output_text.delta`."""
        if self.kind == "opaque":
            return self.proto.opaque.type
        return EVENT_TYPES[self.kind]

    @property
    def sequence_number(self) -> int:
        """Counts the events of the response's full public stream; lower verbosity leaves holes."""
        return self.proto.sequence_number

    @property
    def payload(self) -> Message:
        """The member that is set."""
        return cast("Message", getattr(self.proto, self.kind))

    # The frequent fields as properties, which are typed and quicker than what follows.

    @property
    def delta(self) -> str:
        """What a delta adds."""
        value: str = getattr(self.proto, self.kind).delta
        return value

    @property
    def output_index(self) -> int:
        """The position in `output` that the event is about."""
        value: int = getattr(self.proto, self.kind).output_index
        return value

    @property
    def item(self) -> Item:
        """The item that was added or finished."""
        value: Item = getattr(self.proto, self.kind).item
        return value

    def __getattr__(self, name: str) -> Any:
        """Reads a field of the payload."""
        try:
            return getattr(getattr(self.proto, self.kind), name)
        except AttributeError:
            msg = f"{self.type} has no field {name!r}"
            raise AttributeError(msg) from None

    def __repr__(self) -> str:
        return f"<Event {self.type} {self.sequence_number}>"
