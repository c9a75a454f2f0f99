"""Several equal upstreams as one engine: each conversation stays with the one that has its prefix in its cache.

Above it: the runtime, which sees an engine like any other. Below it: one engine per upstream.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from turnwire.server.engine.port import CountingEngine, Engine, Generation, ModelInfo, Sink
from turnwire.server.session.prompt import Prompt


class SpreadEngine:
    """Spreads conversations over engines."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Takes the engines, at least one; they are closed with this one."""
        self.name = engines[0].name
        self._engines = tuple(engines)

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models that any of the engines serves."""
        found: dict[str, ModelInfo] = {}
        for engine in self._engines:
            for model in engine.models():
                found.setdefault(model.id, model)
        return list(found.values())

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass with the conversation's engine, or the next one if that does not serve the model."""
        return self._chosen(prompt).start(prompt, sink)

    async def count(self, prompt: Prompt) -> int | None:
        """Counts a prompt as the conversation's engine would. Safe to cancel."""
        engine = self._chosen(prompt)
        return await engine.count(prompt) if isinstance(engine, CountingEngine) else None

    def _chosen(self, prompt: Prompt) -> Engine:
        first = _key(prompt) % len(self._engines)
        order = (*self._engines[first:], *self._engines[:first])
        serving = (each for each in order if any(model.id == prompt.model for model in each.models()))
        return next(serving, order[0])

    async def aclose(self) -> None:
        """Closes all engines. Cancelling it leaves them unusable."""
        await asyncio.gather(*(engine.aclose() for engine in self._engines))


def _key(prompt: Prompt) -> int:
    """Returns what stays the same over a conversation: a number made of the items that it began with."""
    began = b""
    for segment in prompt.transcript.segments():
        if segment.new:
            began = segment.new[0].data + segment.new[-1].data
    return zlib.crc32(began)
