"""The port of engines that take and give token ids, and nothing about how they are reached.

Above it: `rendered`, which makes an `Engine` of such an engine, a renderer and an output parser. Below it: one adapter
per protocol. As with every engine, output is *pushed* into a sink by plain calls on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.prompt.segments import Rendered
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import EngineFailure, FinishReason
from turnwire.server.session.visits import Visits

UNKNOWN_LOGPROB: Final = -9999.0
"""Stands in for a log-probability that the engine did not give or gave as no number; the public API's own choice."""


class EngineStartError(Exception):
    """An engine cannot be used as it was configured; the text is for the operator and names both sides."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar that the output has to follow; held by the engine."""

    kind: str
    """`json_schema`, `json_object` or `structural_tag`."""
    text: str = ""
    """The schema or the tag, as JSON text; empty for `json_object`."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. Adapters send every value, since an engine's own defaults may be those of its model's authors."""

    temperature: float = 1.0
    top_p: float = 1.0
    """More than 0: engines read a zero as not set."""
    top_k: int = 0
    """0 for no limit."""
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    """Most ids to sample; None for what fits into the context."""
    stop: tuple[str, ...] = ()
    """Strings that end sampling. Engines without them leave it to whoever reads the text."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end sampling; the one sampled is part of the output."""
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    logprobs: int | None = None
    """Alternatives per token beside the sampled one's own log-probability; None for no log-probabilities at all."""
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """One pass, as a token engine sees it."""

    request_id: str
    """Unique among all that run on the engine."""
    prompt: Rendered
    sampling: Sampling
    chain: Chain = field(default_factory=lambda: Chain(""))
    """The chain that it belongs to, whose key a router in between can keep it by where its cache is."""
    wants_weights: bool = False
    """Whether the weights that sampled are to be named, which costs some engines a question of its own."""
    visits: Visits | None = field(default=None, compare=False, repr=False)
    """Where to note what was looked at."""


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """The next sampled ids."""

    ids: Sequence[int]
    logprobs: Sequence[float] = ()
    """One for each id, or none at all."""
    alternatives: Sequence[Sequence[tuple[int, float]]] = ()
    """The likeliest ids with their log-probabilities, for each id, or none at all."""


@dataclass(frozen=True, slots=True)
class TokenEnd:
    """The pass ended as an engine means it to end."""

    reason: FinishReason
    prompt_tokens: int = 0
    """As the engine counted; 0 where it does not say."""
    cached_tokens: int | None = None
    """The part of the prompt found in the engine's prefix cache; None where it does not say."""
    output_tokens: int = 0
    """As the engine counted; 0 where it does not say."""
    reasoning_tokens: int = 0
    """Of the output, as the engine counted; 0 where it does not say."""
    stop_id: int | None = None
    """The id that ended sampling, where the engine names it."""
    weight_version: str = ""
    """The weights that sampled, where the engine names them with each answer."""


class TokenSink(Protocol):
    """Where a pass delivers; called on the event loop's thread, never re-entrantly from `TokenEngine.start`."""

    def output(self, delta: TokenDelta, /) -> None:
        """Takes the next ids, in order. Never blocks; back-pressure arrives as `TokenPass.pause`."""

    def ended(self, outcome: TokenEnd | EngineFailure, /) -> None:
        """Takes the outcome; exactly once, last, unless the pass was aborted first."""


class TokenPass(Protocol):
    """One running pass."""

    def pause(self) -> None:
        """Stops reading; the transport's flow control reaches the engine. Idempotent."""

    def resume(self) -> None:
        """Reads on. Idempotent."""

    def abort(self) -> None:
        """Frees the engine at once; the sink is not called again. Idempotent, also after the end."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says about itself when it is first reached; empty where it does not say."""

    model: str = ""
    """The name it serves the model under."""
    model_path: str = ""
    context_length: int | None = None
    """Ids of prompt and output together."""
    vocab_size: int | None = None
    """Size of the model's embedding, often padded beyond the tokenizer."""
    eos_ids: frozenset[int] = frozenset()
    weight_version: str = ""
    server: str = ""
    """What the engine is, such as `vllm-grpc`; for messages and logs."""


class TokenEngine(Protocol):
    """An inference service that takes and gives token ids."""

    name: str
    """Short label for metrics, such as `vllm-grpc`."""
    address: str
    """Where it is; for messages."""

    async def facts(self) -> EngineFacts:
        """Asks the engine about itself. Safe to cancel.

        Raises:
            EngineStartError: It cannot be reached, or is of another kind.
        """
        ...

    async def disagreement(self, table: TokenTable) -> str:
        """Compares its tokenizer with ours, as far as it shows it. Safe to cancel.

        Returns:
            What differs, for the operator; empty for nothing, and where it shows nothing.

        Raises:
            EngineStartError: It cannot be reached.
        """
        ...

    def start(self, request: TokenRequest, sink: TokenSink) -> TokenPass:
        """Begins a pass. Returns at once; trouble reaches the sink as `EngineFailure`."""
        ...

    async def aclose(self) -> None:
        """Aborts what runs and releases connections. Cancelling it leaves the engine unusable."""
