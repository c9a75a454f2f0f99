"""The client's half of the protocol for one session on one stream.

Below: `_fold` keeps one response, `_request` what was asked, `_credit` counts bytes, `_lanes` remembers where each lane
stands. Above: `_connection`, which moves messages. Pure: no I/O, no asyncio, no clock.

Requests go in through `open`, `create`, `append`, `steer`, `cancel`, `ping` and `close`, and come out of
`next_request`. Batches go in through `receive`; what they settle is visible in the `Request` and `ResponseState`
objects handed out before, whose listeners are called once per batch. After `receive` and after events were taken, the
caller must drain `next_request`: credit and acknowledgements wait there.

    request    sent -> settled by `created`, `appended`, `done`, `pong` or `rejected`, or lost with the session
    response   created -> (paused -> going on)* -> ended; nothing that arrives after the end is looked at
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from turnwire.client._credit import CreditAccount
from turnwire.client._fold import DELTA_KINDS, ResponseState
from turnwire.client._lanes import LaneLog
from turnwire.client._request import Request, RequestLog
from turnwire.client.exceptions import Loss, ProtocolError, RequestRejectedError
from turnwire.client.items import user
from turnwire.v1.client_event_pb2 import (
    ConnectRequest,
    RequestContext,
    ResponseCancel,
    ResponseSteer,
)
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import make_error
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import Input, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionClose, SessionGoAway, SessionOpen, SessionOpened

logger = logging.getLogger("turnwire.client")

_SETTLING: Final = frozenset({"created", "appended", "done", "steer_accepted", "steer_pending", "steer_failed"})


class SessionProtocol:
    """The state of one session on one stream."""

    def __init__(self) -> None:
        """Starts with nothing sent and nothing received."""
        self.opened: SessionOpened | None = None
        """The server's answer to SessionOpen."""
        self.go_away: SessionGoAway | None = None
        """The server's wish that the client moves to another connection."""
        self.closing = False
        """Whether SessionClose was sent."""
        self.draining = False
        """Whether running responses may finish before the session ends."""
        self.last_event_id = 0
        """The last event received, counting all events of the session from 1."""
        self.responses: dict[int, ResponseState] = {}
        """Handle to response, for those that have not ended."""
        self.requests: Final = RequestLog()
        """What was asked and not answered yet."""
        self.lanes: Final = LaneLog()
        """Where each lane stands."""
        self.credit: Final = CreditAccount()
        """What was received and taken."""
        self._repeated: dict[str, ResponseState] = {}
        self._opening: Request | None = None
        self._highest_handle = 0
        self._touched: list[ResponseState] = []

    # Requests.

    @property
    def waiting(self) -> int:
        """Requests of the application that have not been taken out by `next_request`."""
        return len(self.requests.outgoing)

    @property
    def has_outgoing(self) -> bool:
        """Whether `next_request` has something."""
        return bool(self.requests.outgoing) or self.credit.due

    def next_request(self) -> ConnectRequest | None:
        """Takes out the next message to send; None when there is nothing."""
        message = self.credit.next_message(self.last_event_id)
        if message is None and self.requests.outgoing:
            message = self.requests.outgoing.popleft()
        return message

    def open(self, settings: SessionOpen) -> Request:
        """Opens the session; before anything else."""
        self._opening = Request(self.requests.new_id(), "open")
        return self.requests.submit(self._opening, ConnectRequest(request_id=self._opening.id, open=settings))

    def create(
        self,
        body: ResponseCreate,
        *,
        lane: str = "",
        context: RequestContext | None = None,
        request_id: str = "",
    ) -> Request:
        """Asks for a response.

        Raises:
            RequestRejectedError: The server said that it takes no new requests here, or the session is being closed.
            ValueError: A request with this id has not been answered yet.
        """
        if self.closing or self.go_away is not None:
            raise RequestRejectedError(self._closing_error())
        if request_id in self.requests.unsettled:
            msg = f"request {request_id!r} has not been answered yet; wait for it or choose another id"
            raise ValueError(msg)
        request = Request(request_id or self.requests.new_id(), "create", lane)
        message = ConnectRequest(request_id=request.id, lane=lane or None, context=context, create=body)
        return self.requests.submit(request, message)

    def append(self, response: ResponseState, items: Sequence[Item]) -> Request:
        """Delivers outputs to a held response, under the next append index."""
        return self.requests.append(response, items)

    def steer(self, response: ResponseState, what: Input) -> Request:
        """Adds user input to a held response."""
        request = Request(self.requests.new_id(), "steer", response.lane, response=response)
        request.items = tuple(what.items.items) or (user(what.text),)
        steer = ResponseSteer(previous_response_id=response.id, input=what)
        return self.requests.submit(request, ConnectRequest(request_id=request.id, steer=steer))

    def cancel(self, response: ResponseState) -> Request:
        """Cancels a response; settled by its end."""
        request = Request(self.requests.new_id(), "cancel", response.lane, response=response)
        if response.ended:
            request.settled = True
            return request
        cancel = ResponseCancel(response_id=response.id)
        return self.requests.submit(request, ConnectRequest(request_id=request.id, cancel=cancel))

    def abandon(self, create: Request) -> None:
        """Withdraws a create whose caller stopped waiting, whether or not the server has begun with it."""
        create.abandoned = True
        if create.response is not None:
            self.abandon_response(create.response)
        elif not create.settled:
            # Without a request id, since nobody waits for an answer.
            self.requests.outgoing.append(ConnectRequest(cancel=ResponseCancel(target_request_id=create.id)))

    def abandon_response(self, response: ResponseState) -> None:
        """Cancels a response whose events nobody will take."""
        response.abandoned = True
        response.drop()
        self.credit.taken(response)
        if not response.ended:
            self.requests.outgoing.append(ConnectRequest(cancel=ResponseCancel(response_id=response.id)))

    def ping(self) -> Request:
        """Asks for a sign of life."""
        return self.requests.ping()

    def close(self, *, drain: bool = False) -> None:
        """Ends the session on purpose; nothing can be asked afterwards."""
        if not self.closing:
            self.closing = True
            self.draining = drain
            self.requests.outgoing.append(ConnectRequest(close=SessionClose(drain=drain)))

    def flush(self) -> bool:
        """Makes credit due that has not reached its share and does not grow; returns whether some is left that does."""
        return self.credit.flush(self.responses.values())

    def _closing_error(self) -> Error:
        reason = self.go_away.reason if self.go_away is not None else "closed"
        text = f"this session takes no new requests ({reason}); open another one"
        return make_error("session_closing", text, reason=reason)

    # Arrivals.

    def receive(self, batch: ConnectResponse) -> None:
        """Takes a batch in and calls the listeners of everything it concerned.

        Raises:
            ProtocolError: The server broke a rule; the stream must be given up.
        """
        events = batch.events
        if not events:
            return
        if batch.first_event_id != self.last_event_id + 1:
            msg = f"event {self.last_event_id + 1} should follow, but {batch.first_event_id} came"
            raise ProtocolError(msg)
        self.last_event_id += len(events)
        responses = self.responses
        touched = self._touched
        try:
            for proto in events:
                kind = proto.WhichOneof("event")
                if kind is None:
                    continue
                handle = proto.response
                if not handle:
                    self._receive_session_event(proto, kind)
                    continue
                response = responses.get(handle)
                if response is None:
                    response = self._announce(handle, proto, kind)
                    if response is None:
                        continue
                elif kind == "created":
                    self._settle_from(response, proto, kind)
                    continue
                if not response.touched:
                    response.touched = True
                    touched.append(response)
                if kind in DELTA_KINDS:
                    response.fold_delta(proto, kind)
                    continue
                response.fold(proto, kind)
                if kind in _SETTLING:
                    self._settle_from(response, proto, kind)
        finally:
            self._notify()
        self.credit.received(batch.ByteSize())

    def _receive_session_event(self, proto: ServerEvent, kind: str) -> None:
        if kind == "rejected":
            self._on_rejected(proto)
        elif kind == "queued":
            request = self.requests.unsettled.get(proto.queued.request_id)
            if request is not None:
                request.queue_position = proto.queued.position
                self.requests.touch(request)
        elif kind == "pong":
            self.requests.pong(proto.pong.nonce)
        elif kind == "opened":
            self.opened = SessionOpened()
            self.opened.CopyFrom(proto.opened)
            self.credit.opened(self.opened)
            if self._opening is not None:
                self.requests.settle(self._opening)
                self._opening = None
        elif kind == "go_away":
            self.go_away = SessionGoAway()
            self.go_away.CopyFrom(proto.go_away)
        elif kind == "created":
            self._on_repeated_create(proto)
        elif kind == "done":
            self._on_repeated_done(proto)
        elif kind == "appended":
            self._confirm(proto, self.requests.unsettled.get(proto.appended.request_id))
        elif kind.startswith("steer_"):
            self._on_steer(proto, kind)

    def _announce(self, handle: int, proto: ServerEvent, kind: str) -> ResponseState | None:
        """Meets a handle that is not at work: a new response, or an ended one about which something is repeated."""
        if kind != "created":
            if handle > self._highest_handle:
                msg = f"{kind} came for response {handle}, which was never announced"
                raise ProtocolError(msg)
            return None
        self._highest_handle = max(self._highest_handle, handle)
        request = self.requests.unsettled.get(proto.created.request_id)
        body = request.message.create if request is not None and request.message is not None else None
        response = ResponseState(proto.created, handle, body)
        self.responses[handle] = response
        self.lanes.announced(response)
        return response

    def _settle_from(self, response: ResponseState, proto: ServerEvent, kind: str) -> None:
        if kind == "created":
            request = self.requests.unsettled.get(proto.created.request_id)
            if request is not None:
                request.response = response
                self.requests.settle(request)
                if request.abandoned:
                    self.abandon_response(response)
        elif kind == "appended":
            request = self.requests.unsettled.get(proto.appended.request_id)
            self._confirm(proto, request or response.pending_appends.get(proto.appended.append_index))
        elif kind == "done":
            self.lanes.progressed(response)
            if response.ended:
                self._end(response)
        else:
            self._on_steer(proto, kind)

    def _confirm(self, proto: ServerEvent, request: Request | None) -> None:
        """Settles an append or a steer that was taken."""
        if request is None or request.response is None:
            return
        response = request.response
        self.requests.no_longer_pending(request, response)
        request.append_index = proto.appended.append_index
        response.append_confirmed(request.items)
        self.requests.settle(request)
        self.lanes.progressed(response)

    def _on_repeated_create(self, proto: ServerEvent) -> None:
        """Meets the outcome of a create that was sent twice under one id."""
        request = self.requests.unsettled.get(proto.created.request_id)
        if request is None:
            return
        response_id = proto.created.response.id
        response = next((one for one in self.responses.values() if one.id == response_id), None)
        if response is None:
            response = self._repeated[response_id] = ResponseState(proto.created, 0)
            response.fold(proto, "created")
        request.response = response
        self.requests.settle(request)

    def _on_repeated_done(self, proto: ServerEvent) -> None:
        """Meets the end of a response once more: for a create that was sent twice, or a cancel that came late."""
        response = self._repeated.pop(proto.done.response_id, None)
        if response is not None:
            response.fold(proto, "done")
            self._touched.append(response)
        request = self.requests.unsettled.get(proto.done.request_id)
        if request is not None:
            self.requests.settle(request)

    def _end(self, response: ResponseState) -> None:
        del self.responses[response.handle]
        self.credit.forget(response)
        for request in list(self.requests):
            if request.response is response and request.kind == "cancel":
                self.requests.settle(request)

    def _on_rejected(self, proto: ServerEvent) -> None:
        rejected = proto.rejected
        request = self.requests.unsettled.get(rejected.request_id)
        error = Error()
        error.CopyFrom(rejected.error)
        if request is None:
            logger.debug("the server refused something nobody waits for: %s: %s", error.code, error.message)
            return
        self.requests.reject(request, error, rejected.response_id)

    def _on_steer(self, proto: ServerEvent, kind: str) -> None:
        answer = proto.steer_failed if kind == "steer_failed" else getattr(proto, kind)
        response_id: str = answer.steer.previous_response_id
        for request in self.requests:
            if request.kind == "steer" and request.response and request.response.id == response_id:
                if kind == "steer_failed":
                    error = Error()
                    error.CopyFrom(proto.steer_failed.error)
                    self.requests.reject(request, error, response_id)
                else:
                    request.response.append_confirmed(request.items)
                    self.requests.settle(request)
                return

    def _notify(self) -> None:
        touched, self._touched = self._touched, []
        for response in touched:
            response.touched = False
            response.end_batch()
            if response.abandoned:
                self.credit.taken(response)
            if response.listener is not None:
                response.listener()
        self.requests.notify()

    # The end.

    def loss(self, reason: str, message: str) -> Loss:
        """Describes what is left when the session ends now."""
        return self.lanes.loss(
            reason,
            message,
            responses=self.responses.values(),
            requests=self.requests,
            go_away=self.go_away,
        )

    def wake_all(self) -> None:
        """Calls the listeners of everything that has not ended; for when the session has."""
        for one in [*self.requests, *self.responses.values(), *self._repeated.values()]:
            if one.listener is not None:
                one.listener()
