"""Appends and steers: what the client adds to a response that is at work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import count

from turnwire.server.session.calls import NO_CALLS, CallKey, answered_by, no_call_found
from turnwire.server.session.context import Context
from turnwire.server.session.effects import PrepareAppend
from turnwire.server.session.endings import Endings
from turnwire.server.session.hosted import approvals
from turnwire.server.session.passes import Passes
from turnwire.server.session.run import Appending, Run
from turnwire.server.session.settings import input_items
from turnwire.server.session.states import Fact, Phase
from turnwire.server.session.transcript import Entry
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.item_pb2 import Item, Role
from turnwire.v1.server_event_pb2 import ResponseAppended, ServerEvent, Steer, SteerAccepted, SteerFailed


class Appends:
    """Takes appends into held responses."""

    __slots__ = ("_context", "_endings", "_passes", "_tickets")

    def __init__(self, context: Context, passes: Passes, endings: Endings) -> None:
        """Takes what the session shares and who goes on from there."""
        self._context = context
        self._passes = passes
        self._endings = endings
        self._tickets = count(1)

    def receive(self, request: ConnectRequest, run: Run) -> None:
        """Takes an append to a response at work.

        Raises:
            RequestError: It cannot be obeyed and changed nothing.
        """
        append = request.append
        if not run.hold:
            message = f"Response '{run.id}' was created without 'hold' and takes no appends."
            raise reject("response_not_held", message, param="response_id", response_id=run.id)
        if not append.input:
            raise reject("missing_required_parameter", "Missing required parameter: 'input'.", param="input")
        if run.phase in (Phase.QUEUED, Phase.PREPARING):
            # It has called nothing yet, whatever is answered.
            _unanswered(append.input, ())
        digest = hashlib.blake2b(digest_size=16)
        for item in append.input:
            digest.update(item.SerializeToString(deterministic=True))
        self._check_in(request, run, list(append.input), digest.digest())

    def steer(self, request: ConnectRequest, run: Run) -> None:
        """Takes user input for a held response.

        Raises:
            RequestError: It cannot be obeyed and changed nothing.
        """
        if not run.hold or run.phase is not Phase.PAUSED:
            message = f"Response '{run.id}' is not paused; steering a running response is not supported."
            raise reject("steering_not_supported", message, param="previous_response_id", response_id=run.id)
        items = input_items(request.steer.input)
        if not items:
            raise reject("missing_required_parameter", "Missing required parameter: 'input'.", param="input")
        for index, item in enumerate(items):
            if item.WhichOneof("kind") != "message" or item.message.role != Role.ROLE_USER:
                message = f"Invalid value for 'input[{index}]': only user messages can steer."
                raise reject("invalid_value", message, param=f"input[{index}]")
        self._check_in(request, run, items, b"")

    def _check_in(self, request: ConnectRequest, run: Run, items: list[Item], digest: bytes) -> None:
        size = request.ByteSize()
        limit = self._context.limits.max_request_bytes
        if run.inbox and sum(each.size for each in run.inbox) + size > limit:
            message = f"Appends of more than {limit} bytes are being checked. Wait for 'appended' before the next one."
            raise reject("too_many_requests", message, param="input", limit=str(limit))
        ticket = next(self._tickets)
        run.inbox.append(Appending(ticket, request, size, digest, self._context.now))
        if len(run.inbox) == 1:
            self._send_out(run, ticket, items)

    def _send_out(self, run: Run, ticket: int, items: Sequence[Item]) -> None:
        size = sum(item.ByteSize() for item in items)
        config = self._context.config
        self._context.effects.append(
            PrepareAppend(run.handle, ticket, items, size, config.visits, config.conversations, run.model)
        )

    def prepared(self, handle: int, ticket: int, entries: tuple[Entry, ...]) -> None:
        """Takes the items of an append that turned out valid."""
        run = self._context.runs.get(handle)
        if run is None:
            return

        def judged(flagged: Error | None) -> None:
            self._judged(handle, ticket, entries, flagged)

        if not self._passes.verdicts.ask_about_append(run, entries, judged):
            judged(None)

    def _judged(self, handle: int, ticket: int, entries: tuple[Entry, ...], flagged: Error | None) -> None:
        found = self._head(handle, ticket)
        if found is None:
            return
        run, appending = found
        try:
            if flagged is not None:
                raise RequestError(flagged)
            if appending.request.WhichOneof("event") == "steer":
                self._accept_steer(run, appending, entries)
            else:
                self._accept(run, appending, entries)
        except RequestError as refusal:
            self._reject(run, appending, refusal.error)
        self._next(run)

    def refused(self, handle: int, ticket: int, error: Error) -> None:
        """Takes an append whose items turned out invalid."""
        found = self._head(handle, ticket)
        if found is None:
            return
        run, appending = found
        self._reject(run, appending, error)
        self._next(run)

    def _head(self, handle: int, ticket: int) -> tuple[Run, Appending] | None:
        run = self._context.runs.get(handle)
        if run is None or not run.inbox or run.inbox[0].ticket != ticket:
            return None
        return run, run.inbox.popleft()

    def _next(self, run: Run) -> None:
        if run.inbox:
            head = run.inbox[0]
            request = head.request
            steer = request.WhichOneof("event") == "steer"
            self._send_out(run, head.ticket, input_items(request.steer.input) if steer else list(request.append.input))

    def abandon(self, run: Run) -> None:
        """Refuses the appends of a response that ended while they were being checked."""
        while run.inbox:
            message = f"Response '{run.id}' ended before the append was taken."
            error = reject("response_already_completed", message, param="response_id", response_id=run.id).error
            self._reject(run, run.inbox.popleft(), error)

    def _reject(self, run: Run, appending: Appending, error: Error) -> None:
        request = appending.request
        if request.WhichOneof("event") == "steer":
            self.refuse_steer(request, error)
            return
        self._context.rejected(request.request_id, request.lane, error, response_id=run.id)

    def refuse_steer(self, request: ConnectRequest, error: Error) -> None:
        """Answers a steer that cannot be taken."""
        outbox = self._context.outbox
        response_id = request.steer.previous_response_id

        def send() -> None:
            failed = SteerFailed(steer=Steer(previous_response_id=response_id), error=error)
            outbox.answer(ServerEvent(steer_failed=failed))

        send()
        self._context.requests.settle(request.request_id, send)

    def _accept(self, run: Run, appending: Appending, entries: tuple[Entry, ...]) -> None:
        append = appending.request.append
        index = append.append_index if append.HasField("append_index") else len(run.appends)
        if index < len(run.appends):
            if run.appends[index] != appending.digest:
                message = f"Append {index} was taken before with other items."
                raise reject("append_index_conflict", message, param="append_index", append_index=str(index))
            self._confirm(run, appending, index, duplicate=True)
            return
        if index >= self._context.limits.max_appends:
            limit = self._context.limits.max_appends
            message = f"The response took {limit} appends and takes no more. Continue from it with a create."
            raise reject("too_many_requests", message, param="append_index", limit=str(limit))
        if index > len(run.appends):
            message = f"The next append has index {len(run.appends)}, not {index}."
            raise reject("append_index_gap", message, param="append_index", append_index=str(index))
        if run.phase is Phase.PAUSED:
            self._answer_pause(run, appending, entries, index)
        else:
            self._answer_early(run, appending, entries, index)

    def _answer_pause(self, run: Run, appending: Appending, entries: tuple[Entry, ...], index: int) -> None:
        """Takes outputs at a pause; the checkpoint moves with every append, so that nothing accepted is lost."""
        missing = _unanswered(appending.request.append.input, run.transcript.open_calls)
        self._look_at(run, entries)
        run.appends.append(appending.digest)
        run.approvals += approvals(appending.request.append.input)
        run.transcript = run.transcript.extend(entries, frozenset(missing) or NO_CALLS)
        self._passes.verdicts.carry(run)
        run.output.extend(entries)
        self._endings.keeping.commit(run)
        self._confirm(run, appending, index)
        # Everything that was called must be answered; only approvals of earlier passes may stay open.
        if run.awaiting():
            return
        run.read_steers()
        clocks = run.clocks
        # Checking it was this server's work. One that came before the pause has waited for that, and nobody for it.
        paused = appending.received if clocks.paused is None else clocks.paused
        clocks.begun = max(appending.received, paused)
        clocks.client_wait = clocks.begun - paused
        run.set_deadline("hold", None)
        self._passes.go_on(run, Fact.ANSWERED)

    def _look_at(self, run: Run, entries: tuple[Entry, ...]) -> None:
        """Has a classifier look at what is otherwise accepted.

        Raises:
            RequestError: It is flagged.
        """
        refusal = self._passes.verdicts.append(run, entries)
        if refusal is not None:
            raise RequestError(refusal)

    def _answer_early(self, run: Run, appending: Appending, entries: tuple[Entry, ...], index: int) -> None:
        """Takes outputs before the pause: tools may start as soon as their own arguments are complete."""
        missing = _unanswered(appending.request.append.input, run.awaiting())
        self._look_at(run, entries)
        run.appends.append(appending.digest)
        run.answered.update(key for key in run.pass_calls if key not in missing)
        run.early.extend(entries)
        run.early_approvals += approvals(appending.request.append.input)
        self._confirm(run, appending, index)

    def _confirm(self, run: Run, appending: Appending, index: int, *, duplicate: bool = False) -> None:
        context = self._context
        # The run itself is not kept for repeats: it holds the whole conversation.
        request_id, handle = appending.request.request_id, run.handle
        awaiting = [key.id for key in run.awaiting()]

        def send(again: bool) -> None:
            appended = ResponseAppended(
                append_index=index, awaiting_call_ids=awaiting, duplicate=again, request_id=request_id
            )
            context.outbox.answer(ServerEvent(response=handle, appended=appended))

        send(duplicate)
        context.requests.settle(request_id, lambda: send(True))

    def _accept_steer(self, run: Run, appending: Appending, entries: tuple[Entry, ...]) -> None:
        if run.phase is not Phase.PAUSED:
            message = f"Response '{run.id}' went on before the steer was taken."
            raise reject("steering_not_supported", message, param="previous_response_id", response_id=run.id)
        self._look_at(run, entries)
        self._passes.verdicts.carry(run)
        run.steers.extend(entries)
        self._endings.keeping.commit(run)
        request_id, handle = appending.request.request_id, run.handle
        steer = Steer(id=self._context.new_id("steer_"), previous_response_id=run.id)

        def send() -> None:
            event = ServerEvent(response=handle, steer_accepted=SteerAccepted(steer=steer))
            self._context.outbox.answer(event)

        send()
        self._context.requests.settle(request_id, send)


def _unanswered(items: Iterable[Item], open_calls: Iterable[CallKey]) -> set[CallKey]:
    """Returns the calls that stay open after an append.

    Raises:
        RequestError: An output answers no open call, or there is no output at all.
    """
    before = set(open_calls)
    missing = set(before)
    for item in items:
        key = answered_by(item)
        if key is None:
            continue
        if key not in missing:
            raise no_call_found(key)
        missing.remove(key)
    if missing == before:
        message = "An append must hold at least one tool output; messages may stand beside it."
        raise reject("missing_required_parameter", message, param="input")
    return missing
