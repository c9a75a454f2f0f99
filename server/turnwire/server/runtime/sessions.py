"""The sessions of a server, whatever door they came through: their number, and an orderly end.

Above it: the doors and `local`. Below it: the runner.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from turnwire.server.runtime.background import Background
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.v1.errors import RequestError, make_error


async def forget_in_time(services: Services) -> None:
    """Forgets conversations that were known for too long, also while nobody asks for anything. Ends by being cancelled.

    They are forgotten at most a quarter of their age, and at most a minute, too late.
    """
    conversations = services.conversations
    while conversations is not None:
        await asyncio.sleep(min(60.0, conversations.limits.max_age / 4))
        conversations.expire(services.clock.now())


class SessionRoom:
    """Gives sessions while there is room for them."""

    def __init__(self, services: Services, max_sessions: int = 20_000, max_per_principal: int = 10_000) -> None:
        """Takes what sessions share, and how many there may be at the same time, in all and of one principal."""
        self.services = services
        self._max_sessions = max_sessions
        self._max_per_principal = max_per_principal
        self._runners: set[SessionRunner] = set()
        self._per_principal: Counter[str] = Counter()
        self.background = Background(self, services.clock)
        """Responses that no connection owns."""
        self.draining = False
        """Whether no new sessions are taken."""
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """Counts the sessions at this moment, one-shot ones included."""
        return len(self._runners)

    async def idle(self) -> None:
        """Waits until there is no session. Safe to cancel."""
        await self._idle.wait()

    def go_away(self, reason: str, grace: float, retry_after: float) -> None:
        """Takes no new sessions and asks the clients of the others to leave within `grace` seconds. Idempotent."""
        if self.draining:
            return
        self.draining = True
        for runner in tuple(self._runners):
            runner.go_away(reason, grace, retry_after)

    def enter(self, principal: str, door: str, *, background: bool = False, batch_window: float = 0.0) -> SessionRunner:
        """Gives a session, which has to be handed back to `leave`.

        Args:
            principal: Whose it is.
            door: The entrance, for metrics.
            background: Whether no connection owns it, so that its responses may run in the background.
            batch_window: What the door lets tokens wait, in seconds, where nobody says.

        Raises:
            RequestError: There is no room, or the server is shutting down.
        """
        if self.draining:
            message = "The server is shutting down. Connect again, to another instance."
            raise RequestError(make_error("server_shutting_down", message, retry_after=1.0))
        if len(self._runners) >= self._max_sessions or self._per_principal[principal] >= self._max_per_principal:
            message = "Too many sessions. Use lanes of the sessions you have, or close some."
            raise RequestError(make_error("too_many_connections", message, retry_after=1.0))
        runner = SessionRunner(self.services, principal, door, background=background, batch_window=batch_window)
        self._runners.add(runner)
        self._per_principal[principal] += 1
        self._idle.clear()
        return runner

    def leave(self, runner: SessionRunner) -> None:
        """Ends a session and lets go of it. Idempotent."""
        runner.abandon()
        if runner not in self._runners:
            return
        self._runners.discard(runner)
        principal = runner.session.principal
        self._per_principal[principal] -= 1
        if not self._per_principal[principal]:
            del self._per_principal[principal]
        if not self._runners:
            self._idle.set()

    @contextmanager
    def session(self, principal: str, door: str, *, batch_window: float = 0.0) -> Generator[SessionRunner, None, None]:
        """Gives a session for the length of the block; see `enter`.

        Raises:
            RequestError: There is no room, or the server is shutting down.
        """
        runner = self.enter(principal, door, batch_window=batch_window)
        try:
            yield runner
        finally:
            self.leave(runner)
