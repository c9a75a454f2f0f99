"""What a script says as tokens: ids of the vocabulary, and log-probabilities that are made up. Pure.

Above it: the engine, for requests that ask for them. Below it: the vocabulary. A simulation has no template: what it
says was rendered are the bare texts of what is new, each for itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from turnwire.server.engine.scripted.script import CompiledTurn, Script
from turnwire.server.prompt import vocabulary
from turnwire.server.session.chunks import CallDelta, Channel, Chunk, Finish, TextChunk, TokenRecord
from turnwire.server.session.transcript import Entry, Origin
from turnwire.v1.item_pb2 import Logprob

if TYPE_CHECKING:
    from turnwire.server.session.prompt import Prompt

TEMPLATE: Final = "scripted"
"""What is told as the hash of the template, which does not exist."""


def logprob(token: int) -> float:
    """Returns the log-probability that is made up for a token, the same each time; a multiple of 1/16 from -63/16 to
    0, which any width of float holds exactly."""
    return -(token % 64) / 16


def dressed(compiled: CompiledTurn, *, ids: bool, logprobs: bool) -> CompiledTurn:
    """Returns the turn with the ids of tokens in its chunks, and with log-probabilities of visible text."""

    def dress(chunk: Chunk, tokens: tuple[int, ...]) -> Chunk:
        if isinstance(chunk, TextChunk):
            likely = tuple(map(_told, tokens)) if logprobs and chunk.channel is Channel.TEXT else ()
            return replace(chunk, ids=tokens if ids else (), logprobs=likely)
        return replace(chunk, ids=tokens) if ids and isinstance(chunk, CallDelta) else chunk

    return replace(compiled, chunks=tuple(map(dress, compiled.chunks, compiled.ids)))


def recorded(script: Script, compiled: CompiledTurn, prompt: Prompt, *, logprobs: bool) -> Script:
    """Returns the script with the record of its tokens at its end, unless it fails there."""
    if not isinstance(script.outcome, Finish):
        return script
    sampled = array("I", [token for tokens in compiled.ids for token in tokens][: script.tokens])
    record = TokenRecord(
        rendered=array("I", [token for text in _new_texts(prompt) for token in vocabulary.encode(text)]),
        sampled=sampled,
        logprobs=array("f", map(logprob, sampled) if logprobs else ()),
        template_hash=TEMPLATE,
        tokenizer_hash=vocabulary.VOCABULARY_SHA256,
    )
    return replace(script, outcome=replace(script.outcome, record=record))


def _new_texts(prompt: Prompt) -> Iterator[str]:
    """Yields what was not said by the chain's latest recorded pass or before it."""
    new: list[Entry] = []
    for segment in prompt.transcript.segments():
        if segment.record is not None:
            # What was appended while it was sampled is new, what it said is not.
            new += [entry for entry in reversed(segment.new) if entry.origin is not Origin.MODEL]
            break
        new += reversed(segment.new)
    else:
        yield prompt.settings.instructions
    for entry in reversed(new):
        yield entry.text()


def _told(token: int) -> Logprob:
    said = vocabulary.token_bytes(token)
    return Logprob(token=said.decode(errors="replace"), logprob=logprob(token), bytes=said)
