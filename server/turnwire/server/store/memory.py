"""A store in memory: bounded, gone with the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from turnwire.server.session.budget import SharedBytes, hold, release
from turnwire.server.session.state import State
from turnwire.server.session.transcript import item_id

MAX_RESPONSES: Final = 65_536
MAX_BYTES: Final = 1024 * 1024 * 1024
SEARCHED: Final = 4096
"""How many of the newest responses are looked through for items by their ids; bounds what a request can cost."""


class MemoryStore:
    """Keeps the newest responses, by number and by bytes with shared history counted once."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        """Starts empty."""
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._states: OrderedDict[tuple[str, str], State] = OrderedDict()
        self._shared = SharedBytes()

    def put(self, state: State) -> None:
        """Keeps a response, or replaces an earlier checkpoint of it."""
        key = (state.principal, state.id)
        hold(self._shared, state)
        self._drop(key)
        self._states[key] = state
        while len(self._states) > self._max_responses or (
            self._shared.total > self._max_bytes and len(self._states) > 1
        ):
            self._drop(next(iter(self._states)))

    async def get(self, principal: str, response_id: str) -> State | None:
        """Finds a response. Safe to cancel."""
        return self._states.get((principal, response_id))

    async def delete(self, principal: str, response_id: str) -> bool:
        """Forgets a response; returns whether there was one. Safe to cancel."""
        return self._drop((principal, response_id))

    def find_items(self, principal: str, ids: Collection[str]) -> dict[str, bytes]:
        """Finds items by their ids among the newest responses of a principal, serialized; safe from any thread."""
        wanted = {name: name.encode() for name in ids}
        found: dict[str, bytes] = {}
        # A copy, since the loop goes on while a thread looks.
        for state in reversed(list(self._states.values())[-SEARCHED:]):
            if state.principal != principal:
                continue
            for entry in (*state.output, *state.brought()):
                for name, raw in wanted.items():
                    # Looked for in the bytes first, which is much less than parsing each item.
                    if name not in found and raw in entry.data and item_id(entry.sent()) == name:
                        found[name] = entry.data
            if len(found) == len(wanted):
                break
        return found

    def _drop(self, key: tuple[str, str]) -> bool:
        state = self._states.pop(key, None)
        if state is None:
            return False
        release(self._shared, state)
        return True
