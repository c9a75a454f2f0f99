"""One session: facts in, effects and batches out.

Above it stand the runtime, which carries out effects and reports facts, and the doors, which move batches. Below it:
the parts of the core, each with one job. Every method takes effect at once and never blocks; `now` is any clock that
does not run backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwire.server.session.appends import Appends
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
from turnwire.server.session.context import Context, SessionConfig
from turnwire.server.session.creates import Creates
from turnwire.server.session.effects import Compacted, Effect, Prepared, ToolResult
from turnwire.server.session.endings import Endings
from turnwire.server.session.envelope import about, check_names, no_event, too_large
from turnwire.server.session.gauges import Gauges
from turnwire.server.session.hosted import Listed
from turnwire.server.session.lanes import Lanes
from turnwire.server.session.leaving import Leaving
from turnwire.server.session.limits import EVENT_RANGE
from turnwire.server.session.liveness import Liveness
from turnwire.server.session.opening import open_session, opened
from turnwire.server.session.passes import Passes
from turnwire.server.session.requests import check_request_id
from turnwire.server.session.run import Run
from turnwire.server.session.screens import Direction, Verdict
from turnwire.server.session.state import State
from turnwire.server.session.states import Phase
from turnwire.server.session.transcript import Entry
from turnwire.server.session.visits import Visits
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import Pong, SessionOpened

_REMEMBERED: Final = frozenset({"create", "append", "steer", "cancel"})
"""Events whose repeats are answered by their first outcome; the others are harmless to repeat."""


class Session:
    """The state and the decisions of one session."""

    __slots__ = (
        "__weakref__",
        "_appends",
        "_context",
        "_creates",
        "_endings",
        "_lanes",
        "_leaving",
        "_liveness",
        "_passes",
        "_received",
    )

    def __init__(self, config: SessionConfig, now: float) -> None:
        """Starts a session at a moment of its clock, in seconds."""
        self._context = context = Context(config, now)
        self._lanes = Lanes(config.limits)
        self._endings = Endings(context)
        self._passes = Passes(context, self._endings)
        self._creates = Creates(context, self._lanes, self._passes, self._endings)
        self._appends = Appends(context, self._passes, self._endings)
        self._endings.on_abandon = self._appends.abandon
        self._leaving = Leaving(context, self._passes)
        self._liveness = Liveness(context, self._lanes, self._leaving)
        self._received = 0

    def take_large_events(self) -> None:
        """Lets events be as large as an open may ask for; before anything was asked."""
        self._context.max_event_bytes = EVENT_RANGE[1]

    # Facts

    def receive(self, now: float, request: ConnectRequest, size: int = 0) -> None:
        """Takes a client event.

        Args:
            now: The moment.
            request: The event, decoded.
            size: Its serialized size in bytes; 0 means it is not known to be large.
        """
        context = self._context
        context.now = now
        self._liveness.heard()
        self._received += 1
        kind = request.WhichOneof("event")
        try:
            check_request_id(request.request_id)
            if kind in _REMEMBERED and context.requests.seen(request):
                return
        except RequestError as refusal:
            # Not remembered: the id belongs to another request, or is none.
            context.refuse(request.request_id, request.lane, refusal.error)
            return
        try:
            if size > context.limits.max_request_bytes:
                raise too_large(request, context.limits.max_request_bytes)
            check_names(kind, request)
            self._dispatch(kind, request, size)
        except RequestError as refusal:
            # An event that is not remembered must not settle a request that has the same id.
            answer = context.rejected if kind in _REMEMBERED else context.refuse
            answer(request.request_id, request.lane, refusal.error, about(kind, request))
            if kind == "create":
                self._creates.turned_away(request, refusal.error)

    def _dispatch(self, kind: str | None, request: ConnectRequest, size: int) -> None:
        context = self._context
        match kind:
            case "create":
                if context.closing:
                    raise context.rules.closing(context.leaving, context.limits)
                self._creates.receive(request, size or request.ByteSize())
            case "append":
                run = self._at_work(request.append.response_id, "response_id")
                self._appends.receive(request, run)
            case "steer":
                self._steer(request)
            case "cancel":
                self._cancel(request)
            case "ack":
                if not context.outbox.acknowledged(request.ack.last_event_id):
                    message = f"Event {request.ack.last_event_id} was not sent yet."
                    raise reject("invalid_value", message, param="ack.last_event_id")
            case "credit":
                self._credit(request)
            case "ping":
                context.outbox.answer(ServerEvent(pong=Pong(nonce=request.ping.nonce)))
                if request.ping.describe:
                    context.outbox.answer(ServerEvent(opened=opened(context, SessionOpened())))
            case "open":
                if self._received > 1:
                    raise reject(
                        "session_already_open", "SessionOpen is valid as the first message only.", param="open"
                    )
                open_session(context, request.open)
                self._lanes.follow(context.rules, context.limits)
                self._liveness.follow()
            case "close":
                self._leaving.close(drain=request.close.drain)
            case _:
                raise no_event(request)

    def _credit(self, request: ConnectRequest) -> None:
        context = self._context
        run = context.runs.get(request.credit.response)
        # A response that has ended may have output waiting still.
        queue = context.outbox.find(request.credit.response) if run is None else run.queue
        if queue is not None:
            context.outbox.consumed(queue, request.credit.bytes)
        if run is not None:
            self._passes.relieve(run)

    def _at_work(self, response_id: str, param: str) -> Run:
        """Finds a response that has not ended.

        Raises:
            RequestError: It is missing, unknown, or has ended.
        """
        if not response_id:
            raise reject("missing_required_parameter", f"Missing required parameter: '{param}'.", param=param)
        run = self._context.by_id.get(response_id)
        if run is not None:
            return run
        if response_id in self._context.ended or self._context.retention.find(response_id) is not None:
            message = f"Response '{response_id}' has ended. Continue from it with previous_response_id."
            raise reject("response_already_completed", message, param=param, response_id=response_id)
        message = f"Response with id '{response_id}' not found."
        raise reject("response_not_found", message, param=param, response_id=response_id)

    def _steer(self, request: ConnectRequest) -> None:
        response_id = request.steer.previous_response_id
        try:
            self._appends.steer(request, self._at_work(response_id, "previous_response_id"))
        except RequestError as refusal:
            self._appends.refuse_steer(request, refusal.error)

    def _cancel(self, request: ConnectRequest) -> None:
        context = self._context
        cancel = request.cancel
        run: Run | None = None
        response_id = cancel.response_id
        if response_id:
            run = context.by_id.get(response_id)
        elif cancel.target_request_id:
            target = cancel.target_request_id
            run = next((r for r in context.runs.values() if r.request_id == target), None)
            response_id = context.ended_requests.get(target, "")
            if run is None and not response_id:
                message = f"No request '{target}' became a response."
                raise reject("response_not_found", message, param="target_request_id")
        else:
            raise reject(
                "missing_required_parameter", "Missing required parameter: 'response_id'.", param="response_id"
            )
        if run is None:
            if response_id not in context.ended:
                self._at_work(response_id, "response_id")
            self._endings.repeat_done(response_id, request.request_id)
        else:
            response_id = run.id
            self._leaving.stop(run)
        context.requests.settle(request.request_id, lambda: self._endings.repeat_done(response_id, request.request_id))

    def prepared(self, now: float, handle: int, ready: Prepared) -> None:
        """Takes the answer to `Prepare`: the request is valid."""
        self._context.now = now
        self._creates.prepared(handle, ready)
        self._leaving.check()

    def refused(self, now: float, handle: int, error: Error) -> None:
        """Takes the answer to `Prepare`: the request cannot be obeyed."""
        self._context.now = now
        self._creates.refused(handle, error)
        self._leaving.check()

    def append_prepared(self, now: float, handle: int, ticket: int, entries: tuple[Entry, ...]) -> None:
        """Takes the answer to `PrepareAppend`: the items are valid."""
        self._context.now = now
        self._appends.prepared(handle, ticket, entries)

    def append_refused(self, now: float, handle: int, ticket: int, error: Error) -> None:
        """Takes the answer to `PrepareAppend`: the items cannot be taken."""
        self._context.now = now
        self._appends.refused(handle, ticket, error)

    def hydrated(self, now: float, handle: int, state: State | None) -> None:
        """Takes the answer to `Hydrate`; None where the store does not know the response."""
        self._context.now = now
        self._creates.hydrated(handle, state)
        self._leaving.check()

    def engine_started(self, now: float, pass_id: int) -> None:
        """Hears that a prompt is in the engine's hands; for the stage times, which otherwise count from `StartPass`."""
        self._context.now = now
        self._passes.started(pass_id)

    def engine_output(self, now: float, pass_id: int, chunks: Sequence[Chunk]) -> None:
        """Takes output of a pass, in order. The hot path."""
        self._context.now = now
        self._passes.output(pass_id, chunks)

    def engine_ended(self, now: float, pass_id: int, outcome: Finish | EngineFailure) -> None:
        """Takes the end of a pass."""
        self._context.now = now
        self._passes.ended(pass_id, outcome)
        self._leaving.check()

    def tool_finished(self, now: float, pass_id: int, call_id: str, result: ToolResult | Listed) -> None:
        """Takes the answer to `RunTool` or `ListTools`."""
        self._context.now = now
        self._passes.tool_finished(pass_id, call_id, result)
        self._leaving.check()

    def compacted(self, now: float, pass_id: int, made: Compacted | None) -> None:
        """Takes the answer to `Compact`; None where there is nothing that could be said shorter."""
        self._context.now = now
        self._passes.compactions.finished(pass_id, made)
        self._leaving.check()

    def verdict(self, now: float, handle: int, ticket: int, verdict: Verdict, direction: Direction) -> None:
        """Takes the answer to `Classify`."""
        self._context.now = now
        self._passes.verdicts.verdict(handle, ticket, verdict, direction)
        self._leaving.check()

    def go_away(self, now: float, reason: str, grace: float, retry_after: float) -> None:
        """Announces that the session ends when its responses have, at the latest after `grace` seconds."""
        self._context.now = now
        self._leaving.go_away(reason, grace, retry_after)

    def half_closed(self, now: float) -> None:
        """Hears that the client sends nothing more; it may still read. Not a sign that it is content."""
        self._context.now = now
        self._leaving.half_closed()

    def lost(self, now: float) -> None:
        """Hears that the client is gone: everything at work is stopped, nothing is sent."""
        self._context.now = now
        self._leaving.close(drain=False)
        self._context.close()

    def tick(self, now: float) -> None:
        """Lets deadlines pass; call at `next_deadline`."""
        self._context.now = now
        self._context.deadlines.expire(now)
        self._leaving.check()

    # Results

    def effects(self) -> Sequence[Effect]:
        """Takes what is to be done, in order. Answering an effect may bring more."""
        context = self._context
        if not context.effects:
            # As after nearly every token.
            return ()
        taken, context.effects = context.effects, []
        return taken

    def pull(self, now: float, max_bytes: int = 64 * 1024) -> ConnectResponse | None:
        """Takes the next batch, None when nothing may be sent.

        Call `sent` with its wire size afterwards.
        """
        context = self._context
        context.now = now
        batch = ConnectResponse()
        drained = context.outbox.pull(batch, max_bytes)
        for queue in drained:
            run = context.runs.get(queue.handle)
            if run is not None and run.engine_paused:
                self._passes.relieve(run)
        if not batch.events:
            return None
        self._liveness.spoke(output=bool(drained))
        return batch

    def sent(self, size: int) -> None:
        """Hears the wire size of the last batch in bytes."""
        self._context.outbox.sent(size)

    def next_deadline(self) -> float | None:
        """The next moment at which `tick` has something to do."""
        return self._context.deadlines.next()

    @property
    def sendable(self) -> bool:
        """Whether `pull` would give a batch."""
        return self._context.outbox.sendable

    @property
    def drained(self) -> bool:
        """Whether nothing waits to be sent, not even for credit."""
        return self._context.outbox.empty

    @property
    def urgent(self) -> bool:
        """Whether what waits must not be delayed by the batch window."""
        return self._context.outbox.urgent

    @property
    def batch_window(self) -> float:
        """Seconds for which text may wait to travel together."""
        return self._context.batch_window

    @property
    def flooded(self) -> bool:
        """Whether so many answers wait that the client's requests should not be read for now."""
        return len(self._context.outbox.control) >= self._context.limits.max_control_events

    @property
    def id(self) -> str:
        """The session's id."""
        return self._context.config.session_id

    @property
    def visits(self) -> Visits:
        """What the stages of its turns looked at so far."""
        return self._context.config.visits

    @property
    def principal(self) -> str:
        """Who the session belongs to."""
        return self._context.config.principal

    def find(self, response_id: str) -> State | None:
        """Looks up a response that can be continued from."""
        return self._context.retention.find(response_id)

    def snapshot(self, response_id: str) -> State | None:
        """Returns what a response at work or waiting is at this moment; None for any other."""
        run = self._context.by_id.get(response_id)
        return None if run is None else self._endings.keeping.snapshot(run)

    def deleted(self, response_id: str) -> None:
        """Hears that a response was deleted. One that is at work goes on, and is not stored again."""
        run = self._context.by_id.get(response_id)
        if run is not None:
            run.deleted = True

    def gauges(self) -> Gauges:
        """Returns what is in use, for metrics."""
        runs = self._context.runs.values()
        responses, state_bytes = self._context.retained
        return Gauges(
            lanes=self._lanes.named,
            in_flight=self._lanes.in_flight,
            queued=self._lanes.queued,
            held=sum(1 for run in runs if run.phase is Phase.PAUSED),
            responses=responses,
            state_bytes=state_bytes,
            outstanding_bytes=self._context.outbox.outstanding,
        )
