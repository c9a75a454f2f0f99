"""Whether a create's prompt fits its model, found out before the response exists, and made to fit where asked.

Above it: `carrier`, between the check of a request and the answer to it. Below it: the engines, and the rule of
`policy.truncation`. What decides is the running count of the conversation. Engines that count exactly are asked where a
prompt comes near the limit, so that most requests cost nothing here; of others the running count is all there is. What
is not found here, as the tools that a server lists later, or what is appended, the engine finds when the pass begins.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from turnwire.server.engine.port import CountingEngine
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.policy.truncation import truncate
from turnwire.server.runtime.threads import THREAD_BYTES
from turnwire.server.session.effects import Prepare, Prepared
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.transcript import Transcript
from turnwire.v1.errors import RequestError, reject

_FAR: Final = 2
"""How many times the server's own count a model may count at most where it is not asked: vocabularies differ, and
templates write around items."""
_BYTES_PER_TOKEN: Final = 3
"""Of instructions and tools, which the server does not count."""
_SLACK: Final = 8
"""Which part of the room is left free by a truncation, for the turns that follow."""
_TRIES: Final = 5
"""Truncations at most, each shorter than the one before, where the model counts more than the server."""


class Fitting:
    """A prompt that has to be counted, or made to fit. Made by `fitting`."""

    def __init__(
        self, request: Prepare, ready: Prepared, context: int, around: int, engine: CountingEngine | None
    ) -> None:
        """Takes the request, its model's context in tokens, what counts beside the items, and who counts exactly."""
        self._request = request
        self._ready = ready
        self._context = context
        self._engine = engine
        history = request.history if ready.known is None else ready.known.transcript
        self._whole = history.extend(ready.entries, ready.open_calls, turns=ready.turns)
        self._around = around
        self._scale = _scale(request, ready, self._whole, around)
        wanted = request.settings.max_output_tokens
        # A wish for more output than the model can hold must not leave nothing of the conversation.
        self._limit = context - max(1, min(wanted, context // 2))

    @property
    def counted(self) -> int:
        """Tokens of the whole prompt by the running count."""
        return int((self._whole.tokens + self._around) * self._scale)

    async def fitted(self) -> Prepared:
        """Returns the request as it can be taken. Safe to cancel.

        Raises:
            RequestError: `context_length_exceeded`, or the model's format cannot say this conversation.
        """
        counted = await self._count(self._whole)
        if self._request.settings.truncation != "auto":
            if counted >= self._context:
                raise self._exceeded(counted)
            return self._ready
        if counted <= self._limit:
            return self._ready
        return await self._shortened(counted)

    async def _shortened(self, counted: int) -> Prepared:
        whole = self._whole
        goal = self._limit - self._limit // _SLACK
        # What the model counts for one token of the server's count, but for what stands around the items.
        beside = min(self._around, goal)
        room = int(whole.tokens * (goal - beside) / max(1, counted - beside))
        for _ in range(_TRIES):
            window = await self._window(room)
            if window is None:
                break
            now = await self._count(window)
            if now <= self._limit:
                return replace(self._ready, window=window)
            room = min(room - 1, int(window.tokens * goal / now))
        raise self._exceeded(counted)

    async def _window(self, room: int) -> Transcript | None:
        whole = self._whole
        self._request.visits.note("truncate", whole.length, whole.bytes)
        entries = whole.walk()
        if whole.bytes > THREAD_BYTES:
            left = await asyncio.to_thread(truncate, entries, whole.open_calls, room)
        else:
            left = truncate(entries, whole.open_calls, room)
        if left is None:
            return None
        return Transcript(
            None, left.entries, left.open_calls, whole.turns, chain=whole.chain, instead=whole, truncated=True
        )

    async def _count(self, transcript: Transcript) -> int:
        """Counts a prompt: as its engine would, else by the running count."""
        request, ready = self._request, self._ready
        about = transcript.tokens + self._around
        if self._engine is not None:
            prompt = Prompt(
                0,
                "",
                ready.model,
                request.settings,
                request.tools,
                transcript,
                transcript.turns,
                about,
                0,
                request.visits,
            )
            counted = await self._engine.count(prompt)
            if counted is not None:
                return counted
        return int(about * self._scale)

    def _exceeded(self, counted: int) -> RequestError:
        message = (
            f"Your input exceeds the context window of this model: {counted} tokens of at most {self._context - 1}."
            " Please adjust your input and try again."
        )
        return reject("context_length_exceeded", message, param="input", limit=str(self._context))


def _scale(request: Prepare, ready: Prepared, whole: Transcript, around: int) -> float:
    """Returns how many tokens the model counts for one of the server's, by what its engine told of the last pass.

    That figure may be too high, since some formats leave out reasoning of the turn that ended. It is therefore believed
    where it makes a truncation longer, and where it makes a refusal needless.
    """
    told = request.context_tokens if ready.known is None else ready.known.context_tokens
    if not told:
        return 1.0
    told += sum(entry.tokens for entry in ready.entries)
    scale = min(max(told / max(1, whole.tokens + around), 1 / _FAR), _FAR)
    return max(1.0, scale) if request.settings.truncation == "auto" else min(1.0, scale)


def fitting(engines: EngineRegistry, request: Prepare, ready: Prepared) -> Fitting | None:
    """Returns what has to be found out before a request can be taken; None for a prompt that is taken as it is."""
    context = engines.context_length(ready.model)
    # What is compacted first is another prompt then.
    if context is None or ready.compact_now or ready.compact_threshold is not None:
        return None
    around = (len(request.settings.instructions) + len(request.tools.data)) // _BYTES_PER_TOKEN
    history = request.history if ready.known is None else ready.known.transcript
    about = history.tokens + sum(entry.tokens for entry in ready.entries) + around
    reserved = request.settings.max_output_tokens if request.settings.truncation == "auto" else 0
    engine = engines.engine(ready.model)
    if isinstance(engine, CountingEngine):
        far = about * _FAR + reserved < context
        return None if far else Fitting(request, ready, context, around, engine)
    made = Fitting(request, ready, context, around, None)
    return None if made.counted + reserved < context else made
