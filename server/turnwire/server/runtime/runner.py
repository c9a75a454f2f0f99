"""Runs one session: feeds facts to the core, carries out its effects, and hands out batches.

Everything here runs on the event loop's thread, except the preparation of large requests. A door calls `receive` for
every message and `next_batch` in a loop of its own; no other coordination is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Final

from turnwire.server.engine.port import Generation
from turnwire.server.runtime.clock import Timer
from turnwire.server.runtime.services import FEATURES, THREAD_BYTES, Services
from turnwire.server.session.chunks import CallEnd, Chunk, EngineFailure, Finish
from turnwire.server.session.context import SessionConfig
from turnwire.server.session.effects import (
    AbortPass,
    CancelTools,
    Close,
    Effect,
    Hydrate,
    ListTools,
    PassEnded,
    PausePass,
    Persist,
    Prepare,
    PrepareAppend,
    Refused,
    ResponseEnded,
    ResumePass,
    RunTool,
    StartPass,
    ToolResult,
)
from turnwire.server.session.hosted import Listed
from turnwire.server.session.session import Session
from turnwire.v1 import ids
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error
from turnwire.v1.responses_service_pb2 import ConnectResponse

_log: Final = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 64 * 1024


class _PassSink:
    """Takes a pass's output from its engine."""

    __slots__ = ("_last", "_pass_id", "_runner")

    def __init__(self, runner: SessionRunner, pass_id: int) -> None:
        self._runner = runner
        self._pass_id = pass_id
        self._last: float | None = None

    def output(self, chunks: Sequence[Chunk]) -> None:
        runner = self._runner
        now = runner.services.clock.now()
        if self._last is not None:
            tokens = 0
            for chunk in chunks:
                if not isinstance(chunk, CallEnd):
                    tokens += chunk.tokens
            runner.services.observer.observe_gap(now - self._last, tokens)
        self._last = now
        try:
            runner.session.engine_output(now, self._pass_id, chunks)
            runner.settle()
        except Exception:
            runner.crashed()

    def ended(self, outcome: Finish | EngineFailure) -> None:
        runner = self._runner
        runner.forget_pass(self._pass_id)
        if isinstance(outcome, EngineFailure):
            runner.services.observer.engine_error(outcome.code)
        try:
            runner.session.engine_ended(runner.services.clock.now(), self._pass_id, outcome)
            runner.settle()
        except Exception:
            runner.crashed()


