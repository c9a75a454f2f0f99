"""Creates: from a request in a lane to the first pass of its response."""

from __future__ import annotations

from turnwire.server.session.accounts import About, read_about
from turnwire.server.session.chain import Chain, chain_key
from turnwire.server.session.context import Context
from turnwire.server.session.conversations import Conversation
from turnwire.server.session.effects import Hydrate, Prepare, Prepared
from turnwire.server.session.endings import Endings
from turnwire.server.session.lanes import Lanes
from turnwire.server.session.limits import seconds
from turnwire.server.session.outbox import Queue
from turnwire.server.session.passes import Passes
from turnwire.server.session.run import Clocks, Run
from turnwire.server.session.settings import check_reset, effective, input_items, prewarms
from turnwire.server.session.state import State
from turnwire.server.session.states import Fact, Phase
from turnwire.server.session.transcript import EMPTY
from turnwire.v1 import ids
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error, reject
from turnwire.v1.response_pb2 import DoneReason, ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import RequestQueued


class Creates:
    """Takes create requests through their lanes."""

    __slots__ = ("_admitted", "_beginning", "_context", "_endings", "_lanes", "_looking", "_passes")

    def __init__(self, context: Context, lanes: Lanes, passes: Passes, endings: Endings) -> None:
        """Takes what the session shares and who goes on from there."""
        self._context = context
        self._lanes = lanes
        self._passes = passes
        self._endings = endings
        self._admitted: list[Run] = []
        self._beginning = False
        endings.on_end = self._ended
        endings.on_hold_timeout = self._hold_timed_out
        self._looking: list[str] = []
        """Lanes of `_look`: it may come to another lane on its way."""
        passes.on_pause = self._paused

    def receive(self, request: ConnectRequest, size: int) -> None:
        """Takes a create of `size` bytes.

        Raises:
            RequestError: It cannot be obeyed and changed nothing.
        """
        context = self._context
        create = request.create
        lane = request.lane
        context.rules.check_lane(request)
        self._lanes.check(lane)
        check_reset(create)
        about = read_about(request.context)
        held = self._lanes.current(lane)
        if held is None or held.phase is not Phase.PAUSED or self._lanes.head(lane) is not None:
            held = None
        elif create.previous_response_id != held.id:
            raise self._held(held)
        self._check_shape(create, continues=held is not None)
        position = self._lanes.waits(lane) if held is None else None
        if position is not None:
            self._lanes.check_room()
        self._check_memory(size)
        run = self._make(request, size, about)
        self._lanes.enqueue(run)
        context.runs[run.handle] = run
        context.by_id[run.id] = run
        context.held += run.hold
        context.request_bytes += size
        if run.previous_response_id:
            context.uses[run.previous_response_id] += 1
        total = context.now + self._total(create)
        run.set_deadline("total", context.deadlines.at(total, lambda: self._timed_out(run)))
        if held is not None:
            self._look(lane)
            return
        if position is not None:
            queued = RequestQueued(request_id=request.request_id, lane=lane, position=position)
            context.outbox.answer(ServerEvent(queued=queued))
        admitted = self._lanes.admit(lane)
        if admitted is not None:
            self._begin([admitted])

    def turned_away(self, request: ConnectRequest, error: Error) -> None:
        """Hears that a create was refused before it stood in its lane; that counts as its turn if the lane was free."""
        # One that was only too early may come again and find its parent.
        if error.code != "too_many_requests" and not self._lanes.busy(request.lane):
            self._context.turn_failed(request.create.previous_response_id, request.lane)

    def _check_shape(self, create: ResponseCreate, *, continues: bool) -> None:
        if create.verbosity not in Verbosity.values():
            message = f"Invalid value for 'verbosity': {create.verbosity}."
            raise reject("invalid_value", message, param="verbosity")
        if create.background and not self._context.config.background:
            message = "'background' is not supported on a session: its responses end with it."
            raise reject("unsupported_parameter", message, param="background")
        limit = self._context.limits.max_held
        # One that continues takes the place of the response it continues from.
        if create.hold and not continues and self._context.held >= limit:
            message = f"Too many responses are held open ({limit}). End some, or create without 'hold'."
            raise reject("too_many_requests", message, param="hold", limit=str(limit))

    def _check_memory(self, size: int) -> None:
        """Bounds what waiting requests and unread responses keep in memory: their number alone would not."""
        budget = self._context.config.budget
        if budget is not None and budget.full:
            message = "The server keeps as much of running conversations as it may. Try again later."
            raise RequestError(make_error("server_is_overloaded", message, retry_after=1.0))
        unread = self._context.limits.max_unread_responses
        if self._context.outbox.unread - len(self._context.runs) >= unread:
            message = f"More than {unread} ended responses were not consumed. Read them, or cancel what is not wanted."
            raise reject("too_many_requests", message, limit=str(unread))
        limit = self._context.limits.max_state_bytes
        if self._context.request_bytes and self._context.request_bytes + size > limit:
            message = f"Requests of more than {limit} bytes are waiting. Wait for some to begin."
            raise reject("too_many_requests", message, limit=str(limit))

    def _held(self, current: Run) -> RequestError:
        message = (
            f"The lane is held by response '{current.id}'. Append its tool outputs, cancel it, or continue from it with"
            " previous_response_id."
        )
        return reject("lane_held", message, param=self._context.rules.lane_param, response_id=current.id)

    def _total(self, create: ResponseCreate) -> float:
        # It counts from acceptance, so it stands before the request was checked.
        own = seconds(create.timeouts.total)
        limit = self._context.limits.total_timeout
        return min(own, limit) if own > 0 else limit

    def _make(self, request: ConnectRequest, size: int, about: About) -> Run:
        context = self._context
        create = request.create
        handle = next(context.handles)
        return Run(
            handle=handle,
            id=context.new_id(ids.RESPONSE),
            lane=request.lane,
            request=request,
            request_bytes=size,
            request_id=request.request_id,
            previous_response_id=create.previous_response_id,
            verbosity=create.verbosity or context.verbosity,
            hold=create.hold,
            generate=not prewarms(request),
            echo=create.echo,
            queue=Queue(handle, context.response_credit),
            clocks=Clocks(accepted=context.now, begun=context.now),
            about=about,
            created_at=context.wall,
            model=create.model,
        )

    def _begin(self, admitted: list[Run]) -> None:
        """Begins the work on requests; one that fails at once lets others follow, without recursion."""
        self._admitted.extend(admitted)
        if self._beginning:
            return
        self._beginning = True
        while self._admitted:
            self._begin_one(self._admitted.pop(0))
        self._beginning = False

    def _begin_one(self, run: Run) -> None:
        if run.phase is not Phase.QUEUED:
            return
        context = self._context
        run.move(Fact.ADMITTED, Phase.PREPARING)
        run.clocks.queued = context.now - run.clocks.accepted
        run.clocks.begun = context.now
        if not run.previous_response_id:
            self._prepare(run, None)
            return
        parent = context.retention.find(run.previous_response_id)
        if parent is not None:
            self._prepare(run, parent)
        else:
            context.effects.append(Hydrate(run.handle, run.previous_response_id))

    def hydrated(self, handle: int, parent: State | None) -> None:
        """Takes what the store knows of a previous response."""
        run = self._context.runs.get(handle)
        if run is None or run.phase is not Phase.PREPARING:
            return
        if parent is None or not parent.continuable:
            response_id = run.previous_response_id
            message = f"Previous response with id '{response_id}' not found."
            error = make_error(
                "previous_response_not_found", message, param="previous_response_id", response_id=response_id
            )
            self._refuse(run, error)
            return
        self._prepare(run, parent)

    def _prepare(self, run: Run, parent: State | None) -> None:
        context = self._context
        assert run.request is not None
        create = run.request.create
        run.parent = parent
        if parent is not None:
            run.transcript = parent.transcript
            run.context_tokens = parent.context_tokens
            run.listings = parent.listings
            # The same string: states keep both ends of the link.
            run.previous_response_id = parent.id
            run.approvals = parent.approvals
        size = create.input.ByteSize()
        if run.transcript.bytes + size > context.limits.max_state_bytes:
            limit = context.limits.max_state_bytes
            message = f"The conversation is larger than the session may keep ({limit} bytes). Compact it or start anew."
            self._refuse(run, make_error("context_length_exceeded", message, param="input", limit=str(limit)))
            return
        run.settings, run.tools = effective(create, parent, context.config.tool_sets)
        run.settings_data = run.settings.SerializeToString()
        if parent is not None and parent.settings == run.settings_data:
            # Kept once for the whole chain: instructions are the better part of many a turn.
            run.settings_data = parent.settings
        items = input_items(create.input)
        if not items and run.transcript is EMPTY and run.generate:
            message = "Missing required parameter: 'input'. There is no history to answer either."
            self._refuse(run, make_error("missing_required_parameter", message, param="input"))
            return
        open_calls = run.transcript.open_calls
        context.effects.append(
            Prepare(
                run.handle,
                items,
                run.settings,
                run.tools,
                open_calls,
                size + (0 if run.tools.checked else len(run.tools.data)),
                context.config.principal,
                run.transcript,
                context.config.visits,
                context.config.conversations,
                run.context_tokens,
            )
        )

    def prepared(self, handle: int, ready: Prepared) -> None:
        """Takes a request that turned out valid: the response exists."""
        context = self._context
        run = context.runs.get(handle)
        if run is None or run.phase is not Phase.PREPARING:
            return
        held = self._lanes.current(run.lane)
        continues = held if held is not run else None
        if continues and (
            continues.phase is not Phase.PAUSED or run.parent is not context.retention.find(continues.id)
        ):
            # An append was taken meanwhile, so the check was made against an older checkpoint.
            run.move(Fact.OVERTAKEN, Phase.QUEUED)
            self._look(run.lane)
            return
        refusal = self._passes.verdicts.admit(run, ready)
        if refusal is not None:
            self._refuse(run, refusal)
            return
        if continues:
            self._continue(continues)
        self._drop_request(run)
        if ready.known is not None:
            self._join(run, ready.known)
        run.model = ready.model
        run.input = ready.entries
        if ready.listings:
            run.listings = {**run.listings, **{listing.label: listing for listing in ready.listings}}
        run.unlisted = tuple(label for label in run.tools.servers if label not in run.listings)
        run.approvals += ready.approvals
        run.compact_threshold = ready.compact_threshold
        run.compact_now, run.compact_only = ready.compact_now, ready.compact_only
        run.beside = max(0, run.context_tokens - run.transcript.tokens)
        self._passes.offer(run)
        # Forks and continuations keep the chain of what they go on from, and with it the upstream that knows them.
        chain = run.transcript.chain or Chain(
            chain_key(run.id, context.config.principal, run.settings.prompt_cache_key)
        )
        history = run.transcript
        if ready.window is None:
            run.transcript = history.extend(ready.entries, ready.open_calls, turns=ready.turns, chain=chain)
        else:
            run.transcript = ready.window
            run.transcript.chain = run.transcript.chain or chain
            run.context_tokens = 0
        self._passes.verdicts.admitted(run, history)
        if ready.window is not None:
            run.put_beside()
        run.parent = None
        run.before = run.transcript
        self._endings.created(run)
        if run.generate:
            self._passes.go_on(run, Fact.PREPARED)
        elif not self._passes.verdicts.postpones(run, lambda: self._warmed(run)):
            self._warmed(run)

    def _warmed(self, run: Run) -> None:
        """Ends a response that was to generate nothing."""
        run.tally.input = run.transcript.tokens
        run.pass_tally.input = run.transcript.tokens
        run.context_tokens = run.transcript.tokens
        run.move(Fact.PREPARED, Phase.ENDED)
        self._endings.end(run, DoneReason.DONE_REASON_COMPLETED)

    def _join(self, run: Run, known: Conversation) -> None:
        """Lets a response go on from a conversation that its request has sent once more."""
        context = self._context
        assert context.config.conversations is not None
        context.config.conversations.used(known, context.now)
        run.resent = run.transcript = known.transcript
        run.context_tokens = known.context_tokens
        run.listings = known.listings
        run.approvals = known.approvals

    def refused(self, handle: int, error: Error) -> None:
        """Takes a request that turned out invalid."""
        run = self._context.runs.get(handle)
        if run is not None and run.phase is Phase.PREPARING:
            self._refuse(run, error)

    def _refuse(self, run: Run, error: Error) -> None:
        run.move(Fact.REFUSED, Phase.ENDED)
        run.clear_deadlines()
        self._context.turn_failed(run.previous_response_id, run.lane)
        self._context.rejected(run.request_id, run.lane, error)
        self._ended(run)

    def _continue(self, held: Run) -> None:
        """Ends a held response because a valid create of its own lane goes on from its pause."""
        held.move(Fact.CONTINUED, Phase.ENDED)
        self._endings.end(held, DoneReason.DONE_REASON_COMPLETED)

    def _paused(self, run: Run) -> None:
        self._look(run.lane)

    def _look(self, lane: str) -> None:
        """Checks the create that waits first in a lane that is held, or tells it so.

        The hold lasts until the create turns out valid: one that is refused has changed nothing.
        """
        if lane in self._looking:
            # Reached by what the loop below refused.
            return
        self._looking.append(lane)
        while (held := self._lanes.current(lane)) is not None and held.phase is Phase.PAUSED:
            head = self._lanes.head(lane)
            if head is None or head.phase is not Phase.QUEUED:
                break
            if head.previous_response_id == held.id:
                self._begin_one(head)
                continue
            head.move(Fact.REFUSED, Phase.ENDED)
            head.clear_deadlines()
            self._context.rejected(head.request_id, head.lane, self._held(held).error)
            self._ended(head)
        self._looking.remove(lane)

    def _drop_request(self, run: Run) -> None:
        run.request = None
        self._context.request_bytes -= run.request_bytes
        run.request_bytes = 0

    def _timed_out(self, run: Run) -> None:
        message = "The response took longer than its total time-out."
        self._give_up(run, make_error("response_timeout", message))

    def _hold_timed_out(self, run: Run) -> None:
        message = "No tool output came in time. Continue from the response with previous_response_id."
        self._give_up(run, make_error("hold_timeout", message))

    def _give_up(self, run: Run, error: Error) -> None:
        self._passes.stop(run, Fact.TIMED_OUT, DoneReason.DONE_REASON_FAILED, error)

    def _forget(self, run: Run) -> None:
        context = self._context
        del context.runs[run.handle]
        del context.by_id[run.id]
        # It refers back to the run, which would be left to the garbage collector, with all that its turn has built.
        run.assembler = None
        context.held -= run.hold
        context.last_ended = context.now
        self._drop_request(run)
        context.release(run.previous_response_id)

    def _ended(self, run: Run) -> None:
        self._forget(run)
        self._begin(self._lanes.leave(run))
        self._look(run.lane)
