"""One pass: a slot, a request, llama.cpp on a thread, and its answer pushed from the event loop.

Above it: `engine`. Below it: `waiting`, `requests`, `llama` and the chat engine's stream. llama.cpp cannot be held up:
while a pass is paused the model goes on, and what it says is kept, at most what the context has room for. So a client
that does not read keeps its slot no longer than one that does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from turnwire.server.engine.chat import errors
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.engine.chat.stream import ChatStream
from turnwire.server.engine.local.forced import ForcedCalls
from turnwire.server.engine.local.llama import Llama
from turnwire.server.engine.local.requests import LlamaRequest, RequestWriter
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
        writer: RequestWriter,
        queue: SlotQueue,
        threads: Executor,
        pinned: bool,
        on_over: Callable[[LocalPass, Finish | EngineFailure | None], None],
    ) -> None:
        """Begins; the sink is called later. `on_over` hears of the outcome before the sink does; of None if aborted."""
        self._prompt = prompt
        self._sink = sink
        self._llama = llama
        self._writer = writer
        self._queue = queue
        self._threads = threads
        self._pinned = pinned
        self._on_over = on_over
        self._loop: Final = asyncio.get_running_loop()
        self._over = False
        self._slot: Slot | None = None
        self._stream: ChatStream | None = None
        self._forced: ForcedCalls | None = None
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
            request = await self._writer.write(self._prompt, slot.id if self._pinned else None)
            if not self._over:
                self._stream = ChatStream(request.targets)
                self._forced = request.forced
                await self._compute(request)
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

    async def _compute(self, request: LlamaRequest) -> None:
        computing = self._loop.run_in_executor(self._threads, self._llama.complete, request.body, self._on_event)
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
        stream = self._stream
        if self._over or stream is None or not self._flowing.is_set():
            return
        frames: list[bytes] = []
        while self._events:
            event = self._events.popleft()
            frames += (b"data: ", self._forced.rewrite(event) if self._forced else event, b"\n\n")
        self._push(stream.feed(b"".join(frames)))

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
        stream = self._stream
        if outcome is None and stream is not None:
            self._push(stream.end())
            outcome = stream.outcome
        if self._over:
            return
        self._over = True
        told = outcome or _FAILED
        self._on_over(self, told)
        try:
            self._sink.ended(told)
        except Exception:
            _log.exception("a sink failed to take the end of a pass")
