"""Passes of a response: from a prompt in the engine's hands to the next pause or the end.

A pass ends in one of four ways: nothing is called (the response completes), hosted tools are called (they run, then the
next pass begins), client tools are called (the response pauses if it is held, else completes), or the output was cut.
Hosted tools run from the moment their arguments are complete, and are reported before the pause. A pass may have a
prelude: tools of MCP servers that have to be listed first, and calls that the user was asked about.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from turnwire.server.session.assembler import Assembler
from turnwire.server.session.calls import CallKey
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish, FinishReason
from turnwire.server.session.compactions import Compactions
from turnwire.server.session.context import Context
from turnwire.server.session.effects import (
    AbortPass,
    PausePass,
    ResumePass,
    StartPass,
    ToolResult,
)
from turnwire.server.session.endings import Endings
from turnwire.server.session.hosted import Listed
from turnwire.server.session.hosting import Hosting
from turnwire.server.session.listener import RunListener
from turnwire.server.session.offers import offer, offered_settings
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.run import Run, Tally
from turnwire.server.session.states import Fact, Phase
from turnwire.server.session.verdicts import Verdicts
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import ERRORS, make_error
from turnwire.v1.response_pb2 import DoneReason, IncompleteDetails

NO_IDS: Final[array[int]] = array("I")
"""No tokens."""


class Passes:
    """Carries responses through their passes."""

    __slots__ = ("_context", "_endings", "_hosting", "compactions", "on_pause", "verdicts")

    def __init__(self, context: Context, endings: Endings) -> None:
        """Takes what the session shares and who ends responses."""
        self._context = context
        self._endings = endings
        self._hosting = Hosting(context)
        self._hosting.on_finished = self._hosted_finished
        self.compactions = Compactions(context)
        """Conversations that become shorter."""
        self.compactions.on_finished = self._compacted
        self.verdicts = Verdicts(context, self)
        """What classifiers say, and what waits for it."""
        self.on_pause: Callable[[Run], None] = lambda run: None
        """Hears of a response that paused; its lane may have a create waiting that continues from it."""

    def offer(self, run: Run) -> None:
        """Brings what the model is offered in line with the tools that are listed."""
        run.offered = offer(run.tools, run.listings, self._context.config.tool_sets)
        run.offered_settings = offered_settings(run.settings, run.offered)

    def go_on(self, run: Run, fact: Fact) -> None:
        """Moves a response to its next pass, or to the prelude that the pass needs, and begins it."""
        shorter = self.compactions.due(run)
        prelude = shorter or bool(run.unlisted or run.approvals)
        if prelude and self.verdicts.postpones(run, lambda: self.go_on(run, fact)):
            return
        if shorter:
            run.move(fact, Phase.TOOLS)
            self._enter(run)
            self.compactions.begin(run)
        elif prelude:
            run.move(fact, Phase.TOOLS)
            self._enter(run)
            self._hosting.begin_prelude(run)
        else:
            run.move(fact, Phase.SAMPLING)
            self._begin(run)

    def _compacted(self, run: Run) -> None:
        """Goes on to what the compaction preceded."""
        if not run.compact_only:
            self.go_on(run, Fact.TOOLS_FINISHED)
            return
        run.move(Fact.TOOLS_FINISHED, Phase.ENDED)
        self._endings.end(run, DoneReason.DONE_REASON_COMPLETED)

    def _begin(self, run: Run) -> None:
        """Begins the next pass of a response in phase SAMPLING."""
        self._enter(run)
        self._start(run)

    def _enter(self, run: Run) -> None:
        """Makes a response ready for the next pass or its prelude."""
        context = self._context
        run.pass_id = next(context.pass_ids)
        context.by_pass[run.pass_id] = run
        run.pass_live = False
        run.engine_paused = False
        run.pass_calls.clear()
        run.answered.clear()
        run.hosted.clear()
        run.pass_tally = Tally()
        clocks = run.clocks
        clocks.started = clocks.first_token = clocks.stopped = clocks.paused = clocks.stall_began = None
        clocks.stalled = 0.0
        if run.assembler is None:
            run.assembler = Assembler(
                context.outbox,
                run.queue,
                run.verbosity,
                context.max_event_bytes,
                RunListener(context, self._hosting, run),
            )
        run.assembler.output_index = len(run.output)

    def _start(self, run: Run) -> None:
        context = self._context
        run.clocks.started = context.now
        run.pass_live = True
        self.verdicts.begin(run)
        run.passes += 1
        prompt = Prompt(
            pass_id=run.pass_id,
            response_id=run.id,
            model=run.model,
            settings=run.offered_settings,
            tools=run.offered,
            transcript=run.transcript,
            turn=run.transcript.turns,
            input_tokens=run.transcript.tokens,
            cached_tokens=run.context_tokens,
            visits=context.config.visits,
            switches=context.config.switches,
        )
        run.set_deadline(
            "first_token", context.deadlines.at(context.now + self._first_token_timeout(run), self._late(run))
        )
        context.effects.append(StartPass(run.handle, prompt))

    def _first_token_timeout(self, run: Run) -> float:
        return self._endings.timeout(run, "first_token")

    def _late(self, run: Run) -> Callable[[], None]:
        def expire() -> None:
            message = "The model did not start to answer in time."
            error = make_error("first_token_timeout", message)
            self.stop(run, Fact.TIMED_OUT, DoneReason.DONE_REASON_FAILED, error)

        return expire

    def started(self, pass_id: int) -> None:
        """Hears that the engine has its prompt: rendering it and handing it over was work of this server's."""
        run = self._context.by_pass.get(pass_id)
        if run is not None and run.pass_live and run.clocks.first_token is None:
            run.clocks.started = self._context.now

    def output(self, pass_id: int, chunks: Sequence[Chunk]) -> None:
        """Takes output of the engine; of a dead pass it is dropped."""
        run = self._context.by_pass.get(pass_id)
        if run is None or not run.pass_live:
            return
        if run.watch is None:
            self.take(run, chunks)
        else:
            self.verdicts.output(run, chunks)

    def take(self, run: Run, chunks: Sequence[Chunk]) -> None:
        """Takes output that may leave."""
        assert run.assembler is not None
        if run.clocks.first_token is None:
            run.clocks.first_token = self._context.now
            run.set_deadline("first_token", None)
            self._context.outbox.urgent = True
        run.assembler.feed(chunks)
        queue = run.queue
        if (
            run.pass_live
            and not run.engine_paused
            and (queue.blocked or queue.bytes >= self._context.limits.queue_high_water)
        ):
            run.engine_paused = True
            run.clocks.stall_began = self._context.now
            self._context.effects.append(PausePass(run.pass_id))

    def relieve(self, run: Run) -> None:
        """Lets an engine go on whose output is taken again."""
        if (
            run.engine_paused
            and run.pass_live
            and not run.queue.blocked
            and run.queue.bytes <= self._context.limits.queue_low_water
            and not self.verdicts.full(run)
        ):
            run.engine_paused = False
            self._end_stall(run)
            self._context.effects.append(ResumePass(run.pass_id))

    def _end_stall(self, run: Run) -> None:
        clocks = run.clocks
        if clocks.stall_began is not None:
            clocks.stalled += self._context.now - clocks.stall_began
            clocks.stall_began = None

    def ended(self, pass_id: int, outcome: Finish | EngineFailure) -> None:
        """Takes the end of a pass as the engine saw it."""
        run = self._context.by_pass.get(pass_id)
        if run is None or not run.pass_live or self.verdicts.ended(run, outcome):
            return
        self.conclude(run, outcome)

    def conclude(self, run: Run, outcome: Finish | EngineFailure) -> None:
        """Ends a pass of which everything was taken that may leave."""
        run.pass_live = False
        run.clocks.stopped = self._context.now
        self._end_stall(run)
        run.set_deadline("first_token", None)
        if isinstance(outcome, EngineFailure):
            # A code that is not in the table would be an engine's own invention.
            code = outcome.code if outcome.code in ERRORS else "server_error"
            error = make_error(code, outcome.message, retry_after=outcome.retry_after)
            self.stop(run, Fact.FAILED, DoneReason.DONE_REASON_FAILED, error)
            return
        assert run.assembler is not None
        whole = outcome.reason is FinishReason.STOP
        run.assembler.finish(complete=whole)
        usage = outcome.usage
        tally = Tally(
            usage.input_tokens or run.transcript.tokens,
            min(usage.cached_tokens, usage.input_tokens or run.transcript.tokens),
            usage.output_tokens,
            usage.reasoning_tokens,
        )
        run.tally.add(tally)
        run.pass_tally = tally
        run.record = outcome.record
        if outcome.record is not None:
            run.unreported.append(outcome.record)
        # What was sampled and not said is no part of what follows.
        said = sum(entry.tokens for entry in run.pass_entries) if run.cut else tally.output
        run.context_tokens = tally.input + said
        run.beside = max(0, tally.input - run.transcript.tokens)
        if not whole:
            self._hosting.drop(run)
            reason = "max_output_tokens" if outcome.reason is FinishReason.LENGTH else "content_filter"
            self._commit_pass(run)
            run.move(Fact.STOPPED, Phase.ENDED)
            self._endings.end(run, DoneReason.DONE_REASON_INCOMPLETE, incomplete=IncompleteDetails(reason=reason))
            return
        if run.hosted:
            run.move(Fact.STOPPED, Phase.TOOLS)
            self._hosting.flush(run)
        else:
            self._settle(run, Fact.STOPPED)

    def tool_finished(self, pass_id: int, call_id: str, result: ToolResult | Listed) -> None:
        """Takes the outcome of a hosted tool, or a listing; of a dead pass it is dropped."""
        run = self._context.by_pass.get(pass_id)
        if run is not None:
            self.verdicts.tool(run, result, lambda: self._hosting.finished(pass_id, call_id, result))

    def _hosted_finished(self, run: Run) -> None:
        if run.prelude:
            self._prelude_finished(run)
            return
        clocks = run.clocks
        assert clocks.stopped is not None
        clocks.hosted = self._context.now - clocks.stopped
        self._settle(run, Fact.TOOLS_FINISHED, tools_ran=True)

    def _prelude_finished(self, run: Run) -> None:
        """Goes on to the pass that listings and answered calls preceded."""
        context = self._context
        run.prelude = False
        del context.by_pass[run.pass_id]
        run.transcript = run.transcript.extend(run.pass_entries, run.transcript.open_calls)
        self.verdicts.carry(run)
        run.pass_entries.clear()
        run.unlisted = ()
        self.offer(run)
        if context.retention.find(run.id) is not None:
            # What was approved at a pause has happened, and must not happen again after a failure of the next pass.
            self._endings.keeping.commit(run)
        run.move(Fact.TOOLS_FINISHED, Phase.SAMPLING)
        self._begin(run)

    def _settle(self, run: Run, fact: Fact, *, tools_ran: bool = False) -> None:
        """Decides what follows a pass whose hosted tools have finished."""
        missing = [key for key in run.pass_calls if key not in run.answered]
        called = bool(run.pass_calls)
        if (called and not missing) or (tools_ran and not called):
            self._commit_pass(run)
            self._endings.go_on(run)
            run.clocks.begun = self._context.now
            run.clocks.client_wait = 0.0
            self.go_on(run, fact)
        elif missing and run.hold and not self._context.half_closed:
            self._commit_pass(run)
            run.move(fact, Phase.PAUSED)
            self._endings.pause(run)
            self.on_pause(run)
        else:
            self._commit_pass(run)
            run.move(fact, Phase.ENDED)
            self._endings.end(run, DoneReason.DONE_REASON_COMPLETED)

    def _commit_pass(self, run: Run) -> None:
        """Moves what the pass brought, and what was appended meanwhile, into the transcript."""
        still_open = run.transcript.open_calls
        missing = [key for key in run.pass_calls if key not in run.answered]
        if missing:
            still_open = still_open.union(missing)
        entries = [*run.pass_entries, *run.early]
        run.output.extend(run.early)
        run.pass_entries.clear()
        run.early.clear()
        run.approvals += run.early_approvals
        run.early_approvals = ()
        record = run.record
        if record is not None and not run.settings.token_output.in_done:
            # Nobody asks for what was rendered; what was sampled stands in later prompts.
            record = replace(record, rendered=NO_IDS)
        run.transcript = run.transcript.extend(entries, still_open, turns=1, record=record)
        self.verdicts.carry(run)
        self._context.by_pass.pop(run.pass_id, None)

    def stop(self, run: Run, fact: Fact, reason: DoneReason.ValueType, error: Error | None = None) -> None:
        """Ends a response before its time, in whatever phase it is."""
        void = [key.id for key in self._drop(run)]
        run.move(fact, Phase.ENDED)
        self._endings.end(run, reason, error=error, void=void)

    def _drop(self, run: Run) -> list[CallKey]:
        """Frees the engine and the tools of the current pass; what it brought is no part of the transcript.

        Returns:
            The calls whose outputs will not be taken any more.
        """
        context = self._context
        if context.by_pass.pop(run.pass_id, None) is not None and run.pass_live:
            run.pass_live = False
            context.effects.append(AbortPass(run.pass_id))
        self._end_stall(run)
        self._hosting.drop(run)
        void = run.awaiting()
        run.lost = tuple(run.pass_entries)
        self._count_lost(run)
        run.pass_entries.clear()
        run.early.clear()
        run.early_approvals = ()
        if run.phase is not Phase.PAUSED:
            run.pass_calls.clear()
        return void

    def _count_lost(self, run: Run) -> None:
        """Counts what a pass has cost whose engine did not come to say so: its prompt, once a token was sampled from
        it, and what was sampled."""
        known = run.pass_tally
        if run.phase is Phase.PAUSED or run.clocks.started is None or known.input or known.output:
            return
        prompt = run.transcript.tokens
        cached = min(run.context_tokens, prompt)
        if run.watch is not None and (run.watch.tokens or run.watch.outcome is not None):
            # Whatever of it waited for a verdict was sampled all the same.
            usage = run.watch.cost(prompt, cached)
            run.estimated = run.watch.outcome is None
            run.lost_tally = Tally(
                usage.input_tokens or prompt, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens
            )
        elif run.clocks.first_token is not None:
            sampled = sum(entry.tokens for entry in run.lost)
            if run.assembler is not None:
                sampled += run.assembler.open_tokens
            run.lost_tally = Tally(prompt, cached, sampled)
            run.estimated = True
