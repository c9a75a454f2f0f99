"""The public API's WebSocket mode: JSON text in, events as JSON text out. Pure: what it says is returned.

Above it: `connection`. Below it: the official shapes and the messages. It gives every event of the client's an id of
its own, by which answers find their requests, and keeps one stream for each response at work.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from turnwire.server.doors.websocket import wire
from turnwire.server.doors.websocket.dialect import Answered
from turnwire.server.session.lanes import valid_name
from turnwire.server.session.limits import EVENT_RANGE, SessionLimits, seconds
from turnwire.server.session.rules import MAX_AGE, connection_limit, find_rules
from turnwire.v1.client_event_pb2 import ConnectRequest, ResponseSteer
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error
from turnwire.v1.json import decoder, encoder, to_json
from turnwire.v1.official.errors import error_frame
from turnwire.v1.official.stream import OfficialStream
from turnwire.v1.response_pb2 import ResponseCreate, Verbosity
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import RequestRejected, SessionOpen, SessionRules

_RULES: Final = find_rules(SessionRules.SESSION_RULES_WEBSOCKET)
_decode: Final = decoder(ConnectRequest)
_encode: Final = encoder(ServerEvent, fill=True)


class _Named(msgspec.Struct):
    """The one member that an answer to a message needs which cannot be read otherwise."""

    stream_id: str = ""


_decode_name: Final = msgspec.json.Decoder(_Named).decode


class _Asked:
    """A create that is not over."""

    __slots__ = ("create", "lane", "stream")

    def __init__(self, lane: str, create: ResponseCreate) -> None:
        self.lane = lane
        self.create: ResponseCreate | None = create
        """Until its response is announced."""
        self.stream: OfficialStream | None = None
        """From then on."""


class _Answering(NamedTuple):
    """A response at work, and the id of its request."""

    stream: OfficialStream
    request_id: str


class OfficialSession:
    """One connection in the public API's WebSocket mode."""

    opcode: int = wire.TEXT
    opening: SessionOpen = SessionOpen(
        verbosity=Verbosity.VERBOSITY_FULL,
        rules=SessionRules.SESSION_RULES_WEBSOCKET,
        # There is nothing in the public API to return credit with: the flow control of TCP applies.
        session_credit_bytes=0,
        response_credit_bytes=0,
        max_event_bytes=EVENT_RANGE[1],
    )

    def __init__(self) -> None:
        """Starts with nothing asked."""
        self.going = ""
        self._numbers = count(1)
        self._asked: dict[str, _Asked] = {}
        """Creates that are not over, oldest first, by the id of the request."""
        self._lanes: dict[str, dict[str, None]] = {}
        """Their ids by lane, oldest first."""
        self._at_work: dict[int, _Answering] = {}
        """By handle."""
        self._steers: dict[str, deque[ConnectRequest]] = {}
        """Steers without an answer, oldest first, by the response they name."""
        self._max_age = SessionLimits().websocket_max_age

    # From the client

    def read(self, data: bytes) -> ConnectRequest:
        """Parses a client event.

        Raises:
            Answered: It cannot be read, or names a lane that cannot be.
        """
        try:
            return _decode(data)
        except RequestError as refusal:
            raise Answered(_unreadable(data, refusal.error)) from None

    def take(self, request: ConnectRequest) -> ConnectRequest:
        """Gives a client event its id, and notes what it asks for.

        Raises:
            Answered: It is a cancel that names nothing, and nothing runs.
        """
        request.request_id = str(next(self._numbers))
        match request.WhichOneof("event"):
            case "create":
                # A held response's output has items in it that no event told of.
                request.create.echo = request.create.hold
                self._asked[request.request_id] = _Asked(request.lane, request.create)
                self._lanes.setdefault(request.lane, {})[request.request_id] = None
            case "cancel" if not request.cancel.response_id:
                self._name_target(request)
            case "steer":
                self._steers.setdefault(request.steer.previous_response_id, deque()).append(request)
            case _:
                pass
        return request

    def _name_target(self, request: ConnectRequest) -> None:
        """Names what runs in a lane for a cancel that names nothing."""
        asked = self._lanes.get(request.lane)
        if not asked:
            message = "No response is running that could be cancelled. Name one by 'response_id'."
            error = make_error("response_not_found", message, param="response_id")
            raise Answered(error_frame(error, stream_id=_echoed(request.lane)))
        request.cancel.target_request_id = next(iter(asked))

    # To the client

    def messages(self, batch: ConnectResponse) -> list[bytes]:
        """Returns the events of a batch in their official form."""
        said: list[bytes] = []
        at_work = self._at_work
        for event in batch.events:
            handle = event.response
            if handle:
                answering = at_work.get(handle) or self._announced(event)
                if answering is None:
                    continue
                stream, request_id = answering
                # Not by a comprehension: it would make a list of one for every token.
                for frame in stream.feed(event):
                    said.append(frame.data)  # noqa: PERF401
                if stream.ended:
                    del at_work[handle]
                    self._over(request_id)
            else:
                said.extend(self._of_session(event))
        return said

    def _announced(self, event: ServerEvent) -> _Answering | None:
        """Begins the stream of a response."""
        if event.WhichOneof("event") != "created":
            return None
        created = event.created
        asked = self._asked.get(created.request_id)
        if asked is None or asked.create is None:
            return None
        asked.stream = OfficialStream(asked.create, stream_id=asked.lane)
        # The request is not needed any more, and its input may be large.
        asked.create = None
        answering = self._at_work[event.response] = _Answering(asked.stream, created.request_id)
        return answering

    def _of_session(self, event: ServerEvent) -> list[bytes]:
        kind = event.WhichOneof("event")
        match kind:
            case "rejected":
                return [self._rejected(event.rejected)]
            case "steer_accepted" | "steer_pending" | "steer_failed":
                return [self._steered(kind, event)]
            case "go_away":
                self.going = event.go_away.reason
            case "opened":
                self._max_age = seconds(event.opened.limits.max_age) or self._max_age
            case _:
                # What the public API does not tell: queues, and outcomes that were told before.
                pass
        return []

    def _rejected(self, rejected: RequestRejected) -> bytes:
        self._over(rejected.request_id)
        return error_frame(rejected.error, stream_id=rejected.lane)

    def _steered(self, kind: str, event: ServerEvent) -> bytes:
        """Returns the answer to a steer, with the input that it is about."""
        about = getattr(event, kind).steer.previous_response_id
        waiting = self._steers.get(about)
        if not waiting:
            return _encode(event)
        request = waiting.popleft()
        if not waiting:
            del self._steers[about]
        whole = ServerEvent()
        whole.CopyFrom(event)
        steer: Any = getattr(whole, kind).steer
        steer.extra_json = _input_of(request.steer)
        if _echoed(request.lane):
            whole.lane = request.lane
        return _encode(whole)

    def _over(self, request_id: str) -> None:
        asked = self._asked.pop(request_id, None)
        if asked is None:
            return
        lane = self._lanes[asked.lane]
        del lane[request_id]
        if not lane:
            del self._lanes[asked.lane]

    def farewell(self, error: Error | None) -> list[bytes]:
        """Says how everything ends that has not ended, and that the connection is too old where it is.

        A session that ends in order has nothing left that runs. One that ends with an error owes each create its end,
        which `error` is as well as a terminal event of the response.
        """
        if error is None:
            return [error_frame(connection_limit(self._max_age))] if self.going == MAX_AGE else []
        said: list[bytes] = []
        for asked in self._asked.values():
            number = asked.stream.next_sequence if asked.stream else None
            said.append(error_frame(error, stream_id=_echoed(asked.lane), sequence_number=number))
        for forgotten in (self._asked, self._lanes, self._at_work):
            forgotten.clear()
        return said


def _unreadable(data: bytes, error: Error) -> bytes:
    """Returns the answer to a message that cannot be read, tagged with its lane as far as that can."""
    if error.HasField("param") and error.param == "stream_id":
        return error_frame(_RULES.invalid_lane().error)
    try:
        lane = _decode_name(data).stream_id
    except (msgspec.MsgspecError, UnicodeError):
        lane = ""
    return error_frame(error, stream_id=_echoed(lane))


def _echoed(lane: str) -> str:
    """Returns a lane's name if it can be one."""
    return lane if valid_name(lane) else ""


def _input_of(steer: ResponseSteer) -> str:
    given = to_json(steer.input).decode() if steer.HasField("input") else "null"
    return f'{{"input":{given}}}'
