"""The ledger port: what the runtime asks before a response, and tells of it."""

from __future__ import annotations

from typing import Protocol

from turnwire.server.session.accounts import Spending
from turnwire.server.session.state import State


class Ledger(Protocol):
    """Records responses. Called on the event loop's thread; every call must be cheap."""

    def admit(self, principal: str) -> None:
        """Hears that a principal asks for a response.

        Raises:
            RequestError: `insufficient_quota` when a budget is used up, `server_is_overloaded` or `server_error` when
                nothing can be recorded.
        """

    def keep(self, door: str, spent: Spending, state: State | None) -> bool:
        """Records what a response cost and, where it is stored, what it stands for, before anybody hears of it.

        Returns:
            Whether the client may hear of it; else the response fails.
        """
        ...

    def save(self, state: State) -> None:
        """Records what a response stands for on its way; what cannot be recorded is alarmed about and goes on."""


class NoLedger:
    """Records nothing."""

    def admit(self, principal: str) -> None:
        """Lets everybody in."""

    def keep(self, door: str, spent: Spending, state: State | None) -> bool:
        """Lets everybody hear."""
        return True

    def save(self, state: State) -> None:
        """Ignores it."""
