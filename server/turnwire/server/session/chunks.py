"""What an engine says while it samples, as values the session core understands.

An engine reports one pass (one uninterrupted stretch of sampling) as a sequence of chunks followed by exactly one
`Finish` or `EngineFailure`. Items never overlap: everything between two boundaries belongs to the one open item, so a
chunk needs no item id. Chunks are plain values; nothing here does I/O.
"""

from __future__ import annotations

import enum
from array import array
from dataclasses import dataclass, field

from turnwire.v1.item_pb2 import Logprob


class Channel(enum.IntEnum):
    """Which part of the answer a piece of text belongs to."""

    TEXT = 0
    """Visible output text of an assistant message."""
    REASONING = 1
    """Raw reasoning text of a reasoning item."""
    SUMMARY = 2
    """Summary text of a reasoning item."""
    REFUSAL = 3
    """A refusal in place of output text."""


class CallKind(enum.IntEnum):
    """How the arguments of a tool call are to be read."""

    FUNCTION = 0
    """Arguments are JSON text."""
    CUSTOM = 1
    """Input is free text."""


class FinishReason(enum.IntEnum):
    """Why the model stopped."""

    STOP = 0
    """The model ended its turn, with or without tool calls."""
    LENGTH = 1
    """The output token limit was reached; the open item is incomplete."""
    CONTENT_FILTER = 2
    """The engine's own filter cut the output; the open item is incomplete."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A piece of text; a change of channel or phase closes the open item or part and opens the next."""

    channel: Channel
    text: str
    tokens: int = 1
    """How many sampled tokens the text stands for."""
    ids: tuple[int, ...] = ()
    """Their ids, where the engine knows them and the request wants them in deltas."""
    logprobs: tuple[Logprob, ...] = ()
    """Their log-probabilities, where the request wants them."""
    phase: str = ""
    """`commentary` or `final_answer` for visible text of a model that tells them apart."""


@dataclass(frozen=True, slots=True)
class TextEnd:
    """The open message or reasoning is complete, though more of the same kind may follow as an item of its own."""

    tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallStart:
    """The model begins a tool call; closes the open item. Any number may follow each other (parallel calls)."""

    name: str
    kind: CallKind = CallKind.FUNCTION
    call_id: str = ""
    """The engine's own id for the call; empty lets the core choose one."""
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the open call's arguments (JSON text) or input (free text)."""

    text: str
    tokens: int = 1
    ids: tuple[int, ...] = ()
    """The ids of its tokens, where the engine knows them and the request wants them in deltas."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The open call's arguments are complete, before the next item or the end says so; lets tools start early."""

    tokens: int = 0


Chunk = TextChunk | TextEnd | CallStart | CallDelta | CallEnd
"""One step of a pass, in order."""


@dataclass(frozen=True, slots=True)
class PassUsage:
    """Tokens of one pass as the engine counted them."""

    input_tokens: int = 0
    """The whole prompt, cached part included."""
    cached_tokens: int = 0
    """The part of the prompt the engine did not compute again."""
    output_tokens: int = 0
    """Sampled tokens, reasoning included."""
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The very tokens of a pass, from an engine that takes and gives tokens; a value, so the arrays must not change."""

    rendered: array[int]
    """What the prompt held beyond the previous pass of the chain."""
    sampled: array[int]
    """What the model sampled, its stop token included; kept as sampled in later prompts, if it is verbatim."""
    logprobs: array[float]
    """Of the sampled tokens, in the same order; empty where not asked for."""
    template_hash: str = ""
    """Identifies what rendered them."""
    tokenizer_hash: str = ""
    """Identifies the tokenizer."""
    weight_version: str = ""
    """The engine's weights, where it reports them."""
    verbatim: bool = True
    """Whether what was sampled stands in the conversation as it is; else later prompts say its items anew."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The pass ended as an engine means it to end."""

    reason: FinishReason = FinishReason.STOP
    usage: PassUsage = field(default_factory=PassUsage)
    record: TokenRecord | None = None
    """The tokens, from engines that know them."""


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """The pass ended because the engine could not go on."""

    code: str
    """A code of `turnwire.v1.errors`, such as `server_error`, `server_is_overloaded`, `context_length_exceeded`."""
    message: str
    retry_after: float | None = None
    """Seconds after which a retry may succeed; None where the engine did not say."""
