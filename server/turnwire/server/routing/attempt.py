"""A pass that moves on to another upstream where one fails it, as far as that can be right.

Above it: the engines made of several upstreams. Below it: `pool`. As long as nothing has come of a pass, another
upstream can begin it anew; how one that has begun goes on, if at all, is what the engines say. How long all of it may
take is the session's to say: it aborts passes whose time is over.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

from turnwire.server.routing.pool import ELSEWHERE, Member, Pool
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import EngineFailure
from turnwire.server.session.visits import Visits

_log: Final = logging.getLogger(__name__)

E = TypeVar("E")
Out = TypeVar("Out")
Out_contra = TypeVar("Out_contra", contravariant=True)
End = TypeVar("End")
End_contra = TypeVar("End_contra", contravariant=True)


class Running(Protocol):
    """A pass at one upstream."""

    def pause(self) -> None:
        """Stops output."""

    def resume(self) -> None:
        """Lets output flow."""

    def abort(self) -> None:
        """Frees the upstream."""


class Receiver(Protocol[Out_contra, End_contra]):
    """Where a pass delivers."""

    def output(self, out: Out_contra, /) -> None:
        """Takes output."""

    def ended(self, outcome: End_contra | EngineFailure, /) -> None:
        """Takes the end."""


class Attempt(abc.ABC, Generic[E, Out, End]):
    """A pass at one upstream after the other: the receiver of each of them, and what whoever began it holds."""

    def __init__(
        self,
        pool: Pool[E],
        among: Sequence[Member[E]],
        chain: Chain,
        receiver: Receiver[Out, End],
        visits: Visits | None = None,
    ) -> None:
        """Prepares it; `begin` begins.

        Args:
            pool: Where upstreams come from.
            among: Who may serve it; at least one.
            chain: Whose pass it is.
            receiver: Where output goes, as that of one pass.
            visits: Where to note how many upstreams were looked at.
        """
        self._pool = pool
        self._among = among
        self._chain = chain
        self._receiver = receiver
        self._visits = visits
        self._tried: list[Member[E]] = []
        self._running: Running | None = None
        self._trial = False
        self._answered = False
        """Whether the present upstream has said something."""
        self.begun = False
        """Whether something has come of the pass."""
        self._over = False
        self._paused = False

    @abc.abstractmethod
    def start(self, engine: E) -> Running:
        """Starts the pass at an upstream, or what is left of it."""

    def goes_on(self, failure: EngineFailure) -> bool:
        """Whether a pass that has begun may go on elsewhere."""
        del failure
        return False

    def completes(self, outcome: End) -> End:
        """Returns the end of the last upstream as that of the whole pass."""
        return outcome

    def begin(self) -> None:
        """Starts at the first upstream; raises what starting raises."""
        member = self._pick()
        assert member is not None
        self._go(member)

    def pause(self) -> None:
        """Pauses the upstream, and those that follow."""
        self._paused = True
        if self._running is not None:
            self._running.pause()

    def resume(self) -> None:
        """Resumes the upstream."""
        self._paused = False
        if self._running is not None:
            self._running.resume()

    def abort(self) -> None:
        """Frees the upstream; no other follows."""
        if self._over:
            return
        self._over = True
        if self._trial:
            self._tried[-1].health.abandoned()
        if self._running is not None:
            self._running.abort()

    def output(self, out: Out, /) -> None:
        """Takes output."""
        if not self._answered:
            self._answers()
        self.begun = True
        self._receiver.output(out)

    def ended(self, outcome: End | EngineFailure, /) -> None:
        """Takes how the present upstream ended, and moves on where it failed and another may do better."""
        if self._over:
            return
        if not isinstance(outcome, EngineFailure):
            if not self._answered:
                self._answers()
            self.finish(self.completes(outcome))
            return
        member = self._tried[-1]
        self._pool.failed(member, outcome, trial=self._trial)
        self._trial = False
        if not self._moves(outcome):
            self.finish(outcome)

    def finish(self, outcome: End | EngineFailure) -> None:
        """Ends the whole pass."""
        self._over = True
        self._receiver.ended(outcome)

    def _answers(self) -> None:
        self._answered = True
        self._trial = False
        self._pool.served(self._tried[-1], self._chain)

    def _moves(self, failure: EngineFailure) -> bool:
        if failure.code not in ELSEWHERE or len(self._tried) >= self._pool.policy.max_tries:
            return False
        if self.begun and not self.goes_on(failure):
            return False
        if self._over:
            # Going on turned out to be nothing but an end.
            return True
        member = self._pick()
        if member is None:
            return False
        left = self._tried[-1]
        self._pool.moved(left, begun=self.begun)
        _log.info("a pass moves from %s to %s: %s", left.address, member.address, failure.message)
        try:
            self._go(member)
        except Exception:
            _log.exception("a pass could not be started at %s", member.address)
            self.finish(EngineFailure("server_error", "The engine failed to start."))
        return True

    def _pick(self) -> Member[E] | None:
        before = self._pool.scored
        member = self._pool.pick(self._chain, self._among, self._tried)
        if self._visits is not None:
            self._visits.note("route", self._pool.scored - before)
        return member

    def _go(self, member: Member[E]) -> None:
        self._tried.append(member)
        self._answered = False
        self._trial = self._pool.begin(member)
        self._running = self.start(member.engine)
        if self._paused:
            self._running.pause()
