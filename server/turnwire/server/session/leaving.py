"""How a session is left: by cancels, by its client, and by a server that wants it to go.

Above it: the session. Below it: passes, which end responses. Whatever the way, the stream ends when nothing is at work.
"""

from __future__ import annotations

from turnwire.server.session.context import Context
from turnwire.server.session.effects import Close
from turnwire.server.session.limits import duration
from turnwire.server.session.passes import Passes
from turnwire.server.session.run import Run
from turnwire.server.session.states import Fact, Phase
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionGoAway


class Leaving:
    """Stops the responses of a session, and ends it when none is left."""

    __slots__ = ("_context", "_passes", "_when_idle")

    def __init__(self, context: Context, passes: Passes) -> None:
        """Takes what the session shares, and who stops passes."""
        self._context = context
        self._passes = passes
        self._when_idle = False

    def stop(self, run: Run) -> None:
        """Cancels a response."""
        # Who cancels may have stopped consuming, and must still get the outcome.
        self._context.outbox.uncap(run.queue)
        self._passes.stop(run, Fact.CANCELLED, DoneReason.DONE_REASON_CANCELLED)
        self.check()

    def close(self, *, drain: bool) -> None:
        """Ends the session when its responses have; at once where it is not to be drained."""
        context = self._context
        context.closing = True
        self._when_idle = True
        if not drain:
            # Newest first, so that no waiting request is taken to work on the way.
            for run in sorted(context.runs.values(), key=lambda run: -run.handle):
                if run.handle in context.runs:
                    self.stop(run)
        self.check()

    def check(self) -> None:
        """Ends the session if it is to end and nothing is at work."""
        if self._when_idle and not self._context.runs:
            self._when_idle = False
            self._context.effects.append(Close(""))

    def go_away(self, reason: str, grace: float, retry_after: float) -> None:
        """Announces that the session ends when its responses have, at the latest after `grace` seconds."""
        context = self._context
        if self._when_idle or context.leaving:
            return
        context.closing = True
        context.leaving = reason
        self._when_idle = True
        event = SessionGoAway(reason=reason, grace=duration(grace), retry_after=duration(retry_after))
        context.outbox.answer(ServerEvent(go_away=event))

        def give_up() -> None:
            for run in sorted(context.runs.values(), key=lambda run: -run.handle):
                if run.handle in context.runs:
                    error = context.rules.cut_off(reason, context.limits)
                    self._passes.stop(run, Fact.TIMED_OUT, DoneReason.DONE_REASON_FAILED, error)
            self.check()

        context.deadlines.at(context.now + grace, give_up)
        self.check()

    def half_closed(self) -> None:
        """Hears that the client sends nothing more; it may still read. Not a sign that it is content."""
        context = self._context
        context.closing = context.half_closed = True
        self._when_idle = True
        # No credit can be returned any more.
        context.response_credit = 0
        context.outbox.lift_credit()
        for run in list(context.runs.values()):
            run.queue.credit = 0
            self._passes.relieve(run)
            # Nothing can be appended any more, so what is held is let go; its checkpoint stays.
            if run.phase is Phase.PAUSED:
                self.stop(run)
        self.check()
