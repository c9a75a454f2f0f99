"""Everything the client raises.

    TurnwireError
     +-- ConnectError              no session could be opened
     +-- AuthenticationError       no API key, or a wrong one
     +-- SessionLost               the session ended; says what a caller needs to go on elsewhere
     +-- ProtocolError             the server broke a rule of the protocol
     +-- RpcFailedError            a one-shot method failed with a gRPC status and no code of the error table
     +-- ApiError                  the server said no, with a code of the error table
          +-- RequestRejectedError   a request was refused and changed nothing
          +-- ResponseFailedError    a response started, then failed

Below: the error table of `turnwire.v1.errors`. Above: every other module of the client. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import Remedy, lookup
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import Response
from turnwire.v1.session_pb2 import SessionGoAway


class TurnwireError(Exception):
    """The base of everything the client raises."""


class ConnectError(TurnwireError):
    """No session could be opened; the message says what to check."""


class AuthenticationError(TurnwireError):
    """The server wants an API key, or another one."""


class ProtocolError(TurnwireError):
    """The server broke a rule of the protocol: a bug there, or a version that does not fit."""


class RpcFailedError(TurnwireError):
    """A one-shot method failed with a gRPC status and without a code of the error table."""

    def __init__(self, status: str, details: str) -> None:
        """Takes the name of the status and its details."""
        super().__init__(f"{status}: {details}")
        self.status = status
        """Name of the gRPC status, such as `UNAVAILABLE`."""
        self.details = details
        """What the server or the transport said."""


class ApiError(TurnwireError):
    """The server said no, with a code of the error table."""

    def __init__(self, error: Error) -> None:
        """Wraps the error as it came."""
        super().__init__(f"{error.code}: {error.message}")
        self.error = error
        """The error as it came, `metadata` included."""

    @property
    def code(self) -> str:
        """The code, such as `previous_response_not_found`. Open vocabulary."""
        return self.error.code

    @property
    def message(self) -> str:
        """A sentence for people; never parse it."""
        return self.error.message

    @property
    def type(self) -> str:
        """The group of the code, such as `invalid_request_error`."""
        return self.error.type

    @property
    def param(self) -> str | None:
        """Dotted path of the parameter at fault, where one is."""
        return self.error.param if self.error.HasField("param") else None

    @property
    def retry_after(self) -> float | None:
        """Seconds after which a retry may succeed, where the server said so."""
        if not self.error.HasField("retry_after"):
            return None
        return self.error.retry_after.seconds + self.error.retry_after.nanos / 1e9

    @property
    def remedy(self) -> Remedy:
        """What to do about it: fix, retry, resend in full, reconnect or stop."""
        return lookup(self.error.code).remedy


class RequestRejectedError(ApiError):
    """A request was refused and changed nothing; the session and everything else in it go on."""

    def __init__(self, error: Error, *, request_id: str = "", response_id: str = "") -> None:
        """Wraps the error with the request it answers."""
        super().__init__(error)
        self.request_id = request_id
        """The request, empty for one-shot methods."""
        self.response_id = response_id
        """The response the request was about, where it was about one."""


class ResponseFailedError(ApiError):
    """A response started, then failed; the session goes on."""

    def __init__(self, error: Error, response: Response) -> None:
        """Wraps the error with what there is of the response."""
        super().__init__(error)
        self.response = response
        """The response up to its failure."""


@dataclass(frozen=True, slots=True)
class InFlightRequest:
    """A create that had not ended when the session was lost."""

    request_id: str
    """The id under which it was sent."""
    lane: str
    """Its lane; empty is the default lane."""
    response_id: str | None
    """The response it became; None if the server had not answered."""


@dataclass(frozen=True, slots=True)
class UnacknowledgedAppend:
    """An append that was sent and not confirmed: it may have been taken or not."""

    response_id: str
    """The response it was for."""
    append_index: int
    """Its index."""
    input: tuple[Item, ...]
    """Its items, to be sent again where the work goes on."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a caller needs to go on after a session has ended."""

    reason: str
    """`closed` (by this client), `ended` (by the server, in order), `protocol_error`, a reason of go-away, a code of
    the error table, or the name of a gRPC status."""
    message: str
    """A sentence for people."""
    last_response_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lane to the last response a create may continue from. Survives the session only where it was stored."""
    open_calls: Mapping[str, tuple[Item, ...]] = field(default_factory=dict[str, tuple[Item, ...]])
    """Response to its tool calls whose outputs had not been confirmed."""
    unacknowledged_appends: tuple[UnacknowledgedAppend, ...] = ()
    """Appends that were sent and not confirmed, in order."""
    in_flight: tuple[InFlightRequest, ...] = ()
    """Creates that had not ended, in order."""
    go_away: SessionGoAway | None = None
    """The go-away that came before, where one did."""


class SessionLost(TurnwireError):
    """The session has ended, with everything in it that was running.

    `__cause__` holds what ended it, where that was an error.
    """

    def __init__(self, loss: Loss) -> None:
        """Wraps what is known about the loss."""
        super().__init__(loss.message)
        self.loss = loss
        """All of what is known."""

    @property
    def reason(self) -> str:
        """Why; see `Loss.reason`."""
        return self.loss.reason

    @property
    def last_response_ids(self) -> Mapping[str, str]:
        """Lane to the last response a create may continue from."""
        return self.loss.last_response_ids

    @property
    def open_calls(self) -> Mapping[str, tuple[Item, ...]]:
        """Response to its tool calls whose outputs had not been confirmed."""
        return self.loss.open_calls

    @property
    def unacknowledged_appends(self) -> tuple[UnacknowledgedAppend, ...]:
        """Appends that were sent and not confirmed."""
        return self.loss.unacknowledged_appends

    @property
    def in_flight(self) -> tuple[InFlightRequest, ...]:
        """Creates that had not ended."""
        return self.loss.in_flight

    @property
    def go_away(self) -> SessionGoAway | None:
        """The go-away that came before, where one did."""
        return self.loss.go_away
