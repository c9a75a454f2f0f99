"""Carries out the effects of one session through the ports: engines, policy, store and hosted tools.

Above it: the runner, which hands it effects and hears when facts have been reported. What fails here becomes a fact, so
that one broken part never ends the other lanes; what fails in the core itself ends the session, and only that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Final, Protocol

from turnwire.server.engine.port import Generation
from turnwire.server.media.found import MediaWanted
from turnwire.server.media.parts import has_media
from turnwire.server.runtime.fitting import Fitting, fitting
from turnwire.server.runtime.media import append_prepared_apart, prepared_apart
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.shortening import compact_transcript
from turnwire.server.runtime.threads import THREAD_BYTES
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
from turnwire.server.session.effects import (
    AbortPass,
    CancelTools,
    Close,
    Compact,
    Compacted,
    Effect,
    Hydrate,
    ListTools,
    PassEnded,
    PausePass,
    Persist,
    Prepare,
    PrepareAppend,
    Prepared,
    Refused,
    ResponseEnded,
    ResumePass,
    RunTool,
    StartPass,
    ToolResult,
)
from turnwire.server.session.hosted import Listed
from turnwire.server.session.screens import Classify, Flagged
from turnwire.server.session.session import Session
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error

_log: Final = logging.getLogger(__name__)


class Owner(Protocol):
    """Who runs the session."""

    def settle(self) -> None:
        """Hears that a fact was reported outside of `carry_out`."""

    def crashed(self) -> None:
        """Hears, within an `except`, that the core failed."""

    def finish(self, close: Close) -> None:
        """Ends the stream."""


class _PassSink:
    """Takes a pass's output from its engine."""

    __slots__ = ("_carrier", "_last", "_now", "_observe_gap", "_pass_id")

    def __init__(self, carrier: Carrier, pass_id: int) -> None:
        self._carrier = carrier
        self._pass_id = pass_id
        self._last: float | None = None
        # Looked up once, since `output` is called for every token.
        self._now = carrier.services.clock.now
        self._observe_gap = carrier.services.observer.observe_gap

    def output(self, chunks: Sequence[Chunk]) -> None:
        carrier = self._carrier
        now = self._now()
        last = self._last
        if last is not None:
            tokens = 0
            for chunk in chunks:
                tokens += chunk.tokens
            self._observe_gap(now - last, tokens)
        self._last = now
        try:
            carrier.session.engine_output(now, self._pass_id, chunks)
            carrier.owner.settle()
        except Exception:
            carrier.owner.crashed()

    def ended(self, outcome: Finish | EngineFailure) -> None:
        carrier = self._carrier
        carrier.forget_pass(self._pass_id)
        if isinstance(outcome, EngineFailure):
            carrier.services.observer.engine_error(outcome.code)
        try:
            carrier.session.engine_ended(carrier.services.clock.now(), self._pass_id, outcome)
            carrier.owner.settle()
        except Exception:
            carrier.owner.crashed()


