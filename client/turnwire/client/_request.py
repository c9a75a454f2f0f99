"""One request of a session and what came of it.

Below: nothing. Above: `_protocol` makes and settles requests, the connection waits for them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from turnwire.client._fold import Listener, ResponseState
from turnwire.client.exceptions import RequestRejectedError
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item

RequestKind: TypeAlias = Literal["open", "create", "append", "steer", "cancel", "ping"]


@dataclass(eq=False, slots=True)
class Request:
    """A request that was handed to the protocol."""

    id: str
    """Its request id; empty for pings."""
    kind: RequestKind
    lane: str = ""
    message: ConnectRequest | None = None
    """What was sent. Dropped when settled, since a request can be large."""
    response: ResponseState | None = None
    """The response it created or is about."""
    items: tuple[Item, ...] = ()
    """For an append: its items."""
    append_index: int = 0
    """For an append: its index."""
    renumbered: bool = False
    """For an append: whether it went a second time, because one before it was refused."""
    queue_position: int | None = None
    """For a create: how many requests the server said stand before it in the lane."""
    abandoned: bool = False
    """For a create: nobody waits for it; its response is cancelled as soon as it has an id."""
    settled: bool = False
    """Whether the server has answered."""
    rejection: RequestRejectedError | None = None
    """The answer, where it was no."""
    listener: Listener | None = None
    """Called after each batch that concerned this request."""
    touched: bool = False
    """Whether the batch being read concerned it."""
