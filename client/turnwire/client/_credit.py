"""Counts what was received and taken, and says when to tell the server.

Below: nothing. Above: `_protocol`. Pure. A message per event would cost more than the event, so credit travels when a
quarter of it has gathered. What stays below that is made due by `flush`, which the connection calls every short while,
once nothing more comes: a server that waits to send something large is silent, and never waits for ever. With many
lanes at work credit would else be most of what a client sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwire.client._fold import ResponseState
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.session_pb2 import ResponseCredit, SessionAck, SessionOpened

# Seldom enough to cost nothing, early enough that the server does not have to wait.
_SHARE: Final = 4


class CreditAccount:
    """The credit of one session."""

    def __init__(self) -> None:
        """Starts without credit: none is returned before the server has said what is in force."""
        self._session_share = 0
        self.response_share = 0
        """Bytes of a response that are worth a message; 0 means its credit is not counted."""
        self._unacknowledged = 0
        self._quiet = True
        """Whether nothing was received since the last flush."""
        self._ack_due = False
        self._due: dict[int, int] = {}

    def opened(self, opened: SessionOpened) -> None:
        """Takes the credit in force; 0 is off."""
        self._session_share = -(-opened.session_credit_bytes // _SHARE)
        self.response_share = -(-opened.response_credit_bytes // _SHARE)

    @property
    def due(self) -> bool:
        """Whether `next_message` has something."""
        return self._ack_due or bool(self._due)

    @property
    def unflushed(self) -> bool:
        """Whether something was received that has not been acknowledged."""
        return self._unacknowledged > 0

    def received(self, size: int) -> None:
        """Counts a batch."""
        if self._session_share:
            self._quiet = False
            self._unacknowledged += size
            if self._unacknowledged >= self._session_share:
                self._ack_due = True

    def taken(self, response: ResponseState) -> bool:
        """Looks at what the application has taken of a response; tells whether that is worth a message."""
        if self.response_share and response.consumed < self.response_share:
            return False
        return self._release(response)

    def flush(self, responses: Iterable[ResponseState]) -> bool:
        """Makes due what is left of the session, and of each response, of which nothing came since the last flush.

        Returns:
            Whether something is left for the next one.
        """
        left = bool(self._unacknowledged) and not self._quiet
        if self._unacknowledged and self._quiet:
            self._ack_due = True
        self._quiet = True
        for response in responses:
            if response.quiet:
                self._release(response)
            elif response.consumed:
                left = True
            response.quiet = True
        return left

    def forget(self, response: ResponseState) -> None:
        """Drops what is due to a response that has ended."""
        self._due.pop(response.handle, None)

    def next_message(self, last_event_id: int) -> ConnectRequest | None:
        """Takes out the next message; None when nothing is due."""
        if self._ack_due:
            self._ack_due = False
            self._unacknowledged = 0
            return ConnectRequest(ack=SessionAck(last_event_id=last_event_id))
        if self._due:
            handle, size = self._due.popitem()
            return ConnectRequest(credit=ResponseCredit(response=handle, bytes=size))
        return None

    def _release(self, response: ResponseState) -> bool:
        size, response.consumed = response.consumed, 0
        if not size or not self.response_share or response.ended:
            return False
        self._due[response.handle] = self._due.get(response.handle, 0) + size
        return True
