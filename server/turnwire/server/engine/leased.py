"""An engine that knows what runs on it, so that it can be closed when nothing does.

Above it: profiles of models, and whoever replaces engines while a server runs. Below it: the engine itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwire.server.engine.port import CountingEngine, Engine, Generation, ModelInfo, Sink
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
from turnwire.server.session.prompt import Prompt


class LeasedEngine:
    """An engine like the one it stands for."""

    def __init__(self, engine: Engine) -> None:
        """Takes the engine, which is closed with this one."""
        self.name = engine.name
        self.engine = engine
        """The engine itself."""
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """How many passes and counts are neither over nor aborted."""
        return self._running

    def models(self) -> Sequence[ModelInfo]:
        """Lists the engine's models."""
        return self.engine.models()

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass."""
        lease = _Lease(self, sink)
        try:
            lease.generation = self.engine.start(prompt, lease)
        except BaseException:
            lease.over()
            raise
        return lease

    async def count(self, prompt: Prompt) -> int | None:
        """Counts a prompt as the engine would; None where it does not count. Safe to cancel."""
        if not isinstance(self.engine, CountingEngine):
            return None
        self.took()
        try:
            return await self.engine.count(prompt)
        finally:
            self.gave_back()

    async def retire(self) -> None:
        """Closes the engine once nothing runs on it. Cancelling it leaves it open."""
        await self._idle.wait()
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the engine. Cancelling it leaves the engine unusable."""
        await self.engine.aclose()

    def took(self) -> None:
        """Notes that one more thing runs."""
        self._running += 1
        self._idle.clear()

    def gave_back(self) -> None:
        """Notes that something is over."""
        self._running -= 1
        if not self._running:
            self._idle.set()


class _Lease:
    """One pass: the sink of the engine, and the generation of whoever began it."""

    __slots__ = ("_engine", "_over", "_sink", "generation")

    def __init__(self, engine: LeasedEngine, sink: Sink) -> None:
        self._engine = engine
        self._sink = sink
        self._over = False
        self.generation: Generation | None = None
        engine.took()

    def output(self, chunks: Sequence[Chunk], /) -> None:
        self._sink.output(chunks)

    def ended(self, outcome: Finish | EngineFailure, /) -> None:
        self.over()
        self._sink.ended(outcome)

    def pause(self) -> None:
        if self.generation is not None:
            self.generation.pause()

    def resume(self) -> None:
        if self.generation is not None:
            self.generation.resume()

    def abort(self) -> None:
        if self.generation is not None:
            self.generation.abort()
        self.over()

    def over(self) -> None:
        if not self._over:
            self._over = True
            self._engine.gave_back()
