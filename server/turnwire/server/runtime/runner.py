"""Runs one session: feeds facts to the core, has its effects carried out, and hands out batches.

Everything here runs on the event loop's thread, except the preparation of large requests. A door calls `receive` for
every message and `next_batch` in a loop of its own; no other coordination is needed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final

from turnwire.server.runtime.bell import Bell
from turnwire.server.runtime.carrier import Carrier
from turnwire.server.runtime.clock import Timer
from turnwire.server.runtime.services import FEATURES, Services
from turnwire.server.session.context import SessionConfig
from turnwire.server.session.effects import Close
from turnwire.server.session.session import Session
from turnwire.server.session.visits import Visits
from turnwire.v1 import ids
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import make_error
from turnwire.v1.responses_service_pb2 import ConnectResponse

_log: Final = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 64 * 1024


class SessionRunner:
    """One session at work."""

    __slots__ = (
        "_bell",
        "_carrier",
        "_cut",
        "_ending",
        "_left",
        "_linger",
        "_over",
        "_relief",
        "_settling",
        "_timer",
        "_timer_at",
        "_window",
        "close_error",
        "door",
        "on_cut",
        "services",
        "session",
    )

    def __init__(
        self, services: Services, principal: str, door: str, *, background: bool = False, batch_window: float = 0.0
    ) -> None:
        """Starts a session for a principal, behind a door named for metrics, or in the background of all doors.

        `batch_window` (seconds) is the door's own, for where neither the client nor the operator says one.
        """
        self.services = services
        self.door = door
        clock = services.clock
        now = clock.now()
        wall = clock.wall()
        self.session = Session(
            SessionConfig(
                session_id=services.ids.new(ids.SESSION, wall),
                principal=principal,
                ids=services.ids,
                epoch=wall - now,
                limits=services.limits,
                tool_sets=services.tool_sets,
                server=services.server,
                features=FEATURES,
                batch_window=batch_window if services.batch_window is None else services.batch_window,
                moment=clock.now,
                background=background,
                keep=services.keep(door),
                seal=services.seal,
                visits=Visits(services.visits),
                conversations=services.conversations,
                budget=services.budget,
                safety=services.guard.safety,
                switches=services.switches,
            ),
            now,
        )
        self.close_error: Error | None = None
        """Why the stream has to end, once `next_batch` has returned None; None means well."""
        self.on_cut: Callable[[], object] | None = None
        """Hears that the stream has to end whether or not the client takes what is being written."""
        self._carrier = Carrier(services, self.session, self)
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._bell = Bell()
        self._relief: asyncio.Event | None = None
        """What whoever reads the client's events waits for; None while they may be read."""
        self._window: Timer | None = None
        self._left = -math.inf
        """When the last batch was taken."""
        self._linger: Timer | None = None
        self._ending = False
        """Whether the stream ends once everything was sent."""
        self._cut = False
        """Whether the stream ends without sending anything more."""
        self._over = False
        """Whether the session was let go."""
        self._settling = False
        services.sessions[self.session.id] = self.session
        services.observer.session_opened(door)
        self._set_timer()

    # Facts

    def receive(self, request: ConnectRequest, size: int) -> None:
        """Takes a client event of `size` bytes; carried out as far as it can be before this returns."""
        if self._over:
            return
        self.services.observer.received(self.door, size)
        try:
            self.session.receive(self.services.clock.now(), request, size)
            self.settle()
        except Exception:
            self.crashed()

    async def room(self) -> None:
        """Waits until the client's answers are taken; a client that floods and does not read is read no more.

        Safe to cancel.
        """
        if self._relief is not None:
            await self._relief.wait()

    def break_off(self, error: Error) -> None:
        """Ends the stream with a status, because the client broke a rule of the transport. The first reason counts."""
        if self._cut:
            return
        self.close_error = error
        self._cut = True
        self._bell.ring()
        if self.on_cut is not None:
            self.on_cut()

    def crashed(self) -> None:
        """Ends the stream because of the exception at hand: a bug, after which the session cannot be trusted.

        It goes no further, since who called (an engine, a timer) serves other sessions too.
        """
        _log.exception("a session failed")
        self.break_off(make_error("server_error", "The server failed. Open another connection."))

    def half_closed(self) -> None:
        """Hears that the client sends nothing more."""
        if self._over:
            return
        try:
            self.session.half_closed(self.services.clock.now())
            self.settle()
        except Exception:
            self.crashed()

    def go_away(self, reason: str, grace: float, retry_after: float) -> None:
        """Asks the client to go to another connection."""
        if self._over:
            return
        try:
            self.session.go_away(self.services.clock.now(), reason, grace, retry_after)
            self.settle()
        except Exception:
            self.crashed()

    def abandon(self) -> None:
        """Ends the session at once, because its client is gone or its stream is over. Idempotent."""
        if self._over:
            return
        try:
            self.session.lost(self.services.clock.now())
            self.settle()
        except Exception:
            # What follows frees everything whatever state the session is in.
            self.crashed()
        self._over = True
        for timer in (self._timer, self._window, self._linger):
            if timer is not None:
                timer.cancel()
        self._timer = self._window = self._linger = None
        self._carrier.release()
        self._bell.ring()
        self._relieve()
        self.services.sessions.pop(self.session.id, None)
        self.services.observer.session_closed(self.door)

    def settle(self) -> None:
        """Carries out effects until there are none, then lets the writer and the timer know."""
        if self._settling:
            # Reached from an effect of the loop below, which takes what this call brought.
            return
        self._settling = True
        try:
            while effects := self.session.effects():
                for effect in effects:
                    self._carrier.carry_out(effect)
        finally:
            self._settling = False
        if self._over:
            return
        # Once the writer is to wake, more tokens change nothing; with many lanes most come then.
        if not self._bell.rung and self.session.sendable:
            self._announce()
        if self.session.flooded and self._relief is None:
            self._relief = asyncio.Event()
        self._set_timer()

    def _relieve(self) -> None:
        """Lets the client's events be read."""
        if self._relief is not None:
            self._relief.set()
            self._relief = None

    def _announce(self) -> None:
        """Wakes the writer, at once or when the batch window has passed since the last batch.

        Counted from there, and not from what waits now, it delays nothing that comes more seldom than batches may.
        """
        window = self.session.batch_window
        if window <= 0 or self.session.urgent:
            self._bell.ring()
        elif self._window is None:
            now = self.services.clock.now()
            due = self._left + window
            if due <= now:
                self._bell.ring()
            else:
                self._window = self.services.clock.call_at(due, self._window_passed)

    def _window_passed(self) -> None:
        self._window = None
        if self.session.sendable:
            self._bell.ring()

    # Batches

    async def next_batch(self) -> ConnectResponse | None:
        """Waits for the next batch; None when the stream has to end, see `close_error`.

        Safe to cancel: nothing is taken from the session before it is returned.
        """
        session = self.session
        while not self._over and not self._cut:
            if self._bell.rung or self._ending:
                self._bell.hush()
                # An event is taken whatever its size.
                room = MAX_BATCH_BYTES if self.services.switches.delta_batching else 1
                now = self.services.clock.now()
                batch = session.pull(now, room)
                self.settle()
                if not session.flooded:
                    self._relieve()
                if batch is not None:
                    self._left = now
                    if session.sendable:
                        self._bell.ring()
                    return batch
                # What waits for credit is still owed.
                if self._ending and session.drained:
                    return None
            await self._bell.wait()
        return None

    def sent(self, size: int, events: int) -> None:
        """Hears the wire size of the batch that `next_batch` returned last."""
        self.session.sent(size)
        self.services.observer.sent(self.door, size, events)

    def finish(self, close: Close) -> None:
        """Ends the stream: at once for a reason, else when what is owed was sent."""
        self._ending = True
        if close.code:
            # What the client does not take must not keep the stream alive.
            self.break_off(make_error(close.code, close.message))
        elif self._linger is None:
            patience = self.services.clock.now() + self.services.limits.stall_timeout
            self._linger = self.services.clock.call_at(patience, self._not_taken)
        self._bell.ring()

    def _not_taken(self) -> None:
        self._linger = None
        self.break_off(make_error("slow_consumer", "The client did not take the end of the session."))

    # Time

    def _set_timer(self) -> None:
        when = self.session.next_deadline()
        if when is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            # An earlier timer that finds nothing to do sets the next one; only later ones must be replaced.
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.services.clock.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._over:
            return
        try:
            self.session.tick(self.services.clock.now())
            self.settle()
        except Exception:
            self.crashed()