class Carrier:
    """The hands of one session."""

    __slots__ = ("_generations", "_tasks", "_tools", "owner", "services", "session")

    def __init__(self, services: Services, session: Session, owner: Owner) -> None:
        """Takes the ports, the session whose effects these are, and who runs it."""
        self.services = services
        self.session = session
        self.owner = owner
        self._generations: dict[int, Generation] = {}
        self._tools: dict[int, set[asyncio.Task[None]]] = {}
        # A dictionary, since an empty set takes three times the memory of an empty dictionary.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def release(self) -> None:
        """Frees every engine and stops every task. Idempotent."""
        for generation in self._generations.values():
            generation.abort()
        self._generations.clear()
        for task in self._tasks:
            task.cancel()

    def forget_pass(self, pass_id: int) -> None:
        """Lets go of a pass that its engine ended."""
        self._generations.pop(pass_id, None)

    def carry_out(self, effect: Effect) -> None:
        """Carries out one effect, or starts to. Facts that are known at once are reported before it returns."""
        match effect:
            case StartPass():
                self._start(effect)
            case Prepare():
                self._admit(effect)
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
            case Compact():
                self._host(effect.pass_id, self._compact(effect))
            case CancelTools(pass_id=pass_id):
                for task in self._tools.pop(pass_id, ()):
                    task.cancel()
            case Persist(state=state, recorded=recorded):
                self.services.store.put(state)
                if not recorded:
                    self.services.ledger.save(state)
            case Refused(code=code):
                self.services.observer.rejected(code)
            case ResponseEnded():
                self.services.observer.response_ended(effect)
            case PassEnded():
                self.services.observer.pass_ended(effect)
            case Classify():
                self._spawn(self._classify(effect))
            case Flagged():
                self.services.guard.flagged(effect)
            case Close():
                self.owner.finish(effect)

    def _start(self, effect: StartPass) -> None:
        prompt = effect.prompt
        engine = self.services.engines.engine(prompt.model)
        if engine is None:
            message = f"The model '{prompt.model}' is not served any more."
            self._pass_failed(prompt.pass_id, EngineFailure("engine_unavailable", message, 1.0))
            return
        try:
            self.services.anew(prompt)
            generation = engine.start(prompt, _PassSink(self, prompt.pass_id))
        except Exception:
            _log.exception("engine %s failed to start a pass", engine.name)
            self._pass_failed(prompt.pass_id, EngineFailure("server_error", "The engine failed to start."))
            return
        self._generations[prompt.pass_id] = generation
        self.session.engine_started(self.services.clock.now(), prompt.pass_id)

    def _pass_failed(self, pass_id: int, failure: EngineFailure) -> None:
        self.services.observer.engine_error(failure.code)
        self.session.engine_ended(self.services.clock.now(), pass_id, failure)

    def _admit(self, effect: Prepare) -> None:
        try:
            self.services.ledger.admit(effect.principal)
        except Exception as error:
            self.session.refused(self.services.clock.now(), effect.handle, _refusal(error))
            return
        self._prepare(effect)

    def _prepare(self, effect: Prepare) -> None:
        # However small they are, images take a while to decode.
        if effect.size > THREAD_BYTES or has_media(effect.items):
            self._spawn(self._prepare_apart(effect))
            return
        now = self.services.clock.now
        try:
            ready = self.services.policy.prepare(effect)
            counting = fitting(self.services.engines, effect, ready)
        except MediaWanted:
            # Only what an item stands for told of it.
            self._spawn(self._prepare_apart(effect))
            return
        except Exception as error:
            self.session.refused(now(), effect.handle, _refusal(error))
            return
        if counting is not None:
            self._spawn(self._prepare_counted(effect, ready, counting))
            return
        self.session.prepared(now(), effect.handle, ready)

    async def _prepare_apart(self, effect: Prepare) -> None:
        try:
            ready = await prepared_apart(self.services.policy, self.services.media, effect)
            counting = fitting(self.services.engines, effect, ready)
        except Exception as error:
            self.session.refused(self.services.clock.now(), effect.handle, _refusal(error))
            self.owner.settle()
            return
        await self._prepare_counted(effect, ready, counting)

    async def _prepare_counted(self, effect: Prepare, ready: Prepared, counting: Fitting | None) -> None:
        now = self.services.clock.now
        try:
            if counting is not None:
                ready = await counting.fitted()
        except Exception as error:
            self.session.refused(now(), effect.handle, _refusal(error))
        else:
            self.session.prepared(now(), effect.handle, ready)
        self.owner.settle()

    def _prepare_append(self, effect: PrepareAppend) -> None:
        if effect.size > THREAD_BYTES or has_media(effect.items):
            self._spawn(self._prepare_append_apart(effect))
            return
        now = self.services.clock.now
        try:
            entries = self.services.policy.prepare_append(effect.items, effect.visits, effect.conversations)
        except Exception as error:
            self.session.append_refused(now(), effect.handle, effect.ticket, _refusal(error))
            return
        self.session.append_prepared(now(), effect.handle, effect.ticket, entries)

    async def _prepare_append_apart(self, effect: PrepareAppend) -> None:
        now = self.services.clock.now
        try:
            services = self.services
            entries = await append_prepared_apart(services.policy, services.media, effect, self.session.principal)
        except Exception as error:
            self.session.append_refused(now(), effect.handle, effect.ticket, _refusal(error))
        else:
            self.session.append_prepared(now(), effect.handle, effect.ticket, entries)
        self.owner.settle()

    async def _hydrate(self, effect: Hydrate) -> None:
        state = None
        try:
            state = await self.services.store.get(self.session.principal, effect.response_id)
        except Exception:
            _log.exception("the store failed to find a response")
        if state is not None:
            self.session.visits.note("hydrate", state.transcript.length, state.transcript.bytes)
        self.session.hydrated(self.services.clock.now(), effect.handle, state)
        self.owner.settle()

    async def _classify(self, effect: Classify) -> None:
        verdict = await self.services.guard.judge(effect)
        now = self.services.clock.now()
        self.session.verdict(now, effect.handle, effect.ticket, verdict, effect.direction)
        self.owner.settle()

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
            count = self.services.count_tokens
            large = len(result.output) > THREAD_BYTES
            tokens = await asyncio.to_thread(count, result.output) if large else count(result.output)
            result = replace(result, tokens=tokens)
        safety = self.services.guard.safety
        if safety is not None and safety.screener is not None and len(result.output) > THREAD_BYTES:
            screened = await asyncio.to_thread(safety.screener.screen_text, result.output)
            result = replace(result, screened=screened)
        self.session.tool_finished(self.services.clock.now(), effect.pass_id, effect.call_id, result)
        self.owner.settle()

    async def _list(self, effect: ListTools) -> None:
        try:
            tools = effect.tools.parsed()
            listed = await self.services.tools.list_tools(effect.label, tools, self.session.principal)
        except Exception:
            _log.exception("the tools of MCP server %s could not be listed", effect.label)
            listed = Listed((), "The server's tools could not be listed.")
        self.session.tool_finished(self.services.clock.now(), effect.pass_id, effect.call_id, listed)
        self.owner.settle()

    async def _compact(self, effect: Compact) -> None:
        made: Compacted | None = None
        try:
            made = await compact_transcript(self.services, effect)
        except Exception:
            _log.exception("a conversation could not be compacted")
        self.session.compacted(self.services.clock.now(), effect.pass_id, made)
        self.owner.settle()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: the response it belonged to cannot go on, and neither can the session be trusted.
            try:
                raise error
            except Exception:
                self.owner.crashed()


def _refusal(error: Exception) -> Error:
    """Turns what a check raised into the answer: a check that is broken must not end the other lanes."""
    if isinstance(error, RequestError):
        return error.error
    _log.error("a request could not be checked", exc_info=error)
    return make_error("server_error", "The server failed to check the request.")
