"""Plays against the pure core: effects are carried out at once, by plain calls.

Above: the tests. Below: the session core.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from turnwire.server.engine.port import Generation
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.policy.prepare import Preparer
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
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
from turnwire.server.store.memory import MemoryStore
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import RequestError, lookup
from turnwire.v1.ids import IdSource

from .hosted import Call, CommandedTools, call_name, listing_name
from .inbox import Doorbell, Inbox
from .transcript import Transcript

_FEATURES = ("append", "fork", "inherit")


class _Sink:
    def __init__(self, seat: _Seat, pass_id: int) -> None:
        self._seat = seat
        self._pass_id = pass_id

    def output(self, chunks: Sequence[Chunk]) -> None:
        self._seat.session.engine_output(self._seat.driver.now, self._pass_id, chunks)

    def ended(self, outcome: Finish | EngineFailure) -> None:
        self._seat.session.engine_ended(self._seat.driver.now, self._pass_id, outcome)


class _Seat:
    """One session and what it has running."""

    def __init__(self, driver: CoreDriver, principal: str, number: int) -> None:
        self.driver = driver
        self.inbox = Inbox(driver.bell)
        self.generations: dict[int, Generation] = {}
        self.tools: dict[int, list[tuple[str, Call]]] = {}
        config = SessionConfig(
            session_id=f"sess_{number}",
            principal=principal,
            ids=driver.ids,
            epoch=1_800_000_000.0,
            limits=driver.transcript.limits,
            features=_FEATURES,
            batch_window=driver.transcript.batch_window,
        )
        self.session = Session(config, driver.now)
        self.closing: Close | None = None


class CoreDriver:
    """A server without asyncio, gRPC or a clock."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.bell = Doorbell()
        self.engine = StepEngine()
        self.tools = CommandedTools(self.bell)
        self.store = MemoryStore()
        self.now = 0.0
        numbers = itertools.count(1)
        self.ids = IdSource(lambda size: next(numbers).to_bytes(size, "big"))
        self._policy = Preparer(
            self._resolve, transcript.limits, count=lambda text: len(text.split()), hosted=self.tools
        )
        self._seats: dict[str, _Seat] = {}

    def _resolve(self, name: str) -> str:
        if name not in {info.id for info in self.engine.models()}:
            raise LookupError(name)
        return name

    async def open(self, name: str, principal: str) -> Inbox:
        """Opens a session under a name of the transcript."""
        seat = self._seats[name] = _Seat(self, principal, len(self._seats) + 1)
        return seat.inbox

    async def send(self, name: str, request: ConnectRequest) -> None:
        """Sends a client event."""
        self._seats[name].session.receive(self.now, request, request.ByteSize())
        await self.settle()

    def expected(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Returns what is said of an event that a transcript expects: just that."""
        return wanted

    async def half_close(self, name: str) -> None:
        """Ends the client's half of the stream."""
        self._seats[name].session.half_closed(self.now)
        await self.settle()

    async def lose(self, name: str) -> None:
        """Breaks the stream as a vanishing client does."""
        seat = self._seats[name]
        seat.session.lost(self.now)
        await self._carry_out_all(seat)
        seat.inbox.end("CANCELLED")

    async def go_away(self, reason: str, grace: float) -> None:
        """Asks all clients to leave."""
        for seat in self._seats.values():
            seat.session.go_away(self.now, reason, grace, 0.0)
        await self.settle()

    async def finish_tool(self, call: Call, result: ToolResult | Listed) -> None:
        """Ends a call of a hosted tool."""
        call.result.set_result(result)
        for seat in self._seats.values():
            for pass_id, calls in seat.tools.items():
                for call_id, running in calls:
                    if running is call:
                        seat.session.tool_finished(self.now, pass_id, call_id, result)
        await self.settle()

    async def advance(self, seconds: float) -> None:
        """Moves the clock from deadline to deadline."""
        end = self.now + seconds
        while True:
            due = [when for seat in self._seats.values() if (when := seat.session.next_deadline()) is not None]
            if not due or min(due) > end:
                break
            self.now = max(self.now, min(due))
            for seat in self._seats.values():
                seat.session.tick(self.now)
            await self.settle()
        self.now = end
        await self.settle()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Checks a condition; nothing is left to wait for."""
        await self.settle()
        assert condition(), f"not so: {what}"

    async def settle(self) -> None:
        """Carries out effects and takes batches until there is nothing left."""
        for seat in self._seats.values():
            busy = not seat.inbox.status
            while busy:
                await self._carry_out_all(seat)
                batch = seat.session.pull(self.now)
                if batch is not None:
                    seat.session.sent(batch.ByteSize())
                    seat.inbox.take(batch)
                busy = batch is not None
                await self._carry_out_all(seat)
            if seat.closing is not None and (seat.closing.code or getattr(seat.session, "drained", True)):
                code = seat.closing.code
                seat.inbox.end(lookup(code).grpc_status if code else "OK")

    def session(self, name: str) -> Session:
        """Returns the core of a session."""
        return self._seats[name].session

    async def _carry_out_all(self, seat: _Seat) -> None:
        while effects := seat.session.effects():
            for effect in effects:
                await self._carry_out(seat, effect)

    async def _carry_out(self, seat: _Seat, effect: Effect) -> None:
        session = seat.session
        match effect:
            case Prepare():
                try:
                    ready = self._policy.prepare(effect)
                except RequestError as refusal:
                    session.refused(self.now, effect.handle, refusal.error)
                else:
                    session.prepared(self.now, effect.handle, ready)
            case PrepareAppend():
                try:
                    entries = self._policy.prepare_append(effect.items)
                except RequestError as refusal:
                    session.append_refused(self.now, effect.handle, effect.ticket, refusal.error)
                else:
                    session.append_prepared(self.now, effect.handle, effect.ticket, entries)
            case Hydrate():
                state = await self.store.get(session.principal, effect.response_id)
                session.hydrated(self.now, effect.handle, state)
            case StartPass(prompt=prompt):
                seat.generations[prompt.pass_id] = self.engine.start(prompt, _Sink(seat, prompt.pass_id))
            case AbortPass(pass_id=pass_id):
                seat.generations.pop(pass_id).abort()
            case PausePass(pass_id=pass_id):
                seat.generations[pass_id].pause()
            case ResumePass(pass_id=pass_id):
                seat.generations[pass_id].resume()
            case RunTool():
                call = self.tools.begin(call_name(effect.target), effect.arguments)
                seat.tools.setdefault(effect.pass_id, []).append((effect.call_id, call))
            case ListTools():
                call = self.tools.begin(listing_name(effect.label), "")
                seat.tools.setdefault(effect.pass_id, []).append((effect.call_id, call))
            case CancelTools(pass_id=pass_id):
                for _, call in seat.tools.pop(pass_id, ()):
                    call.cancelled = not call.result.done()
            case Persist(state=stored):
                self.store.put(stored)
            case Close():
                seat.closing = effect
            case Refused() | ResponseEnded() | PassEnded():
                pass
            case _:
                msg = f"transcripts of the core have nobody who could carry out {effect}"
                raise AssertionError(msg)
