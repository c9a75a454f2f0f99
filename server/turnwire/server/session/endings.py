"""Pauses and ends of responses: what is committed, what is announced, what is let go.

A state is listed before its `done` is queued, so that a request naming the response may follow within the same
millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from turnwire.server.session.accounts import OUTCOMES
from turnwire.server.session.context import Context
from turnwire.server.session.deadlines import Deadline
from turnwire.server.session.effects import PassEnded, ResponseEnded
from turnwire.server.session.keeping import STATUS, Keeping
from turnwire.server.session.limits import seconds
from turnwire.server.session.parts import truncated
from turnwire.server.session.run import Run, Tally
from turnwire.server.session.stage_times import total
from turnwire.server.session.state import full_response
from turnwire.server.session.states import Fact, Phase
from turnwire.server.session.token_data import token_output
from turnwire.server.session.transcript import Origin
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import make_error
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import (
    DoneReason,
    IncompleteDetails,
    Response,
    ResponseError,
    ResponseStatus,
    Verbosity,
)
from turnwire.v1.server_event_pb2 import (
    OutputItemDone,
    ResponseCreated,
    ResponseDone,
    ResponseInProgress,
    ServerEvent,
)
from turnwire.v1.usage_pb2 import StageTimes

_CAPS: Final = {name: f"{name}_timeout" for name in ("first_token", "hold", "total")}
"""The server's limits of time-outs. Python remembers where it found an attribute by the very string it was asked with,
so a new string for each look would stay there, thousands of them."""


class Endings:
    """Announces, commits, pauses and ends responses."""

    __slots__ = ("_context", "keeping", "on_abandon", "on_end", "on_hold_timeout")

    def __init__(self, context: Context) -> None:
        """Takes what the session shares."""
        self._context = context
        self.keeping = Keeping(context)
        self.on_end: Callable[[Run], None] = lambda run: None
        """Hears of a response that ended, after everything about it was queued; frees its lane."""
        self.on_abandon: Callable[[Run], None] = lambda run: None
        """Hears of a response that ends while appends to it are being checked."""
        self.on_hold_timeout: Callable[[Run], None] = lambda run: None
        """Hears that a held response waited too long."""

    def timeout(self, run: Run, name: str) -> float:
        """Returns a time-out of a response in seconds: its own, capped by the server's."""
        cap: float = getattr(self._context.limits, _CAPS[name])
        timeouts = run.settings.timeouts
        if timeouts.HasField(name):  # type: ignore[arg-type]
            own = seconds(getattr(timeouts, name))
            if own > 0:
                return min(own, cap)
        return cap

    def created(self, run: Run) -> None:
        """Announces a response, once."""
        if run.created_sent:
            return
        run.created_sent = True
        context = self._context
        if context.config.background and run.phase is Phase.PREPARING:
            # Nobody waits for it, so that it must be found whatever becomes of this process.
            self.keeping.begun(run)
        context.outbox.event(run.queue, self._created_event(run, duplicate=False), 256)
        # A repeat concerns no response's own stream, so it travels outside it.
        context.requests.settle(
            run.request_id, lambda: context.outbox.answer(self._created_event(run, duplicate=True)), final=False
        )
        if run.verbosity == Verbosity.VERBOSITY_FULL:
            context.outbox.event(run.queue, ServerEvent(in_progress=ResponseInProgress()), 16)
        else:
            context.outbox.skip(run.queue)

    def _created_event(self, run: Run, *, duplicate: bool) -> ServerEvent:
        response = Response(
            id=run.id,
            created_at=int(run.created_at),
            status=ResponseStatus.RESPONSE_STATUS_IN_PROGRESS,
            model=run.model,
        )
        if run.echo:
            whole = full_response(
                run.id,
                run.created_at,
                response.status,
                run.model,
                run.settings,
                run.tools,
                [],
                None,
                parent_id=run.previous_response_id,
            )
            if self._fits(whole):
                response = whole
        return ServerEvent(
            created=ResponseCreated(response=response, request_id=run.request_id, lane=run.lane, duplicate=duplicate)
        )

    def _fits(self, response: Response) -> bool:
        """Whether an event can carry a full response; one that is too large is left to GetResponse."""
        return response.ByteSize() <= self._context.max_event_bytes - 4096

    def pause(self, run: Run) -> None:
        """Commits a checkpoint and announces that a held response waits for its client."""
        context = self._context
        if not self.keeping.kept(run, DoneReason.DONE_REASON_TOOL_CALLS):
            void = [key.id for key in run.awaiting()]
            run.move(Fact.FAILED, Phase.ENDED)
            self.end(run, DoneReason.DONE_REASON_FAILED, error=_unrecorded(), void=void)
            return
        run.clocks.paused = context.now
        deadline = context.now + self.timeout(run, "hold")
        run.set_deadline("hold", self._hold_deadline(run, deadline))
        done = self._done(run, DoneReason.DONE_REASON_TOOL_CALLS)
        done.awaiting_call_ids.extend(key.id for key in run.awaiting())
        done.continuable = True
        self._send_done(run, done)
        self.report_pass(run)
        # What follows in this pause counts and times nothing.
        run.pass_tally = Tally()

    def _hold_deadline(self, run: Run, when: float) -> Deadline:
        return self._context.deadlines.at(when, lambda: self.on_hold_timeout(run))

    def end(
        self,
        run: Run,
        reason: DoneReason.ValueType,
        *,
        error: Error | None = None,
        incomplete: IncompleteDetails | None = None,
        void: list[str] | None = None,
    ) -> None:
        """Ends a response in phase ENDED: commits, announces, forgets."""
        context = self._context
        run.clear_deadlines()
        self.on_abandon(run)
        run.read_steers()
        good = reason in (DoneReason.DONE_REASON_COMPLETED, DoneReason.DONE_REASON_INCOMPLETE)
        if good and not self.keeping.kept(run, reason, incomplete):
            good, reason, error, incomplete = False, DoneReason.DONE_REASON_FAILED, _unrecorded(), None
        if reason == DoneReason.DONE_REASON_FAILED:
            # A cancelled one is no failure: who changed his mind may go on from where he was.
            context.turn_failed(run.previous_response_id, run.lane)
        announced = run.created_sent
        self.created(run)
        done = self._done(run, reason)
        if run.clocks.paused is not None:
            done.ClearField("times")
        checkpoint = context.retention.find(run.id)
        done.continuable = checkpoint is not None
        if checkpoint is not None:
            done.awaiting_call_ids.extend(key.id for key in run.in_order(checkpoint.transcript.open_calls))
        if not good:
            self.keeping.failed(run, checkpoint, reason, error, announced=announced)
        done.void_call_ids.extend(void or ())
        if error is not None:
            done.error.CopyFrom(error)
        if incomplete is not None:
            done.incomplete_details.CopyFrom(incomplete)
        if run.echo:
            whole = self._full(run, reason, error, incomplete)
            if self._fits(whole):
                done.response.CopyFrom(whole)
        self._send_done(run, done)
        context.remember(run.id, run.request_id, done)
        self._remember_request(run)
        if run.passes and run.clocks.paused is None:
            self.report_pass(run)
        context.effects.append(
            ResponseEnded(
                outcome=OUTCOMES[reason],
                code=error.code if error is not None else "",
                model=run.model,
                input_tokens=run.tally.input,
                cached_tokens=run.tally.cached,
                output_tokens=run.tally.output,
                passes=run.passes,
            )
        )
        self.on_end(run)

    def _remember_request(self, run: Run) -> None:
        """Keeps what answers a repeat of the create; not the run, which holds the whole conversation."""
        if not run.request_id:
            return
        outbox = self._context.outbox
        created = self._created_event(run, duplicate=True)
        response_id, request_id = run.id, run.request_id

        def repeat() -> None:
            # A copy, since an event belongs to the batch that takes it.
            again = ServerEvent()
            again.CopyFrom(created)
            outbox.answer(again)
            self.repeat_done(response_id, request_id)

        self._context.requests.settle(request_id, repeat)

    def repeat_done(self, response_id: str, request_id: str) -> None:
        """Sends the outcome of an ended response once more, outside its own stream, if it is still known."""
        done = self._context.ended.get(response_id)
        if done is None:
            return
        again = ResponseDone.FromString(done)
        again.response_id = response_id
        again.request_id = request_id
        self._context.outbox.answer(ServerEvent(done=again))

    def _full(
        self, run: Run, reason: DoneReason.ValueType, error: Error | None, incomplete: IncompleteDetails | None
    ) -> Response:
        return full_response(
            run.id,
            run.created_at,
            STATUS[reason],
            run.model,
            run.settings,
            run.tools,
            run.output,
            run.tally.to_proto(),
            parent_id=run.previous_response_id,
            completed_at=self._context.wall if reason == DoneReason.DONE_REASON_COMPLETED else None,
            error=None if error is None else ResponseError(code=error.code, message=error.message),
            incomplete=incomplete,
        )

    def _done(self, run: Run, reason: DoneReason.ValueType) -> ResponseDone:
        since = Tally()
        since.add(run.carried_tally)
        since.add(run.pass_tally)
        return ResponseDone(
            reason=reason,
            pass_usage=since.to_proto(),
            usage=run.tally.to_proto(),
            times=total(run.carried_times, self.keeping.times(run)),
            passes=run.passes,
            completed_at=int(self._context.wall) if reason == DoneReason.DONE_REASON_COMPLETED else None,
        )

    def _send_done(self, run: Run, done: ResponseDone) -> None:
        context = self._context
        if run.verbosity == Verbosity.VERBOSITY_DONE and not done.HasField("response"):
            self._add_output(run, done)
        run.since_pause = len(run.output)
        if run.unreported and run.settings.token_output.in_done:
            done.token_output.CopyFrom(token_output(run.unreported))
        run.unreported.clear()
        run.carried_times = StageTimes()
        run.carried_tally = Tally()
        context.outbox.event(run.queue, ServerEvent(done=done), done.ByteSize())

    def _add_output(self, run: Run, done: ResponseDone) -> None:
        """Puts what is new into `done`; items that would make it too large go ahead of it one by one."""
        limit = self._context.max_event_bytes
        # The client has what it appended.
        new = [
            (index, entry)
            for index, entry in enumerate(run.output[run.since_pause :], start=run.since_pause)
            if entry.origin is not Origin.APPEND
        ]
        if sum(len(entry.data) for _, entry in new) <= limit - 4096:
            for _, entry in new:
                done.output.add().MergeFromString(entry.data)
            return
        for index, entry in new:
            item = Item.FromString(entry.data)
            if len(entry.data) > limit - 64:
                event = ServerEvent(output_item_truncated=truncated(item, index, len(entry.data)))
            else:
                event = ServerEvent(output_item_done=OutputItemDone(output_index=index, item=item))
            self._context.outbox.event(run.queue, event, len(entry.data))

    def go_on(self, run: Run) -> None:
        """Keeps what a pass cost that ends without a `done`, for the one that comes."""
        run.carried_times = total(run.carried_times, self.keeping.times(run))
        run.carried_tally.add(run.pass_tally)
        run.pass_tally = Tally()
        self.report_pass(run)

    def report_pass(self, run: Run) -> None:
        """Reports where the time of the pass went."""
        times = self.keeping.times(run)
        run.clocks.hosted = 0.0
        self._context.effects.append(
            PassEnded(
                queued=times.queued,
                pre_inference=times.pre_inference,
                first_token=times.first_token if times.HasField("first_token") else None,
                inference=times.inference,
                hosted_tools=times.hosted_tools,
                client_wait=times.client_wait,
                stalled=times.stalled,
            )
        )


def _unrecorded() -> Error:
    return make_error("server_error", "The server could not record the response. Try again later.")
