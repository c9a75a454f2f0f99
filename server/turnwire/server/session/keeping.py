"""What is kept of a response at each of its pauses and at its end: its state, and the record of what it cost.

Above it: endings and passes. A record is made before a state is listed, and a state is listed before its `done` is
queued: nobody hears of what could be lost.
"""

from __future__ import annotations

from dataclasses import replace

from turnwire.server.session.accounts import spending
from turnwire.server.session.context import Context
from turnwire.server.session.effects import Persist
from turnwire.server.session.run import Run
from turnwire.server.session.settings import stores
from turnwire.server.session.stage_times import measure, total
from turnwire.server.session.state import State
from turnwire.server.session.states import Phase
from turnwire.v1.error_pb2 import Error
from turnwire.v1.response_pb2 import DoneReason, IncompleteDetails, ResponseError, ResponseStatus
from turnwire.v1.usage_pb2 import StageTimes

STATUS: dict[DoneReason.ValueType, ResponseStatus.ValueType] = {
    DoneReason.DONE_REASON_TOOL_CALLS: ResponseStatus.RESPONSE_STATUS_IN_PROGRESS,
    DoneReason.DONE_REASON_COMPLETED: ResponseStatus.RESPONSE_STATUS_COMPLETED,
    DoneReason.DONE_REASON_INCOMPLETE: ResponseStatus.RESPONSE_STATUS_INCOMPLETE,
    DoneReason.DONE_REASON_FAILED: ResponseStatus.RESPONSE_STATUS_FAILED,
    DoneReason.DONE_REASON_CANCELLED: ResponseStatus.RESPONSE_STATUS_CANCELLED,
}
"""What a response is that came to a `done` of some reason."""


class Keeping:
    """Keeps the responses of a session."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        """Takes what the session shares."""
        self._context = context

    def commit(self, run: Run) -> None:
        """Lists the state that a response at work stands for now."""
        self._list(run, self.state(run, ResponseStatus.RESPONSE_STATUS_IN_PROGRESS), recorded=False)

    def kept(self, run: Run, reason: DoneReason.ValueType, incomplete: IncompleteDetails | None = None) -> bool:
        """Records what a response stands for now, and lists that if it could be done."""
        completed = reason == DoneReason.DONE_REASON_COMPLETED
        wall = self._context.wall if completed else None
        state = self.state(run, STATUS[reason], wall, incomplete=incomplete)
        kept = self._record(run, reason, "", state)
        if kept:
            self._list(run, state, recorded=True)
        return kept

    def _record(self, run: Run, reason: DoneReason.ValueType, code: str, state: State | None) -> bool:
        context = self._context
        keep = context.config.keep
        if keep is None:
            return True
        paused = run.clocks.paused is not None
        times = StageTimes() if paused else total(run.carried_times, self.times(run))
        spent = spending(run, context.config.principal, context.wall, reason, code, times)
        return keep(spent, state if _stored(run) else None)

    def _list(self, run: Run, state: State, *, recorded: bool) -> None:
        context = self._context
        context.retention.list(state)
        if context.config.conversations is not None and not run.deleted:
            context.config.conversations.remember(state, context.now)
        self._persist(run, state, recorded=recorded)

    def state(
        self,
        run: Run,
        status: ResponseStatus.ValueType,
        completed_at: float | None = None,
        *,
        incomplete: IncompleteDetails | None = None,
    ) -> State:
        """Returns what a response is at this moment; costs nothing of its history."""
        context = self._context
        transcript = run.transcript
        if run.steers:
            transcript = transcript.extend(run.steers, transcript.open_calls)
        return State(
            id=run.id,
            principal=context.config.principal,
            lane=run.lane,
            parent_id=run.previous_response_id,
            model=run.model,
            created_at=run.created_at,
            completed_at=completed_at,
            status=status,
            settings=run.settings_data,
            tools=run.tools,
            transcript=transcript,
            input=run.input,
            resent=run.resent,
            earlier=run.earlier,
            before=run.before,
            usage=run.tally.to_proto().SerializeToString() if run.tally.input or run.tally.output else None,
            context_tokens=run.context_tokens,
            incomplete=incomplete,
            listings=run.listings,
            approvals=run.approvals,
            unfinished=tuple(run.pass_entries),
        )

    def _persist(self, run: Run, state: State, *, recorded: bool) -> None:
        if _stored(run):
            self._context.effects.append(Persist(state, recorded))

    def begun(self, run: Run) -> None:
        """Keeps that a response is at work for which nobody waits, so that it is found whatever becomes of this
        process."""
        self._persist(run, replace(self.snapshot(run), continuable=False), recorded=False)

    def snapshot(self, run: Run) -> State:
        """Returns what a response at work is at this moment, for whoever retrieves it."""
        waiting = run.phase is Phase.QUEUED
        status = ResponseStatus.RESPONSE_STATUS_QUEUED if waiting else ResponseStatus.RESPONSE_STATUS_IN_PROGRESS
        return self.state(run, status)

    def failed(
        self, run: Run, checkpoint: State | None, reason: DoneReason.ValueType, error: Error | None, *, announced: bool
    ) -> None:
        """Keeps how a response ended that failed or was cancelled, in its last checkpoint if it has one."""
        ended: State | None = None
        if checkpoint is not None:
            ended = self._marked(run, checkpoint, reason, error)
            self._context.retention.list(ended)
        elif announced:
            # To be retrieved only. One that had not begun has no settings, so nobody knows whether it may be stored.
            ended = replace(self._marked(run, self.state(run, STATUS[reason]), reason, error), continuable=False)
        # One that cannot be recorded has failed already; whoever keeps records is the one to raise the alarm.
        self._record(run, reason, "" if error is None else error.code, ended)
        if ended is not None:
            self._persist(run, ended, recorded=True)

    def _marked(self, run: Run, state: State, reason: DoneReason.ValueType, error: Error | None) -> State:
        why = None if error is None else ResponseError(code=error.code, message=error.message)
        return replace(state, status=STATUS[reason], error=why, unfinished=run.lost)

    def times(self, run: Run) -> StageTimes:
        """Measures the current pass."""
        return measure(run.clocks, self._context.moment(), first_pass=run.passes <= 1)


def _stored(run: Run) -> bool:
    return not run.deleted and stores(run.settings)
