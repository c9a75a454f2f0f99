"""One pass: a slot, a request, llama.cpp on a thread, and its answer pushed from the event loop.

Above it: `engine`. Below it: `waiting`, `llama`, the writers of requests and the readers of answers. llama.cpp cannot
be held up: while a pass is paused the model goes on, and what it says is kept, at most what the context has room for.
So a client that does not read keeps its slot no longer than one that does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

from turnwire.server.engine.chat import errors
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.engine.local.answers import Answer
from turnwire.server.engine.local.llama import Llama
from turnwire.server.engine.local.requests import LlamaRequest, Probe
from turnwire.server.engine.local.slots import Slot
from turnwire.server.engine.local.waiting import SlotQueue
from turnwire.server.engine.port import Sink
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
from turnwire.server.session.prompt import Prompt

_log: Final = logging.getLogger(__name__)

_FAILED: Final = EngineFailure("server_error", "The local engine failed.")


class LocalPass:
    """A running pass."""

    def __init__(
        self,
        prompt: Prompt,
        sink: Sink,
        *,
        llama: Llama,
        write: Callable[[Prompt, int | None], Awaitable[LlamaRequest]],
        queue: SlotQueue,
        threads: Executor,
        pinned: bool,
        on_over: Callable[[LocalPass, Finish | EngineFailure | None], None],
    ) -> None:
        """Begins; the sink is called later. `on_over` hears of the outcome before the sink does; of None if aborted."""
        self._prompt = prompt
        self._sink = sink
        self._llama = llama
        self._write = write
        self._queue = queue
        self._threads = threads
        self._pinned = pinned
        self._on_over = on_over
        self._loop: Final = asyncio.get_running_loop()
        self._over = False
        self._slot: Slot | None = None
        self._reader: Answer | None = None
        self._events: deque[bytes] = deque()
        """What llama.cpp said and nobody has read; filled by its thread."""
        self._scheduled = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.task: Final = self._loop.create_task(self._run())
        """What carries the pass out; it outlives an abort until llama.cpp has stopped."""

    def pause(self) -> None:
        """Holds output back. Idempotent."""
        self._flowing.clear()

    def resume(self) -> None:
        """Lets output flow again. Idempotent."""
        if not self._flowing.is_set():
            self._flowing.set()
            self._loop.call_soon(self._deliver)

    def abort(self) -> None:
        """Stops llama.cpp at its next token, or the next batch of a prefill. Idempotent, also after the end."""
        if self._over:
            return
        self._over = True
        if self._slot is None:
            self.task.cancel()
        else:
            self._queue.table.leave(self._slot)
        self._on_over(self, None)

    async def _run(self) -> None:
        try:
            failure = await self._answer()
            if not self._over:
                await self._flowing.wait()
                self._end(failure)
        except asyncio.CancelledError:
            self.abort()
            raise

    async def _answer(self) -> EngineFailure | None:
        """Returns why there is no answer; None where llama.cpp gave one."""
        slot = self._slot = await self._queue.acquire(self._prompt.transcript)
        try:
            request = await self._write(self._prompt, slot.id if self._pinned else None)
            if request.probe is not None and not self._over:
                await self._ask(request.probe)
            if not self._over:
                self._reader = request.answer
                await self._compute(request.body, self._on_event, native=request.native)
        except Refusal as refusal:
            return refusal.failure
        except Exception:
            _log.exception("a pass failed")
            return _FAILED
        finally:
            # Before the outcome is told, so that the chain's next turn finds its slot idle.
            self._slot = None
            self._queue.release(slot)
        return None

    async def _ask(self, probe: Probe) -> None:
        said: list[bytes] = []

        def on_event(event: bytes) -> bool:
            said.append(event)
            return self._over

        await self._compute(probe.body, on_event, native=True)
        if not self._over:
            probe.check(said)

    async def _compute(self, body: bytes, on_event: Callable[[bytes], bool], *, native: bool) -> None:
        run = self._llama.generate if native else self._llama.complete
        computing = self._loop.run_in_executor(self._threads, run, body, on_event)
        try:
            await asyncio.shield(computing)
        except asyncio.CancelledError:
            # The slot is busy until llama.cpp has stopped, whoever is in a hurry.
            self.abort()
            await asyncio.wait((computing,))
            raise
        except ValueError as error:
            told = errors.words(str(error))
            raise Refusal("invalid_request_error", f"The model refused the request: {told}") from error

    def _on_event(self, event: bytes) -> bool:
        """Takes an event on llama.cpp's thread; returns True to stop."""
        if self._over:
            return True
        self._events.append(event)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop is closed: nobody is left to hear it.
                return True
        return self._over

    def _deliver(self) -> None:
        # First, so that an event that comes from now on schedules a delivery of its own.
        self._scheduled = False
        reader = self._reader
        if self._over or reader is None or not self._flowing.is_set():
            return
        events = tuple(self._events)
        self._events.clear()
        try:
            chunks = reader.feed(events)
        except Exception:
            _log.exception("what llama.cpp says cannot be read")
            self._leave(_FAILED)
            return
        self._push(chunks)
        if reader.complete and not self._over:
            self._leave(reader.outcome)

    def _leave(self, outcome: Finish | EngineFailure | None) -> None:
        """Ends the pass before llama.cpp has, which hears of it at its next token."""
        if self._slot is not None:
            self._queue.table.leave(self._slot)
        self._tell(outcome)

    def _push(self, chunks: list[Chunk]) -> None:
        if not chunks or self._over:
            return
        try:
            self._sink.output(chunks)
        except Exception:
            _log.exception("a pass is dropped because its sink failed")
            self.abort()

    def _end(self, failure: EngineFailure | None) -> None:
        self._deliver()
        outcome: Finish | EngineFailure | None = failure
        reader = self._reader
        if outcome is None and reader is not None and not self._over:
            self._push(reader.end())
            outcome = reader.outcome
        if not self._over:
            self._tell(outcome)

    def _tell(self, outcome: Finish | EngineFailure | None) -> None:
        self._over = True
        told = outcome or _FAILED
        self._on_over(self, told)
        try:
            self._sink.ended(told)
        except Exception:
            _log.exception("a sink failed to take the end of a pass")
