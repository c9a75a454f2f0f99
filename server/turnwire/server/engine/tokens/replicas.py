"""Several engines of one model as one: each chain stays with one of them, where its cache is.

Above it: `rendered`. Below it: the adapters, and `routing`, which chooses and moves passes on. A pass that has begun
goes on elsewhere by its prompt and what was sampled, where the rest can be the same as if nothing had happened.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping
from dataclasses import replace

from turnwire.server.engine.tokens.port import (
    EngineFacts,
    EngineStartError,
    Sampling,
    TokenDelta,
    TokenEnd,
    TokenEngine,
    TokenPass,
    TokenRequest,
    TokenSink,
)
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.prompt.segments import Segment
from turnwire.server.routing.attempt import Attempt
from turnwire.server.routing.checks import Checks
from turnwire.server.routing.pool import Pool
from turnwire.server.session.chunks import EngineFailure, FinishReason


class Replicas:
    """A token engine made of several."""

    def __init__(self, pool: Pool[TokenEngine]) -> None:
        """Takes the engines, which are closed with this one.

        Must be called on the event loop where the pool's policy has its members asked how they are.
        """
        self.pool = pool
        self._engines = tuple(member.engine for member in pool.members)
        self._weights: dict[str, str] = {}
        """The version of its weights that each engine told, by address."""
        self._eos: frozenset[int] = frozenset()
        self._checks = Checks(pool)
        self.name = self._engines[0].name
        self.address = ", ".join(engine.address for engine in self._engines)

    async def facts(self) -> EngineFacts:
        """Asks all of them. Safe to cancel.

        Raises:
            EngineStartError: One cannot be reached, or they serve different models.
        """
        found = await asyncio.gather(*(engine.facts() for engine in self._engines))
        first = found[0]
        for engine, facts in zip(self._engines, found, strict=True):
            if (facts.model, facts.vocab_size) != (first.model, first.vocab_size):
                one, other = self._engines[0].address, engine.address
                served = f"{self.name} at {one} serves {first.model}, at {other} {facts.model}"
                msg = f"{served}: the upstreams of a model must serve the same one"
                raise EngineStartError(msg)
            self._weights[engine.address] = facts.weight_version
        self._eos = first.eos_ids
        lengths = [facts.context_length for facts in found if facts.context_length is not None]
        return replace(first, context_length=min(lengths, default=None))

    async def disagreement(self, table: TokenTable) -> str:
        """Compares all tokenizers with ours. Safe to cancel.

        Raises:
            EngineStartError: One cannot be reached.
        """
        found = await asyncio.gather(*(engine.disagreement(table) for engine in self._engines))
        return next((each for each in found if each), "")

    def start(self, request: TokenRequest, sink: TokenSink) -> TokenPass:
        """Begins a pass on the chain's replica; it moves on to others as far as it can."""
        begun = _TokenAttempt(self.pool, request, sink, self._eos, self._weights)
        begun.begin()
        return begun

    async def aclose(self) -> None:
        """Closes all. Cancelling it leaves them unusable."""
        await self._checks.aclose()
        self.pool.leave()
        await asyncio.gather(*(engine.aclose() for engine in self._engines))


def resumable(sampling: Sampling) -> bool:
    """Whether the rest of a pass can be sampled from its prompt and what was sampled before.

    It cannot where an engine's state goes beyond the ids: how far a grammar has come, which ids of the output penalties
    count, and how far a seeded generator has run; without temperature there is nothing to generate.
    """
    penalties = sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty - 1.0
    seeded = sampling.seed is not None and sampling.temperature > 0
    return sampling.constraint is None and not any(penalties) and not seeded


class _TokenAttempt(Attempt[TokenEngine, TokenDelta, TokenEnd]):
    """A pass at one replica after the other."""

    def __init__(
        self,
        pool: Pool[TokenEngine],
        request: TokenRequest,
        sink: TokenSink,
        eos: frozenset[int],
        weights: Mapping[str, str],
    ) -> None:
        super().__init__(pool, pool.members, request.chain, sink, request.visits)
        self._request = request
        self._eos = eos
        self._weights = weights
        # With one replica only there is nobody to hand it to.
        self._keeps = len(pool.members) > 1 and resumable(request.sampling)
        self._sampled = array("I")
        self._handed = 0
        """How many sampled ids the present replica got with its prompt."""

    def start(self, engine: TokenEngine) -> TokenPass:
        request = self._request
        self._handed = len(self._sampled)
        if self._handed:
            most = request.sampling.max_tokens
            request = replace(
                request,
                # The first one may still run where only the connection was lost, and a router may lead to it again.
                request_id=f"{request.request_id}-{len(self._tried)}",
                prompt=request.prompt.extend(Segment(self._sampled[:])),
                sampling=replace(request.sampling, max_tokens=None if most is None else most - self._handed),
            )
        return engine.start(request, self)

    def output(self, out: TokenDelta, /) -> None:
        if self._keeps:
            self._sampled.extend(out.ids)
        super().output(out)

    def goes_on(self, failure: EngineFailure) -> bool:
        if not self._keeps or (self._request.wants_weights and self._names_weights()):
            return False
        if not self._sampled:
            return True
        most = self._request.sampling.max_tokens
        last = self._sampled[-1]
        if last in self._request.sampling.stop_token_ids or last in self._eos:
            self.finish(self._end(FinishReason.STOP, stop_id=last))
        elif most is not None and len(self._sampled) >= most:
            self.finish(self._end(FinishReason.LENGTH))
        return True

    def completes(self, outcome: TokenEnd) -> TokenEnd:
        handed = self._handed
        if not handed:
            return outcome
        prompt = self._request.prompt.length
        return replace(
            outcome,
            prompt_tokens=outcome.prompt_tokens and prompt,
            # What the last replica had to compute again of the prompt, it has computed.
            cached_tokens=None if outcome.cached_tokens is None else min(outcome.cached_tokens, prompt),
            output_tokens=outcome.output_tokens and outcome.output_tokens + handed,
            # Of the last replica's part only, so that whoever reads the output knows better.
            reasoning_tokens=0,
        )

    def _end(self, reason: FinishReason, stop_id: int | None = None) -> TokenEnd:
        """Says how a pass ended whose replica was lost before it could say so."""
        return TokenEnd(reason, self._request.prompt.length, output_tokens=len(self._sampled), stop_id=stop_id)

    def _names_weights(self) -> bool:
        """Whether replicas tell versions of their weights: a span would then be said to be of one that it is not."""
        return any(self._weights.values())
