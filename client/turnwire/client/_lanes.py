"""Remembers where each lane stands, and what is left when a session is lost.

Below: `_fold`. Above: `_protocol`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from turnwire.client._fold import ResponseState
from turnwire.client._request import Request
from turnwire.client.exceptions import InFlightRequest, Loss, UnacknowledgedAppend
from turnwire.v1.item_pb2 import Item
from turnwire.v1.session_pb2 import SessionGoAway

# Owners of ids are looked up when a create names one; older ones than these are the server's business.
_REMEMBERED_RESPONSES: Final = 4096


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The last response of a lane that a create may continue from."""

    response_id: str
    open_calls: tuple[Item, ...]


class LaneLog:
    """Where each lane of a session stands."""

    def __init__(self) -> None:
        """Starts with nothing."""
        self._running: dict[str, ResponseState] = {}
        self._checkpoints: dict[str, _Checkpoint] = {}
        self._owned: dict[str, None] = {}

    def announced(self, response: ResponseState) -> None:
        """Records that a response exists."""
        self._running[response.lane] = response
        self._owned[response.id] = None
        if len(self._owned) > _REMEMBERED_RESPONSES:
            del self._owned[next(iter(self._owned))]

    def progressed(self, response: ResponseState) -> None:
        """Records a pause, a confirmed append or the end of a response."""
        if response.continuable:
            self._checkpoints[response.lane] = _Checkpoint(response.id, tuple(response.unconfirmed_calls()))
        if response.ended and self._running.get(response.lane) is response:
            del self._running[response.lane]

    def owns(self, response_id: str) -> bool:
        """Whether this session made the response, as far back as is remembered."""
        return response_id in self._owned

    def last_response_id(self, lane: str) -> str | None:
        """Returns what the next create of a lane continues: the response at work there, else the last checkpoint."""
        running = self._running.get(lane)
        if running is not None:
            return running.id
        checkpoint = self._checkpoints.get(lane)
        return checkpoint.response_id if checkpoint is not None else None

    def loss(
        self,
        reason: str,
        message: str,
        *,
        responses: Iterable[ResponseState],
        requests: Iterable[Request],
        go_away: SessionGoAway | None,
    ) -> Loss:
        """Describes what is left when the session ends now."""
        open_calls = {one.response_id: one.open_calls for one in self._checkpoints.values() if one.open_calls}
        in_flight: list[InFlightRequest] = []
        for response in responses:
            in_flight.append(InFlightRequest(response.request_id, response.lane, response.id))
            if calls := tuple(response.unconfirmed_calls()):
                open_calls[response.id] = calls
        appends: list[UnacknowledgedAppend] = []
        for request in requests:
            if request.kind == "create":
                in_flight.append(InFlightRequest(request.id, request.lane, None))
            elif request.kind == "append" and request.response is not None:
                appends.append(UnacknowledgedAppend(request.response.id, request.append_index, request.items))
        return Loss(
            reason=reason,
            message=message,
            last_response_ids={lane: one.response_id for lane, one in self._checkpoints.items()},
            open_calls=open_calls,
            unacknowledged_appends=tuple(appends),
            in_flight=tuple(in_flight),
            go_away=go_away,
        )
