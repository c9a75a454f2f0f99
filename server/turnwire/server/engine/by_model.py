"""Engines of several models as one: each model's prompts go to the engine that serves it.

Above it: the runtime, which sees an engine like any other. Below it: an engine per model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwire.server.engine.port import CountingEngine, Engine, Generation, ModelInfo, Sink
from turnwire.server.session.prompt import Prompt


class ByModelEngine:
    """Serves the models of its engines."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Takes the engines, at least one, whose models stay the same; they are closed with this one."""
        self.name = engines[0].name
        self._engines = tuple(engines)
        self._models: dict[str, tuple[ModelInfo, Engine]] = {}
        for engine in engines:
            for model in engine.models():
                self._models.setdefault(model.id, (model, engine))

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models."""
        return [model for model, _ in self._models.values()]

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass with the model's engine."""
        return self._engine(prompt).start(prompt, sink)

    async def count(self, prompt: Prompt) -> int | None:
        """Counts a prompt as the model's engine would. Safe to cancel."""
        engine = self._engine(prompt)
        return await engine.count(prompt) if isinstance(engine, CountingEngine) else None

    async def aclose(self) -> None:
        """Closes all engines. Cancelling it leaves them unusable."""
        await asyncio.gather(*(engine.aclose() for engine in self._engines))

    def _engine(self, prompt: Prompt) -> Engine:
        return self._models[prompt.model][1]
