"""Responses that no connection owns: they run apart, and are followed while they run and for a while afterwards.

Above it: `local`. Below it: sessions of one request each, and `one_shot`, which drives them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from turnwire.server.runtime.clock import Clock, Timer
from turnwire.server.runtime.event_log import EventLog, EventsGone
from turnwire.server.runtime.one_shot import one_response
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.session.settings import stores
from turnwire.server.session.state import State
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext, ResponseCancel
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.json.refusal import shown
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, ResponseError, ResponseStatus, Verbosity
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent

DOOR: Final = "background"
"""What metrics call the entrance of these sessions."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackgroundLimits:
    """What background responses may use."""

    max_runs: int = 1_024
    """Responses at work at the same time."""
    max_runs_per_principal: int = 256
    """Responses of one principal at work at the same time."""
    max_log_bytes: int = 16 * 1024 * 1024
    """Bytes of events kept of one response: some 300,000 tokens."""
    max_bytes: int = 256 * 1024 * 1024
    """Bytes of events kept of all."""
    max_ended: int = 4_096
    """Responses whose events are kept after their end."""
    window: float = 300.0
    """Seconds for which a response can be followed after its end; the public API's five minutes."""


class Rooms(Protocol):
    """Where sessions come from."""

    def enter(self, principal: str, door: str, *, background: bool = False) -> SessionRunner:
        """Gives a session; raises RequestError."""
        ...

    def leave(self, runner: SessionRunner) -> None:
        """Ends a session."""
        ...


