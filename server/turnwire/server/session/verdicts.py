"""Verdicts: what happens when something is flagged, and what waits until it is known that nothing is.

Above it: passes, creates and appends, which ask before they go on. Below it: the watch of each response, and the
classifiers' port.

- Input is looked at by the local classifier while the request is checked, so its flags refuse the request before a
  response exists. What is classified elsewhere is asked for when inference starts, not before; its flags fail the
  response. Appends wait for the answer instead: what they bring is part of the next checkpoint.
- Output is looked at while it comes. A flag ends the response as incomplete, with what had left before.
- As a gate, nothing of the output leaves before the input's verdict is there, nor before it was looked at itself, nor
  while it may be the beginning of something that is to be stopped. Otherwise flags are counted, and stop nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final, Protocol

from turnwire.server.session.chunks import Chunk, EngineFailure, Finish, FinishReason
from turnwire.server.session.context import Context
from turnwire.server.session.effects import AbortPass, PausePass, Prepared, ToolResult
from turnwire.server.session.hosted import Listed
from turnwire.server.session.run import Run
from turnwire.server.session.screens import SILENCE, Classify, Direction, Flagged, Hit, Overlap, Screened, Verdict
from turnwire.server.session.states import Fact
from turnwire.server.session.transcript import Entry, Transcript
from turnwire.server.session.watch import Pending, Watch, last_entries
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import make_error
from turnwire.v1.response_pb2 import DoneReason, ResponseCreate

METADATA_KEY: Final = "turnwire_flags"
"""Key of a response's metadata that names the categories that were flagged and stopped nothing."""


class Carrying(Protocol):
    """Who carries responses through their passes."""

    def take(self, run: Run, chunks: Sequence[Chunk]) -> None:
        """Takes output that may leave."""
        ...

    def conclude(self, run: Run, outcome: Finish | EngineFailure) -> None:
        """Takes the end of a pass."""
        ...

    def stop(self, run: Run, fact: Fact, reason: DoneReason.ValueType, error: Error | None = None) -> None:
        """Ends a response before its time."""
        ...

    def relieve(self, run: Run) -> None:
        """Lets an engine go on whose output is taken again."""
        ...


