"""What a connection needs of the language that is spoken on it, and how connections end.

Above it: `connection`. Beside it: `official` and `native`, which are such languages. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import Remedy, lookup
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.session_pb2 import SessionOpen

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
UNSUPPORTED_DATA: Final = 1003
TOO_BIG: Final = 1009

_BY_REMEDY: Final = {
    Remedy.FIX: 1007,
    Remedy.STOP: 1008,
    Remedy.RETRY: 1011,
    Remedy.RESEND: 1012,
    Remedy.RECONNECT: 1012,
}
"""Close codes of sessions that ended with an error. Clients open another connection after 1001, 1011 and 1012, and give
up after the others."""
_BY_REASON: Final = {"": NORMAL, "idle": GOING_AWAY, "max_age": GOING_AWAY}
"""Close codes of sessions that ended in order, by what `go_away` said; others are a restart."""
_RESTART: Final = 1012
_MAX_REASON: Final = 123
"""Bytes of text that fit into a close frame."""


class Closing(NamedTuple):
    """What a close frame says."""

    code: int
    reason: str


class Answered(Exception):
    """A message was refused and answered; the socket goes on."""

    def __init__(self, frame: bytes) -> None:
        """Takes the message that answers it."""
        super().__init__(frame)
        self.frame = frame


class Dialect(Protocol):
    """One language, for one connection. It remembers what it was asked."""

    @property
    def opcode(self) -> int:
        """The kind of its data frames, both ways; see `wire`."""
        ...

    @property
    def opening(self) -> SessionOpen | None:
        """What the session is opened with; None where the client says it itself."""
        ...

    @property
    def going(self) -> str:
        """Why the server has announced the end of the session; empty as long as it has not."""
        ...

    def read(self, data: bytes) -> ConnectRequest:
        """Parses a message of the client's; remembers nothing, and may run in a thread.

        Raises:
            Answered: It cannot be obeyed, and here is the answer.
            RequestError: It cannot be understood, and the session has to end for it.
        """
        ...

    def take(self, request: ConnectRequest) -> ConnectRequest:
        """Takes what was read, in the order of the messages; returns what the session is asked.

        Raises:
            Answered: It cannot be obeyed, and here is the answer.
        """
        ...

    def messages(self, batch: ConnectResponse) -> list[bytes]:
        """Returns what a batch of events is told as."""
        ...

    def farewell(self, error: Error | None) -> list[bytes]:
        """Returns what is said last, when a session has ended with an error or in order."""
        ...


def closing(error: Error | None, reason: str) -> Closing:
    """Returns the close frame of a session that has ended with an error, or in order after `go_away` with a reason."""
    if error is not None:
        return Closing(_BY_REMEDY[lookup(error.code).remedy], error.code[:_MAX_REASON])
    return Closing(_BY_REASON.get(reason, _RESTART), reason[:_MAX_REASON])