class SessionRunner:
    """One session at work."""

    def __init__(self, services: Services, principal: str, door: str) -> None:
        """Starts a session for a principal, behind a door named for metrics."""
        self.services = services
        self.door = door
        clock = services.clock
        now = clock.now()
        wall = clock.wall()
        self.session = Session(
            SessionConfig(
                session_id=services.ids.new(ids.SESSION, wall),
                principal=principal,
                ids=services.ids,
                epoch=wall - now,
                limits=services.limits,
                tool_sets=services.tool_sets,
                server=services.server,
                features=FEATURES,
                batch_window=services.batch_window,
                retention=services.retention,
            ),
            now,
        )
        self.close_error: Error | None = None
        """Why the stream has to end, once `next_batch` has returned None; None means well."""
        self.on_cut: Callable[[], object] | None = None
        """Hears that the stream has to end whether or not the client takes what is being written."""
        self._generations: dict[int, Generation] = {}
        self._tools: dict[int, set[asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._wake = asyncio.Event()
        self._relief = asyncio.Event()
        self._relief.set()
        self._window: Timer | None = None
        self._linger: Timer | None = None
        self._ending = False
        """Whether the stream ends once everything was sent."""
        self._cut = False
        """Whether the stream ends without sending anything more."""
        self._over = False
        """Whether the session was let go."""
        self._settling = False
        services.sessions[self.session.id] = self.session
        services.observer.session_opened(door)
        self._set_timer()

    # Facts

    def receive(self, request: ConnectRequest, size: int) -> None:
        """Takes a client event of `size` bytes; carried out as far as it can be before this returns."""
        if self._over:
            return
        self.services.observer.received(self.door, size)
        try:
            self.session.receive(self.services.clock.now(), request, size)
            self.settle()
        except Exception:
            self.crashed()

    async def room(self) -> None:
        """Waits until the client's answers are taken; a client that floods and does not read is read no more.

        Safe to cancel.
        """
        await self._relief.wait()

    def break_off(self, error: Error) -> None:
        """Ends the stream with a status, because the client broke a rule of the transport. The first reason counts."""
        if self._cut:
            return
        self.close_error = error
        self._cut = True
        self._wake.set()
        if self.on_cut is not None:
            self.on_cut()

    def crashed(self) -> None:
        """Ends the stream because of the exception at hand: a bug, after which the session cannot be trusted.

        It goes no further, since who called (an engine, a timer) serves other sessions too.
        """
        _log.exception("a session failed")
        self.break_off(_bug())

    def half_closed(self) -> None:
        """Hears that the client sends nothing more."""
        if self._over:
            return
        try:
            self.session.half_closed(self.services.clock.now())
            self.settle()
        except Exception:
            self.crashed()

    def go_away(self, reason: str, grace: float, retry_after: float) -> None:
        """Asks the client to go to another connection."""
        if self._over:
            return
        try:
            self.session.go_away(self.services.clock.now(), reason, grace, retry_after)
            self.settle()
        except Exception:
            self.crashed()

    def abandon(self) -> None:
        """Ends the session at once, because its client is gone or its stream is over. Idempotent."""
        if self._over:
            return
        try:
            self.session.lost(self.services.clock.now())
            self.settle()
        except Exception:
            # What follows frees everything whatever state the session is in.
            self.crashed()
        self._over = True
        for timer in (self._timer, self._window, self._linger):
            if timer is not None:
                timer.cancel()
        self._timer = self._window = self._linger = None
        for generation in self._generations.values():
            generation.abort()
        self._generations.clear()
        for task in self._tasks:
            task.cancel()
        self._wake.set()
        self._relief.set()
        self.services.sessions.pop(self.session.id, None)
        self.services.observer.session_closed(self.door)

    def settle(self) -> None:
        """Carries out effects until there are none, then lets the writer and the timer know."""
        if self._settling:
            # Reached from an effect of the loop below, which takes what this call brought.
            return
        self._settling = True
        try:
            while effects := self.session.effects():
                for effect in effects:
                    self._carry_out(effect)
        finally:
            self._settling = False
        if self._over:
            return
        if self.session.sendable:
            self._announce()
        if self.session.flooded:
            self._relief.clear()
        self._set_timer()

    def _announce(self) -> None:
        """Wakes the writer, at once or when the batch window has passed."""
        window = self.session.batch_window
        if window <= 0 or self.session.urgent:
            self._wake.set()
        elif self._window is None:
            self._window = self.services.clock.call_at(self.services.clock.now() + window, self._window_passed)

    def _window_passed(self) -> None:
        self._window = None
        self._wake.set()

    # Batches

    async def next_batch(self) -> ConnectResponse | None:
        """Waits for the next batch; None when the stream has to end, see `close_error`.

        Safe to cancel: nothing is taken from the session before it is returned.
        """
        session = self.session
        while not self._over and not self._cut:
            if self._wake.is_set() or self._ending:
                self._wake.clear()
                batch = session.pull(self.services.clock.now(), MAX_BATCH_BYTES)
                self.settle()
                if not session.flooded:
                    self._relief.set()
                if batch is not None:
                    if session.sendable:
                        self._wake.set()
                    return batch
                # What waits for credit is still owed.
                if self._ending and session.drained:
                    return None
            await self._wake.wait()
        return None

    def sent(self, size: int, events: int) -> None:
        """Hears the wire size of the batch that `next_batch` returned last."""
        self.session.sent(size)
        self.services.observer.sent(self.door, size, events)

    # Effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case StartPass():
                self._start(effect)
            case Prepare():
                self._prepare(effect)
            case PrepareAppend():
                self._prepare_append(effect)
            case Hydrate():
                self._spawn(self._hydrate(effect))
            case AbortPass(pass_id=pass_id):
                generation = self._generations.pop(pass_id, None)
                if generation is not None:
                    generation.abort()
            case PausePass(pass_id=pass_id):
                self.services.observer.credit_stall()
                generation = self._generations.get(pass_id)
                if generation is not None:
                    generation.pause()
            case ResumePass(pass_id=pass_id):
                generation = self._generations.get(pass_id)
                if generation is not None:
                    generation.resume()
            case RunTool():
                self._host(effect.pass_id, self._tool(effect))
            case ListTools():
                self._host(effect.pass_id, self._list(effect))
            case CancelTools(pass_id=pass_id):
                for task in self._tools.pop(pass_id, ()):
                    task.cancel()
            case Persist(state=state):
                self.services.store.put(state)
            case Refused(code=code):
                self.services.observer.rejected(code)
            case ResponseEnded():
                self.services.observer.response_ended(effect)
            case PassEnded():
                self.services.observer.pass_ended(effect)
            case Close(code=code, message=message):
                self._ending = True
                if code:
                    # What the client does not take must not keep the stream alive.
                    self.break_off(make_error(code, message))
                elif self._linger is None:
                    patience = self.services.clock.now() + self.services.limits.stall_timeout
                    self._linger = self.services.clock.call_at(patience, self._not_taken)
                self._wake.set()

    def _not_taken(self) -> None:
        self._linger = None
        self.break_off(make_error("slow_consumer", "The client did not take the end of the session."))

    def _start(self, effect: StartPass) -> None:
        prompt = effect.prompt
        engine = self.services.engines.engine(prompt.model)
        if engine is None:
            message = f"The model '{prompt.model}' is not served any more."
            self._pass_failed(prompt.pass_id, EngineFailure("engine_unavailable", message, 1.0))
            return
        try:
            generation = engine.start(prompt, _PassSink(self, prompt.pass_id))
        except Exception:
            _log.exception("engine %s failed to start a pass", engine.name)
            self._pass_failed(prompt.pass_id, EngineFailure("server_error", "The engine failed to start."))
            return
        self._generations[prompt.pass_id] = generation

    def _pass_failed(self, pass_id: int, failure: EngineFailure) -> None:
        self.services.observer.engine_error(failure.code)
        self.session.engine_ended(self.services.clock.now(), pass_id, failure)

    def forget_pass(self, pass_id: int) -> None:
        """Lets go of a pass that its engine ended."""
        self._generations.pop(pass_id, None)

    def _prepare(self, effect: Prepare) -> None:
        if effect.size > THREAD_BYTES:
            self._spawn(self._prepare_apart(effect))
            return
        now = self.services.clock.now
        try:
            ready = self.services.policy.prepare(effect)
        except Exception as error:
            self.session.refused(now(), effect.handle, _refusal(error))
            return
        self.session.prepared(now(), effect.handle, ready)

    async def _prepare_apart(self, effect: Prepare) -> None:
        now = self.services.clock.now
        try:
            ready = await asyncio.to_thread(self.services.policy.prepare, effect)
        except Exception as error:
            self.session.refused(now(), effect.handle, _refusal(error))
        else:
            self.session.prepared(now(), effect.handle, ready)
        self.settle()

    def _prepare_append(self, effect: PrepareAppend) -> None:
        if effect.size > THREAD_BYTES:
            self._spawn(self._prepare_append_apart(effect))
            return
        now = self.services.clock.now
        try:
            entries = self.services.policy.prepare_append(list(effect.items))
        except Exception as error:
            self.session.append_refused(now(), effect.handle, effect.ticket, _refusal(error))
            return
        self.session.append_prepared(now(), effect.handle, effect.ticket, entries)

    async def _prepare_append_apart(self, effect: PrepareAppend) -> None:
        now = self.services.clock.now
        try:
            entries = await asyncio.to_thread(self.services.policy.prepare_append, list(effect.items))
        except Exception as error:
            self.session.append_refused(now(), effect.handle, effect.ticket, _refusal(error))
        else:
            self.session.append_prepared(now(), effect.handle, effect.ticket, entries)
        self.settle()

    async def _hydrate(self, effect: Hydrate) -> None:
        state = None
        try:
            state = await self.services.store.get(self.session.principal, effect.response_id)
        except Exception:
            _log.exception("the store failed to find a response")
        self.session.hydrated(self.services.clock.now(), effect.handle, state)
        self.settle()

    def _host(self, pass_id: int, work: Coroutine[None, None, None]) -> None:
        task = self._spawn(work)
        tasks = self._tools.setdefault(pass_id, set())
        tasks.add(task)

        def forget(done: asyncio.Task[None]) -> None:
            tasks.discard(done)
            if not tasks and self._tools.get(pass_id) is tasks:
                del self._tools[pass_id]

        task.add_done_callback(forget)

    async def _tool(self, effect: RunTool) -> None:
        try:
            tools = effect.tools.parsed()
            result = await self.services.tools.run(effect.target, effect.arguments, tools, self.session.principal)
        except Exception:
            _log.exception("hosted tool %s failed", effect.name)
            result = ToolResult(f"The tool '{effect.name}' failed.", failed=True)
        if result.tokens == 0:
            result = replace(result, tokens=self.services.count_tokens(result.output))
        self.session.tool_finished(self.services.clock.now(), effect.pass_id, effect.call_id, result)
        self.settle()

    async def _list(self, effect: ListTools) -> None:
        try:
            tools = effect.tools.parsed()
            listed = await self.services.tools.list_tools(effect.label, tools, self.session.principal)
        except Exception:
            _log.exception("the tools of MCP server %s could not be listed", effect.label)
            listed = Listed((), "The server's tools could not be listed.")
        self.session.tool_finished(self.services.clock.now(), effect.pass_id, effect.call_id, listed)
        self.settle()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: the response it belonged to cannot go on, and neither can the session be trusted.
            _log.error("a session task failed", exc_info=error)
            self.break_off(_bug())

    # Time

    def _set_timer(self) -> None:
        when = self.session.next_deadline()
        if when is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            # An earlier timer that finds nothing to do sets the next one; only later ones must be replaced.
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.services.clock.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._over:
            return
        try:
            self.session.tick(self.services.clock.now())
            self.settle()
        except Exception:
            self.crashed()


def _bug() -> Error:
    return make_error("server_error", "The server failed. Open another connection.")


def _refusal(error: Exception) -> Error:
    """Turns what a check raised into the answer: a check that is broken must not end the other lanes."""
    if isinstance(error, RequestError):
        return error.error
    _log.error("a request could not be checked", exc_info=error)
    return make_error("server_error", "The server failed to check the request.")
