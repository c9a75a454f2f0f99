"""The store port: responses that can be found again from another session."""

from __future__ import annotations

from typing import Protocol

from turnwire.server.session.state import State


class Store(Protocol):
    """Keeps responses under their principal. What one principal stored no other can find."""

    def put(self, state: State) -> None:
        """Keeps a response, or replaces an earlier checkpoint of it. Returns at once; found by the next `get`."""

    async def get(self, principal: str, response_id: str) -> State | None:
        """Finds a response. Safe to cancel."""
        ...

    async def delete(self, principal: str, response_id: str) -> bool:
        """Forgets a response; returns whether there was one. Safe to cancel: it is then either there or not."""
        ...
