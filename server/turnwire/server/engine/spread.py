"""Several equal upstreams as one engine: each conversation stays with the one that has its prefix in its cache.

Above it: the runtime, which sees an engine like any other. Below it: one engine per upstream, and `routing`, which
chooses and moves passes on. What has begun is not begun again here: text alone does not say how a model goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwire.server.engine.port import CountingEngine, Engine, Generation, ModelInfo, Sink
from turnwire.server.routing.attempt import Attempt
from turnwire.server.routing.checks import Checks
from turnwire.server.routing.pool import Member, Pool
from turnwire.server.routing.revision import Revision
from turnwire.server.session.chunks import Chunk, Finish
from turnwire.server.session.prompt import Prompt


class SpreadEngine:
    """Spreads conversations over engines."""

    def __init__(self, pool: Pool[Engine], revision: Revision | None = None) -> None:
        """Takes the engines, which are closed with this one, and what grows when their models change.

        Must be called on the event loop where the pool's policy has its members asked how they are.
        """
        self.name = pool.members[0].engine.name
        self.pool = pool
        self._revision = revision or Revision()
        self._known = self._revision.number
        self._serving: dict[str, tuple[Member[Engine], ...]] = {}
        """Who serves a model, as far as it was asked."""
        self._checks = Checks(pool)

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models that any of the engines serves."""
        found: dict[str, ModelInfo] = {}
        for member in self.pool.members:
            for model in member.engine.models():
                found.setdefault(model.id, model)
        return list(found.values())

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass with the conversation's engine; it moves on while nothing has come of it."""
        begun = _ChatAttempt(self.pool, self._serves(prompt.model), prompt, sink)
        begun.begin()
        return begun

    async def count(self, prompt: Prompt) -> int | None:
        """Counts a prompt as the conversation's engine would. Safe to cancel."""
        member = self.pool.pick(prompt.chain, self._serves(prompt.model))
        engine = member.engine if member is not None else None
        return await engine.count(prompt) if isinstance(engine, CountingEngine) else None

    async def aclose(self) -> None:
        """Closes all engines. Cancelling it leaves them unusable."""
        await self._checks.aclose()
        self.pool.leave()
        await asyncio.gather(*(member.engine.aclose() for member in self.pool.members))

    def _serves(self, model: str) -> tuple[Member[Engine], ...]:
        """Returns who serves a model; where nobody does, any of them says so."""
        if self._known != self._revision.number:
            self._known = self._revision.number
            self._serving.clear()
        serving = self._serving.get(model)
        if serving is None:
            members = self.pool.members
            serving = tuple(m for m in members if any(each.id == model for each in m.engine.models())) or members
            self._serving[model] = serving
        return serving


class _ChatAttempt(Attempt[Engine, Sequence[Chunk], Finish]):
    def __init__(self, pool: Pool[Engine], among: Sequence[Member[Engine]], prompt: Prompt, sink: Sink) -> None:
        super().__init__(pool, among, prompt.chain, sink, prompt.visits)
        self._prompt = prompt

    def start(self, engine: Engine) -> Generation:
        return engine.start(self._prompt, self)
