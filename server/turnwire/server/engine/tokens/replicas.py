"""Several engines of one model as one: each chain stays with one of them, where its cache is.

Above it: `rendered`. Below it: the adapters. A chain's replica follows from its routing key alone (the highest of the
hashes of key and address), so that servers agree without talking, and a replica that is lost moves its own chains only.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from turnwire.server.engine.tokens.port import (
    EngineFacts,
    EngineStartError,
    TokenDelta,
    TokenEnd,
    TokenEngine,
    TokenPass,
    TokenRequest,
    TokenSink,
)
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.session.chunks import EngineFailure

_log: Final = logging.getLogger(__name__)

LOST_FOR: Final = 5.0
"""Seconds for which a replica that could not be reached gets no pass while others can."""


class Replicas:
    """A token engine made of several."""

    def __init__(self, engines: Sequence[TokenEngine], clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the engines, at least one, which are closed with this one."""
        self._engines = tuple(engines)
        self._clock = clock
        self._lost: dict[str, float] = {}
        self.name = engines[0].name
        self.address = ", ".join(engine.address for engine in engines)

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
        """Begins a pass on the chain's replica, or on the next where that one cannot be reached."""
        ranked = sorted(self._engines, key=lambda engine: _weight(request.routing_key, engine.address), reverse=True)
        now = self._clock()
        ranked.sort(key=lambda engine: self._lost.get(engine.address, 0.0) > now)
        return _Attempt(self, ranked, request, sink)

    async def aclose(self) -> None:
        """Closes all. Cancelling it leaves them unusable."""
        await asyncio.gather(*(engine.aclose() for engine in self._engines))

    def lose(self, engine: TokenEngine) -> None:
        """Notes that a replica could not be reached."""
        _log.warning("%s at %s cannot be reached: its chains move for %g s", engine.name, engine.address, LOST_FOR)
        self._lost[engine.address] = self._clock() + LOST_FOR


class _Attempt:
    """A pass that moves on to the next replica as long as nothing has come of it."""

    def __init__(self, replicas: Replicas, ranked: list[TokenEngine], request: TokenRequest, sink: TokenSink) -> None:
        self._replicas = replicas
        self._ranked = ranked
        self._request = request
        self._sink = sink
        self._begun = False
        self._over = False
        self._paused = False
        self._engine = ranked[0]
        self._running = self._next()

    def _next(self) -> TokenPass:
        self._engine = self._ranked.pop(0)
        return self._engine.start(self._request, self)

    def pause(self) -> None:
        self._paused = True
        self._running.pause()

    def resume(self) -> None:
        self._paused = False
        self._running.resume()

    def abort(self) -> None:
        self._over = True
        self._running.abort()

    def output(self, delta: TokenDelta) -> None:
        self._begun = True
        self._sink.output(delta)

    def ended(self, outcome: TokenEnd | EngineFailure) -> None:
        if self._over:
            return
        if isinstance(outcome, EngineFailure) and outcome.code == "engine_unavailable":
            self._replicas.lose(self._engine)
            if self._ranked and not self._begun:
                self._running = self._next()
                if self._paused:
                    self._running.pause()
                return
        self._over = True
        self._sink.ended(outcome)


def _weight(key: str, address: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{address}".encode(), digest_size=8).digest()
