"""Signs of life and their absence: heartbeats, idleness, age, and clients that take nothing."""

from __future__ import annotations

from turnwire.server.session.context import Context
from turnwire.server.session.effects import Close
from turnwire.server.session.lanes import Lanes
from turnwire.server.session.rules import MAX_AGE
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionProgress


class Liveness:
    """Watches one session. Its deadlines move lazily: hearing and speaking only note the time."""

    def __init__(self, context: Context, lanes: Lanes) -> None:
        """Starts watching."""
        self._context = context
        self._lanes = lanes
        self._heard = context.now
        self._spoke = context.now
        self._waiting_since: float | None = None
        limits = context.limits
        context.deadlines.at(context.now + limits.heartbeat, self._beat)
        self._began = context.now
        self._age = context.deadlines.at(self._began + limits.max_age, self._too_old)
        context.deadlines.at(context.now + limits.stall_timeout / 2, self._check_stall)
        context.deadlines.at(context.now + limits.idle_timeout, self._check_idle)

    def follow(self) -> None:
        """Goes by limits that have come into force."""
        self._age.cancel()
        self._age = self._context.deadlines.at(self._began + self._context.limits.max_age, self._too_old)

    def heard(self) -> None:
        """Notes a message of the client."""
        self._heard = self._context.now

    def spoke(self, *, output: bool) -> None:
        """Notes a batch to the client, and whether it held output: answers alone are no sign that any is taken."""
        self._spoke = self._context.now
        if output:
            self._waiting_since = None

    def _beat(self) -> None:
        context = self._context
        due = self._spoke + context.limits.heartbeat
        if context.now >= due:
            if not context.outbox.waiting:
                progress = SessionProgress(in_flight=self._lanes.in_flight, queued=self._lanes.queued)
                context.outbox.answer(ServerEvent(progress=progress))
            due = context.now + context.limits.heartbeat
        context.deadlines.at(due, self._beat)

    def _check_stall(self) -> None:
        """Cuts off a client for which something waited all the time without any of it being taken."""
        context = self._context
        outbox = context.outbox
        if not outbox.waiting:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = context.now
        elif context.now - self._waiting_since >= context.limits.stall_timeout:
            message = "The client took no output for too long. Read events, and return credit with ack."
            context.effects.append(Close("slow_consumer", message))
            return
        context.deadlines.at(context.now + context.limits.stall_timeout / 4, self._check_stall)

    def _check_idle(self) -> None:
        context = self._context
        due = max(self._heard, context.last_ended) + context.limits.idle_timeout
        if context.now >= due and not context.runs:
            # Both may be due at the same moment, and age is what a client can foresee.
            context.go_away(MAX_AGE if context.now >= self._age.when else "idle")
            return
        context.deadlines.at(max(due, context.now + context.limits.idle_timeout / 10), self._check_idle)

    def _too_old(self) -> None:
        self._context.go_away(MAX_AGE)