class Verdicts:
    """Decides by what classifiers say."""

    __slots__ = ("_context", "_passes", "_safety", "_tickets")

    def __init__(self, context: Context, passes: Carrying) -> None:
        """Takes what the session shares, and who carries out what is decided."""
        self._context = context
        self._passes = passes
        self._safety = context.config.safety
        self._tickets = count(1)

    # Input

    def admit(self, run: Run, ready: Prepared) -> Error | None:
        """Looks at what a request brings; returns why it is refused, if it is."""
        safety = self._safety
        if safety is None:
            return None
        run.watch = watch = Watch()
        history = ready.known.transcript if ready.known is not None else run.transcript
        hits: tuple[Hit, ...] = ready.hits
        if safety.screener is not None:
            watch.overlap, found = self._follow(history, ready.entries)
            hits += found
        return self._judged(run, hits, Direction.INPUT)

    def admitted(self, run: Run, before: Transcript) -> None:
        """Hears that the request became a response, whose transcript goes on from another; asks elsewhere."""
        if run.watch is None:
            return
        run.transcript.overlap = run.watch.overlap
        entries = tuple(before.walk()) + run.input if self._whole else run.input
        if entries and self._asks(Direction.INPUT):
            self._ask(run, Pending(Direction.INPUT), Classify(run.handle, 0, Direction.INPUT, entries, before=before))

    @property
    def _whole(self) -> bool:
        return self._safety is not None and self._safety.whole

    def _asks(self, direction: Direction) -> bool:
        return self._safety is not None and direction in self._safety.remote

    def _gate(self) -> bool:
        return self._safety is not None and self._safety.gate

    def _follow(self, history: Transcript, entries: Sequence[Entry]) -> tuple[Overlap, tuple[Hit, ...]]:
        safety = self._safety
        assert safety is not None
        assert safety.screener is not None
        if safety.whole:
            past = list(history.walk())
            self._context.config.visits.note("classify", len(past), history.bytes)
            return safety.screener.follow(SILENCE, [*self._screened(past), *self._screened(entries)])
        overlap = history.overlap
        if overlap is None:
            overlap = self._recalled(history)
        return safety.screener.follow(overlap, self._screened(entries))

    def _screened(self, entries: Iterable[Entry]) -> list[Screened]:
        screener = None if self._safety is None else self._safety.screener
        assert screener is not None
        found: list[Screened] = []
        for entry in entries:
            found += screener.screen(entry.item()) if entry.screened is None else entry.screened
            # It was needed once; what is remembered is the overlap.
            entry.screened = None
        return found

    def _recalled(self, history: Transcript) -> Overlap:
        """Returns what was said last in a chain that does not remember it, looking at little of it."""
        assert self._safety is not None
        assert self._safety.screener is not None
        last = last_entries(history)
        self._context.config.visits.note("classify", len(last), sum(len(entry.data) for entry in last))
        return self._safety.screener.follow(SILENCE, self._screened(last))[0]

    def append(self, run: Run, entries: Sequence[Entry]) -> Error | None:
        """Looks at what is appended to a response; returns why it is refused, if it is."""
        watch = run.watch
        if watch is None or self._safety is None or self._safety.screener is None:
            return None
        overlap, hits = self._safety.screener.follow(watch.overlap, self._screened(entries))
        error = self._judged(run, hits, Direction.INPUT)
        if error is None:
            watch.overlap = watch.overlap._replace(client=overlap.client)
        return error

    def ask_about_append(self, run: Run, entries: tuple[Entry, ...], then: Callable[[Error | None], None]) -> bool:
        """Has appended items classified elsewhere, if they are to be; says whether `then` will hear of it."""
        if run.watch is None or not self._asks(Direction.INPUT):
            return False
        question = Classify(run.handle, 0, Direction.INPUT, entries, before=run.transcript)
        if not self._gate():
            self._ask(run, Pending(Direction.INPUT), question)
            return False

        def answered(verdict: Verdict) -> None:
            then(self._failure(verdict) or self._judged(run, verdict.hits, Direction.INPUT))

        self._ask(run, Pending(Direction.INPUT, then=answered), question)
        return True

    def tool(self, run: Run, result: ToolResult | Listed, then: Callable[[], None]) -> None:
        """Looks at what a hosted tool brought, or a server listed; goes on by `then` if nothing is wrong with it."""
        safety = self._safety
        watch = run.watch
        if safety is None or watch is None:
            then()
            return
        texts = result.tools if isinstance(result, Listed) else (result.output, result.results)
        if safety.screener is not None:
            screened = () if isinstance(result, Listed) else result.screened
            for text in texts[1:] if screened else texts:
                screened += safety.screener.screen_text(text)
            self._context.config.visits.note("classify", 1, sum(map(len, texts)))
            overlap, hits = safety.screener.follow(watch.overlap, screened)
            error = self._judged(run, hits, Direction.INPUT)
            if error is not None:
                self._fail(run, error)
                return
            watch.overlap = watch.overlap._replace(client=overlap.client)
        if not self._asks(Direction.INPUT):
            then()
            return
        question = Classify(run.handle, 0, Direction.INPUT, text="\n".join(texts))
        if not safety.gate:
            self._ask(run, Pending(Direction.INPUT), question)
            then()
            return

        def answered(verdict: Verdict) -> None:
            error = self._failure(verdict) or self._judged(run, verdict.hits, Direction.INPUT)
            if error is not None:
                self._fail(run, error)
            else:
                then()

        self._ask(run, Pending(Direction.INPUT, then=answered), question)

    def postpones(self, run: Run, then: Callable[[], None]) -> bool:
        """Whether something has to wait for the input's verdict, after which it is done by `then`."""
        watch = run.watch
        if watch is None or not self._gate() or not watch.asks_about_input:
            return False
        watch.postponed = then
        return True

    # Output

    def begin(self, run: Run) -> None:
        """Hears that a pass begins."""
        if run.watch is not None and self._safety is not None:
            run.watch.begin(self._safety.screener)

    def output(self, run: Run, chunks: Sequence[Chunk]) -> None:
        """Takes output of a response that is watched, and hands on what may leave."""
        watch = run.watch
        assert watch is not None
        if not self._gate():
            found = [hit for chunk in chunks for hit in watch.look(chunk)]
            self._passes.take(run, chunks)
            self._judged(run, found, Direction.OUTPUT)
            self._send_piece(run, watch)
            return
        run.set_deadline("first_token", None)
        for chunk in chunks:
            hits = watch.look(chunk)
            if hits and self._judged(run, hits, Direction.OUTPUT) is not None:
                self._cut(run)
                return
            watch.hold(chunk)
        self._send_piece(run, watch)
        self._hand_on(run, watch)

    def _hand_on(self, run: Run, watch: Watch) -> None:
        released = watch.release(asked=self._asks(Direction.OUTPUT))
        if released:
            self._passes.take(run, released)
        if not run.pass_live:
            return
        if watch.held_bytes >= self._context.limits.queue_high_water and not run.engine_paused:
            run.engine_paused = True
            run.clocks.stall_began = self._context.now
            self._context.effects.append(PausePass(run.pass_id))
        elif run.engine_paused:
            self._passes.relieve(run)

    def full(self, run: Run) -> bool:
        """Whether so much of a response's output waits that its engine should not go on."""
        return run.watch is not None and run.watch.held_bytes > self._context.limits.queue_low_water

    def ended(self, run: Run, outcome: Finish | EngineFailure) -> bool:
        """Takes the end of a pass; returns whether it is taken care of, now or later."""
        watch = run.watch
        if watch is None or isinstance(outcome, EngineFailure):
            return False
        hits = watch.finish()
        stopped = self._judged(run, hits, Direction.OUTPUT) is not None if hits else False
        if not self._gate():
            self._send_piece(run, watch)
            return False
        watch.outcome = outcome
        if stopped:
            self._cut(run)
            return True
        run.set_deadline("first_token", None)
        # The engine is free, whatever the pass waits for.
        run.pass_live = run.engine_paused = False
        self._send_piece(run, watch)
        self._go_on(run, watch)
        return True

    def _go_on(self, run: Run, watch: Watch) -> None:
        """Hands on what may leave, and lets the pass end once that is everything."""
        self._hand_on(run, watch)
        if watch.outcome is None or watch.held or watch.pending:
            return
        outcome, watch.outcome = watch.outcome, None
        self._passes.conclude(run, outcome)

    def carry(self, run: Run) -> None:
        """Hears that the transcript of a response has gone on."""
        if run.watch is not None:
            run.transcript.overlap = run.watch.carry()

    def _send_piece(self, run: Run, watch: Watch) -> None:
        """Has output classified elsewhere, once there is enough of it."""
        safety = self._safety
        if safety is None or Direction.OUTPUT not in safety.remote:
            return
        if 0 < watch.unsent_size < safety.piece and not watch.whole:
            return
        start = watch.sent
        text = watch.take_unsent(safety.overlap)
        if text:
            question = Classify(run.handle, 0, Direction.OUTPUT, text=text)
            self._ask(run, Pending(Direction.OUTPUT, start), question)

    # Answers

    def _ask(self, run: Run, pending: Pending, question: Classify) -> None:
        assert run.watch is not None
        ticket = next(self._tickets)
        run.watch.pending[ticket] = pending
        asked = Classify(run.handle, ticket, question.direction, question.entries, question.text, question.before)
        self._context.effects.append(asked)

    def verdict(self, handle: int, ticket: int, verdict: Verdict, direction: Direction) -> None:
        """Takes an answer."""
        run = self._context.runs.get(handle)
        pending = None if run is None or run.watch is None else run.watch.pending.pop(ticket, None)
        if run is None or run.watch is None or pending is None:
            # The response has ended, so there is nothing to stop.
            for hit in verdict.hits:
                self._context.effects.append(Flagged("", direction, hit.category, stopped=False))
            return
        watch = run.watch
        if pending.then is not None:
            pending.then(verdict)
            if self._context.runs.get(handle) is run:
                self._cleared(run, watch)
            return
        error = self._judged(run, verdict.hits, direction)
        if not self._gate():
            return
        if failure := self._failure(verdict):
            self._fail(run, failure)
        elif error is not None and direction is Direction.OUTPUT:
            self._cut(run)
        elif error is not None:
            self._fail(run, error)
        else:
            self._cleared(run, watch)

    def _cleared(self, run: Run, watch: Watch) -> None:
        if watch.asks_about_input:
            return
        then, watch.postponed = watch.postponed, None
        if then is not None:
            then()
        elif run.pass_live or watch.outcome is not None:
            self._go_on(run, watch)

    def _judged(self, run: Run, hits: Iterable[Hit], direction: Direction) -> Error | None:
        """Reports flags; returns the error with which the first one ends the response that does."""
        watch = run.watch
        assert watch is not None
        stopping: Hit | None = None
        told: list[str] = []
        for hit in hits:
            stops = hit.blocks and self._gate()
            if stops and stopping is None:
                stopping = hit
            if (direction, hit.category) in watch.reported:
                continue
            watch.reported.add((direction, hit.category))
            self._context.effects.append(Flagged(run.id, direction, hit.category, stops))
            if not stops:
                told.append(hit.category)
        if told:
            _tell(run, told)
        if stopping is None:
            return None
        message = f"The request was flagged as '{stopping.category}' by the server's safety rules."
        return make_error(stopping.code, message, category=stopping.category)

    def _failure(self, verdict: Verdict) -> Error | None:
        if not verdict.failed:
            return None
        return make_error("server_error", "The server could not have the request classified, and stops for safety.")

    def _fail(self, run: Run, error: Error) -> None:
        self._passes.stop(run, Fact.FLAGGED, DoneReason.DONE_REASON_FAILED, error)

    def _cut(self, run: Run) -> None:
        """Ends a response as incomplete because of what it says; frees the engine before anything else."""
        watch = run.watch
        assert watch is not None
        if run.pass_live:
            self._context.effects.append(AbortPass(run.pass_id))
        run.cut = True
        run.estimated = watch.outcome is None
        usage = watch.cost(run.transcript.tokens, min(run.context_tokens, run.transcript.tokens))
        watch.held.clear()
        watch.held_bytes = 0
        watch.pending.clear()
        watch.outcome = None
        # What was not let out is not said either.
        watch.screen = None
        self._passes.conclude(run, Finish(FinishReason.CONTENT_FILTER, usage))


def _tell(run: Run, categories: Sequence[str]) -> None:
    """Writes flags that stop nothing into the response's metadata, and has that sent."""
    run.echo = True
    settings = ResponseCreate()
    settings.CopyFrom(run.settings)
    known = settings.metadata.get(METADATA_KEY, "")
    told = [*known.split(","), *categories] if known else categories
    settings.metadata[METADATA_KEY] = ",".join(dict.fromkeys(told))[:512]
    run.settings = settings
    run.settings_data = settings.SerializeToString()
