"""Signs of life and their absence: heartbeats, idleness, age, and clients that take nothing."""

from __future__ import annotations

import math
from typing import Final

from turnwire.server.session.context import Context
from turnwire.server.session.effects import Close
from turnwire.server.session.lanes import Lanes
from turnwire.server.session.leaving import Leaving
from turnwire.server.session.rules import MAX_AGE
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionProgress

_NEVER: Final = math.inf
_QUIET: Final = 5 / 3
"""How much longer the silence may be while nothing is at work and nobody waits: 25 s by default, which still is below
the limits of proxies, and above the 20 s after which our clients ask by themselves. A heartbeat costs what any message
does, and thousands of idle sessions slow those that talk. At most 2, as `_check_silence` looks once in between."""


class Liveness:
    """Watches one session. What it watches for moves lazily: hearing and speaking only note the time."""

    # One deadline, for whatever is due first: with each a deadline of its own, these were a tenth of an idle session.
    __slots__ = (
        "_age",
        "_beat",
        "_began",
        "_context",
        "_deadline",
        "_heard",
        "_idle",
        "_lanes",
        "_leaving",
        "_spoke",
        "_stall",
        "_waiting_since",
    )

    def __init__(self, context: Context, lanes: Lanes, leaving: Leaving) -> None:
        """Starts watching; takes who knows what is at work, and who announces the end."""
        self._context = context
        self._lanes = lanes
        self._leaving = leaving
        now, limits = context.now, context.limits
        self._heard = self._spoke = self._began = now
        self._waiting_since: float | None = None
        # When each is looked at next.
        self._beat = now + limits.heartbeat
        self._age = now + limits.max_age
        self._stall = now + limits.stall_timeout / 2
        self._idle = now + limits.idle_timeout
        self._deadline = context.deadlines.at(self._next(), self._look)

    def follow(self) -> None:
        """Goes by limits that have come into force."""
        self._age = self._began + self._context.limits.max_age
        self._deadline.cancel()
        self._deadline = self._context.deadlines.at(self._next(), self._look)

    def heard(self) -> None:
        """Notes a message of the client."""
        self._heard = self._context.now

    def spoke(self, *, output: bool) -> None:
        """Notes a batch to the client, and whether it held output: answers alone are no sign that any is taken."""
        self._spoke = self._context.now
        if output:
            self._waiting_since = None

    def _next(self) -> float:
        return min(self._beat, self._age, self._stall, self._idle)

    def _look(self) -> None:
        now = self._context.now
        # Before the heartbeat, which waits for the writer's turn and not for the client.
        if now >= self._stall:
            self._check_stall()
        if now >= self._beat:
            self._check_silence()
        if now >= self._idle:
            self._check_idle()
        if now >= self._age:
            self._age = _NEVER
            self._go_away(MAX_AGE)
        if self._next() < _NEVER:
            self._deadline = self._context.deadlines.at(self._next(), self._look)

    def _check_silence(self) -> None:
        """Says that the server lives where nothing else was said for long."""
        context = self._context
        heartbeat = context.limits.heartbeat
        self._beat = self._spoke + (heartbeat if context.runs else heartbeat * _QUIET)
        if context.now >= self._beat:
            if not context.outbox.waiting:
                progress = SessionProgress(in_flight=self._lanes.in_flight, queued=self._lanes.queued)
                context.outbox.answer(ServerEvent(progress=progress))
            self._beat = context.now + heartbeat

    def _check_stall(self) -> None:
        """Cuts off a client for which something waited all the time without any of it being taken."""
        context = self._context
        outbox = context.outbox
        self._stall = context.now + context.limits.stall_timeout / 4
        if not outbox.waiting:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = context.now
        elif context.now - self._waiting_since >= context.limits.stall_timeout:
            self._stall = _NEVER
            message = "The client took no output for too long. Read events, and return credit with ack."
            context.effects.append(Close("slow_consumer", message))

    def _check_idle(self) -> None:
        context = self._context
        due = max(self._heard, context.last_ended) + context.limits.idle_timeout
        self._idle = max(due, context.now + context.limits.idle_timeout / 10)
        if context.now >= due and not context.runs:
            self._idle = _NEVER
            # Both may be due at the same moment, and age is what a client can foresee.
            self._go_away(MAX_AGE if context.now >= self._age else "idle")

    def _go_away(self, reason: str) -> None:
        self._leaving.go_away(reason, self._context.config.limits.grace, 0.0)