class BackgroundRun:
    """One background response, at work or ended lately."""

    def __init__(self, principal: str, log: EventLog) -> None:
        """Takes whose it is, and where its events are kept."""
        self.principal = principal
        self.log = log
        self.id = ""
        """The response; empty until it is announced."""
        self.runner: SessionRunner | None = None
        """Its session while it is at work."""
        self.announced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the response exists, or with the RequestError that refused it."""
        self.task: asyncio.Task[None] | None = None
        self.expiry: Timer | None = None
        self.next_sequence = 0
        self.deleted = False
        """Whether its events are not kept any more because it was deleted."""
        self.broken: Response | None = None
        """How it ended, where its session broke down without storing that."""

    def state(self) -> State | None:
        """Returns what is known of it while it is at work."""
        return None if self.runner is None else self.runner.session.snapshot(self.id)

    async def stop(self) -> None:
        """Cancels it, if it is at work, and waits until it has ended. Cancelled, this leaves it to end by itself."""
        if self.runner is None or self.task is None:
            return
        request = ConnectRequest(cancel=ResponseCancel(response_id=self.id))
        self.runner.receive(request, request.ByteSize())
        await asyncio.wait((self.task,))

    async def follow(self, starting_after: int | None) -> AsyncGenerator[list[ServerEvent], None]:
        """Yields its events after a sequence number; see `EventLog.follow`. Closing it lets the response go on.

        Raises:
            RequestError: `invalid_request_error`: the events are not kept any more; `response_not_found`: it was
                deleted meanwhile.
        """
        try:
            async with aclosing(self.log.follow(starting_after)) as batches:
                async for events in batches:
                    yield events
        except EventsGone:
            raise (not_found if self.deleted else no_longer_streamed)(self.id) from None

    def take(self, events: list[ServerEvent]) -> None:
        """Takes the next events."""
        first, last = events[0], events[-1]
        if not self.id:
            self.id = first.created.response.id
        self.next_sequence = last.sequence_number + 1
        self.log.add(events)

    def failed(self, error: Error) -> None:
        """Hears that its session broke down without a word to it: an end of its own tells who follows."""
        self.broken = Response()
        self.broken.CopyFrom(self.log.created.created.response)
        self.broken.status = ResponseStatus.RESPONSE_STATUS_FAILED
        self.broken.error.CopyFrom(ResponseError(code=error.code, message=error.message))
        done = ResponseDone(reason=DoneReason.DONE_REASON_FAILED, error=error, response=self.broken)
        self.log.add([ServerEvent(response=1, sequence_number=self.next_sequence, done=done)])


class Background:
    """All background responses of a server."""

    def __init__(self, rooms: Rooms, clock: Clock, limits: BackgroundLimits | None = None) -> None:
        """Takes where sessions come from, the clock, and the limits."""
        self._rooms = rooms
        self._clock = clock
        self._limits = limits or BackgroundLimits()
        self._runs: dict[tuple[str, str], BackgroundRun] = {}
        """Those that are announced, by principal and id."""
        self._at_work: Counter[str] = Counter()
        """How many there are of each principal."""
        self._ended: OrderedDict[str, BackgroundRun] = OrderedDict()
        """Those that have ended, the earliest first."""
        self._bytes = 0
        """Bytes of events kept of all."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Counts the responses at work."""
        return self._at_work.total()

    def find(self, principal: str, response_id: str) -> BackgroundRun | None:
        """Finds a response that is at work or ended lately."""
        return self._runs.get((principal, response_id))

    async def start(self, principal: str, create: ResponseCreate, about: RequestContext) -> BackgroundRun:
        """Creates a response and returns it once it is announced. Cancelled before that, it cancels the response.

        Raises:
            RequestError: The request was refused, or too many are at work.
        """
        if not stores(create):
            message = "'background' needs 'store': nobody could retrieve a response that is not stored."
            raise reject("invalid_value", message, param="store")
        self._check_room(principal)
        whole = ResponseCreate()
        whole.CopyFrom(create)
        whole.verbosity = Verbosity.VERBOSITY_FULL
        whole.echo = True
        runner = self._rooms.enter(principal, DOOR, background=True)
        run = BackgroundRun(principal, EventLog(self._limits.max_log_bytes))
        run.runner = runner
        self._at_work[principal] += 1
        run.task = asyncio.create_task(self._work(run, runner, whole, about))
        self._tasks.add(run.task)
        run.task.add_done_callback(self._tasks.discard)
        try:
            await run.announced
        except BaseException:
            run.task.cancel()
            await asyncio.gather(run.task, return_exceptions=True)
            raise
        return run

    def _check_room(self, principal: str) -> None:
        limits = self._limits
        for count, limit in (
            (len(self), limits.max_runs),
            (self._at_work[principal], limits.max_runs_per_principal),
        ):
            if count >= limit:
                message = f"Too many background responses are at work ({limit}). Wait for some to end, or cancel them."
                raise reject("too_many_requests", message, param="background", limit=str(limit))

    async def _work(
        self, run: BackgroundRun, runner: SessionRunner, create: ResponseCreate, about: RequestContext
    ) -> None:
        try:
            async with aclosing(one_response(runner, create, about)) as batches:
                async for events in batches:
                    self._take(run, events)
        except RequestError as refusal:
            self._broken(run, refusal)
            await _fail_stored(run, runner, refusal.error)
        except Exception:
            _log.exception("a background response failed")
            failure = reject("server_error", "The server failed. Try again.")
            self._broken(run, failure)
            await _fail_stored(run, runner, failure.error)
        finally:
            self._rooms.leave(runner)
            self._end(run)

    def _broken(self, run: BackgroundRun, error: RequestError) -> None:
        if run.id:
            before = run.log.bytes
            run.failed(error.error)
            self._bytes += run.log.bytes - before
        elif not run.announced.done():
            run.announced.set_exception(error)

    def _take(self, run: BackgroundRun, events: list[ServerEvent]) -> None:
        before = run.log.bytes
        run.take(events)
        self._bytes += run.log.bytes - before
        self._shorten(run)
        if not run.announced.done():
            self._runs[run.principal, run.id] = run
            run.announced.set_result(None)

    def _shorten(self, run: BackgroundRun) -> None:
        """Lets go of events until all logs are within their limit: whole logs of what has ended, else of a response's
        own."""
        while self._bytes > self._limits.max_bytes:
            before = run.log.bytes
            if self._ended:
                self.forget(next(iter(self._ended.values())))
            elif run.log.shorten():
                self._bytes -= before - run.log.bytes
            else:
                return

    def _end(self, run: BackgroundRun) -> None:
        run.runner = None
        self._at_work[run.principal] -= 1
        if not self._at_work[run.principal]:
            del self._at_work[run.principal]
        run.log.close()
        if self._runs.get((run.principal, run.id)) is not run:
            self._bytes -= run.log.bytes
            return
        self._ended[run.id] = run
        expires = self._clock.now() + self._limits.window
        run.expiry = self._clock.call_at(expires, lambda: self.forget(run))
        if len(self._ended) > self._limits.max_ended:
            self.forget(next(iter(self._ended.values())))

    def forget(self, run: BackgroundRun) -> None:
        """Lets go of the events of a response that has ended. Idempotent."""
        if self._ended.pop(run.id, None) is None:
            return
        if run.expiry is not None:
            run.expiry.cancel()
            run.expiry = None
        del self._runs[run.principal, run.id]
        self._bytes -= run.log.bytes
        run.log.clear()

    async def aclose(self) -> None:
        """Ends what is at work at once and lets go of everything. Idempotent; safe to cancel, and to call again."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in tuple(self._ended.values()):
            self.forget(run)


async def _fail_stored(run: BackgroundRun, runner: SessionRunner, error: Error) -> None:
    """Says of a response whose session broke down that it has failed, where it is stored as one at work."""
    services = runner.services
    state = await services.store.get(run.principal, run.id) if run.id else None
    if state is not None and state.status == ResponseStatus.RESPONSE_STATUS_IN_PROGRESS:
        why = ResponseError(code=error.code, message=error.message)
        failed = replace(state, status=ResponseStatus.RESPONSE_STATUS_FAILED, error=why)
        services.store.put(failed)
        services.ledger.save(failed)


def not_found(response_id: str) -> RequestError:
    """Returns the refusal of an id that names nothing the caller may see."""
    name = shown(response_id)
    message = f"Response with id '{name}' not found."
    return reject("response_not_found", message, param="response_id", response_id=name)


def no_longer_streamed(response_id: str) -> RequestError:
    """Returns the refusal of a background response whose events are not kept any more."""
    message = (
        f"Response '{response_id}' can no longer be streamed: the events of a background response are kept, up to a"
        " limit, while it is at work and for 5 minutes after its end. Retrieve it without 'stream' instead."
    )
    return reject("invalid_request_error", message, response_id=response_id)
