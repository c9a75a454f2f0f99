"""The requests of a session: what was asked under which id, and what came of it.

Below: `_fold`. Above: `_protocol` makes requests and learns their answers, the connection waits for them. Pure.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from turnwire.client._fold import Listener, ResponseState
from turnwire.client.exceptions import RequestRejectedError
from turnwire.v1.client_event_pb2 import ConnectRequest, ResponseAppend
from turnwire.v1.error_pb2 import Error
from turnwire.v1.item_pb2 import Item
from turnwire.v1.session_pb2 import Ping

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


class RequestLog:
    """The requests of one session that are not settled, and the messages that wait to be sent."""

    def __init__(self) -> None:
        """Starts with none."""
        self.unsettled: Final[dict[str, Request]] = {}
        """Request id to request; without pings."""
        self.outgoing: Final[deque[ConnectRequest]] = deque()
        """Messages that wait to be sent."""
        self._pings: dict[int, Request] = {}
        self._touched: list[Request] = []
        self._numbers: Final = itertools.count(1)

    def __iter__(self) -> Iterator[Request]:
        """Yields everything that is not settled."""
        yield from self.unsettled.values()
        yield from self._pings.values()

    def new_id(self) -> str:
        """Returns an id that no unsettled request has, whoever chose those."""
        request_id = f"req_{next(self._numbers)}"
        return self.new_id() if request_id in self.unsettled else request_id

    # Asking.

    def submit(self, request: Request, message: ConnectRequest) -> Request:
        """Hands a request out to be sent."""
        request.message = message
        self.unsettled[request.id] = request
        self.outgoing.append(message)
        return request

    def append(self, response: ResponseState, items: Sequence[Item]) -> Request:
        """Submits an append to a held response, under the next append index."""
        request = Request(self.new_id(), "append", response.lane, response=response, items=tuple(items))
        return self._submit_append(request, response)

    def ping(self) -> Request:
        """Submits a ping, which has a number in place of an id."""
        number = next(self._numbers)
        request = self._pings[number] = Request("", "ping")
        self.outgoing.append(ConnectRequest(ping=Ping(nonce=number)))
        return request

    def _submit_append(self, request: Request, response: ResponseState) -> Request:
        request.append_index = response.next_append_index
        response.next_append_index += 1
        response.pending_appends[request.append_index] = request
        append = ResponseAppend(response_id=response.id, append_index=request.append_index, input=request.items)
        return self.submit(request, ConnectRequest(request_id=request.id, append=append))

    # Answers.

    def settle(self, request: Request) -> None:
        """Records that a request was answered."""
        request.settled = True
        request.message = None
        self.unsettled.pop(request.id, None)
        self.touch(request)

    def reject(self, request: Request, error: Error, response_id: str) -> None:
        """Records that a request was answered by no, unless it goes out once more."""
        response = request.response
        if request.kind == "append" and response is not None:
            self.no_longer_pending(request, response)
            if error.code != "append_index_gap":
                response.next_append_index = min(response.next_append_index, request.append_index)
                response.append_refused = True
            elif response.append_refused and not request.renumbered:
                # It was on its way behind one that was refused: right, but for its index.
                del self.unsettled[request.id]
                request.id, request.renumbered = self.new_id(), True
                self._submit_append(request, response)
                return
        request.rejection = RequestRejectedError(error, request_id=request.id, response_id=response_id)
        self.settle(request)

    def no_longer_pending(self, request: Request, response: ResponseState) -> None:
        """Records that an append was answered, one way or the other."""
        if response.pending_appends.get(request.append_index) is request:
            del response.pending_appends[request.append_index]

    def pong(self, number: int) -> None:
        """Records the answer to a ping."""
        ping = self._pings.pop(number, None)
        if ping is not None:
            self.settle(ping)

    def touch(self, request: Request) -> None:
        """Notes that the batch being read concerned a request."""
        if not request.touched:
            request.touched = True
            self._touched.append(request)

    def notify(self) -> None:
        """Calls the listeners of all requests that were touched."""
        touched, self._touched = self._touched, []
        for request in touched:
            request.touched = False
            if request.listener is not None:
                request.listener()
