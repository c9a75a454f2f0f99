"""A turn as chunks: what a pass says, when each chunk may leave, and how it ends. Pure.

Above it: the engine, which compiles every turn once and plans each pass from it. Below it: the vocabulary, which cuts
texts into tokens so that deltas look like a real model's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from turnwire.server.prompt import vocabulary
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallStart,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    PassUsage,
    TextChunk,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwire.server.engine.scripted.turns import Turn

Outcome = Finish | EngineFailure
"""How a pass ends."""


@dataclass(frozen=True, slots=True)
class Script:
    """One pass, planned: never changes, and passes of the same turn share what they can."""

    chunks: Sequence[Chunk]
    released: Sequence[int]
    """`released[n]` is how many chunks are out once `n` tokens are; a chunk leaves with its last token."""
    outcome: Outcome

    @property
    def tokens(self) -> int:
        """Tokens of all chunks."""
        return len(self.released) - 1


@dataclass(frozen=True, slots=True)
class CompiledTurn:
    """A turn cut into tokens once, for any number of passes."""

    turn: Turn
    chunks: tuple[Chunk, ...]
    released: tuple[int, ...]
    reasoning_tokens: int
    call_places: tuple[int, ...]
    """Where in `chunks` the calls start."""
    ids: tuple[tuple[int, ...], ...]
    """Of the tokens of each chunk."""


def compile_turn(turn: Turn) -> CompiledTurn:
    """Cuts a turn into chunks, one for each token wherever a token is whole characters."""
    chunks: list[Chunk] = []
    ids: list[tuple[int, ...]] = []
    for channel, text in (
        (Channel.REASONING, turn.reasoning),
        (Channel.SUMMARY, turn.summary),
        (Channel.TEXT, turn.text),
        (Channel.REFUSAL, turn.refusal),
    ):
        for piece, tokens in vocabulary.split_encoded(text):
            chunks.append(TextChunk(channel, piece, len(tokens)))
            ids.append(tokens)
    call_places: list[int] = []
    for call in turn.calls:
        call_places.append(len(chunks))
        ids.append(tuple(vocabulary.encode(call.name)))
        chunks.append(CallStart(call.name, call.kind, call.call_id, len(ids[-1])))
        for piece, tokens in vocabulary.split_encoded(call.arguments):
            chunks.append(CallDelta(piece, len(tokens)))
            ids.append(tokens)
        chunks.append(CallEnd())
        ids.append(())
    if turn.calls and turn.finish is not FinishReason.STOP:
        # A model that was cut off never got to close its last call.
        chunks.pop()
        ids.pop()
    reasoning_tokens = sum(
        chunk.tokens
        for chunk in chunks
        if isinstance(chunk, TextChunk) and chunk.channel in (Channel.REASONING, Channel.SUMMARY)
    )
    return CompiledTurn(turn, tuple(chunks), _released(chunks), reasoning_tokens, tuple(call_places), tuple(ids))


def plan(
    compiled: CompiledTurn,
    call_ids: Sequence[str],
    *,
    input_tokens: int = 0,
    cached_tokens: int = 0,
    max_output_tokens: int | None = None,
) -> Script:
    """Plans one pass of a turn.

    Args:
        compiled: The turn to play.
        call_ids: An id for each of its calls, in order.
        input_tokens: The prompt's size, reported back as usage.
        cached_tokens: The part of it that was not computed again, reported back as usage.
        max_output_tokens: Where the output is cut with `FinishReason.LENGTH`; None for no limit.
    """
    turn = compiled.turn
    chunks: Sequence[Chunk] = compiled.chunks
    released: Sequence[int] = compiled.released
    if call_ids:
        named = list(chunks)
        for place, call_id in zip(compiled.call_places, call_ids, strict=True):
            start = named[place]
            if isinstance(start, CallStart):
                named[place] = replace(start, call_id=call_id)
        chunks = named
    total = len(released) - 1
    reason = turn.finish
    limit = total if turn.failure is None else min(total, turn.failure.after_tokens)
    if max_output_tokens is not None and max_output_tokens < limit:
        limit, reason = max_output_tokens, FinishReason.LENGTH
    elif turn.failure is not None:
        failure = EngineFailure(turn.failure.code, turn.failure.message, turn.failure.retry_after)
        return _cut(Script(chunks, released, failure), limit)
    usage = PassUsage(input_tokens, cached_tokens, limit, min(compiled.reasoning_tokens, limit))
    return _cut(Script(chunks, released, Finish(reason, usage)), limit)


def failed(code: str, message: str) -> Script:
    """Plans a pass that fails before its first token."""
    return Script((), (0,), EngineFailure(code, message))


def make_call_id(digest: str, response_id: str, pass_number: int, index: int) -> str:
    """Makes the id of a call: the same for the same script and response, and unique within the response.

    Args:
        digest: Of the scenario, so that two scenarios do not share ids.
        response_id: The response the call belongs to.
        pass_number: Which pass of the chain makes the call; a held response makes calls in several passes.
        index: Which call of the pass it is.
    """
    seed = f"{digest}\n{response_id}\n{pass_number}\n{index}"
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def _released(chunks: Sequence[Chunk]) -> tuple[int, ...]:
    sizes = [chunk.tokens for chunk in chunks]
    released: list[int] = []
    for place, tokens_out in enumerate(accumulate(sizes)):
        while len(released) < tokens_out:
            released.append(place)
    return (*released, len(chunks))


def _cut(script: Script, limit: int) -> Script:
    """Drops what comes after the first `limit` tokens."""
    if limit >= script.tokens:
        return script
    count = script.released[limit]
    return replace(script, chunks=script.chunks[:count], released=script.released[: limit + 1])
