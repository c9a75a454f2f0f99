"""What one model can do, beyond what its engine says: limits, abilities, defaults and price, as values.

Above it: policy, which refuses what a model cannot do, and `profiled`, which applies the rest to every pass. Below it:
the rule by which images are counted. A model without a profile is asked whatever its clients ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from turnwire.server.media.rule import TILES, ImageRule
from turnwire.v1.response_pb2 import ResponseCreate

LOGPROBS: Final = "message.output_text.logprobs"
"""The value of `include` that asks for log-probabilities."""

PARAMETERS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_output_tokens",
    "max_tool_calls",
    "stop",
    "seed",
    "logit_bias",
    "truncation",
    "service_tier",
    "text.verbosity",
    "reasoning.effort",
    "reasoning.summary",
)
"""Parameters that a profile can take away one by one."""

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model takes."""

    images: bool = True
    tools: bool = True
    parallel_tools: bool = True
    """Whether it may be asked for several calls at once."""
    json_schema: bool = True
    reasoning: bool = True
    logprobs: bool = True


@dataclass(frozen=True, slots=True)
class Takes:
    """What an engine can hand on to its models beside texts, whatever the models can do."""

    images: bool = True
    files: bool = True
    """Files other than texts, which become part of the text."""


ALL: Final = Takes()
"""Of an engine that hands on everything."""
TEXTS: Final = Takes(images=False, files=False)
"""Of an engine whose prompts are tokens made here: no renderer has a form for anything else."""


@dataclass(frozen=True, slots=True)
class Price:
    """What tokens cost, per million."""

    input: float = 0.0
    cached: float = 0.0
    """Of the input, what came from a cache."""
    output: float = 0.0
    currency: str = "USD"

    def of(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Returns what a response cost."""
        fresh = max(0, input_tokens - cached_tokens)
        return (fresh * self.input + cached_tokens * self.cached + output_tokens * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What the operator says of a model."""

    context_length: int | None = None
    """Tokens of prompt and output together; None leaves it to the engine."""
    max_output_tokens: int | None = None
    """Most that a request may ask for."""
    defaults: ResponseCreate = field(default_factory=ResponseCreate, hash=False)
    """Settings used where a request has none."""
    capabilities: Capabilities = Capabilities()
    unsupported: frozenset[str] = frozenset()
    """Of `PARAMETERS`, those that the model does not take."""
    ignores: bool = False
    """Whether what the model does not take is left out; else the request is refused, as the public API does."""
    price: Price | None = None
    image_rule: ImageRule = TILES
    """How many tokens an image is."""


PLAIN: Final = ModelProfile()
"""Of a model that nobody said anything about."""


def unsupported_in(settings: ResponseCreate, *, tools: bool, profile: ModelProfile) -> Iterator[str]:
    """Yields the paths of parameters that a request has and its model does not take.

    Args:
        settings: The settings in force.
        tools: Whether there are tools.
        profile: The model's.
    """
    can = profile.capabilities
    if tools and not can.tools:
        yield "tools"
    # False asks for what such a model does anyway.
    if settings.parallel_tool_calls and not (can.parallel_tools and can.tools):
        yield "parallel_tool_calls"
    if not can.json_schema and settings.text.format.HasField("json_schema"):
        yield "text.format"
    if not can.reasoning and settings.HasField("reasoning"):
        for described, value in settings.reasoning.ListFields():
            # No effort asks for nothing.
            if (described.name, value) != ("effort", "none"):
                yield f"reasoning.{described.name}"
    if not can.logprobs:
        if LOGPROBS in settings.include:
            yield "include"
        if settings.top_logprobs:
            yield "top_logprobs"
        if settings.token_output.logprobs:
            yield "token_output.logprobs"
    for path in sorted(profile.unsupported):
        message, name = _owner(settings, path)
        if message is not None and any(described.name == name for described, _ in message.ListFields()):
            yield path


def without(settings: ResponseCreate, path: str) -> None:
    """Takes a parameter out of settings."""
    if path == "include":
        kept = [value for value in settings.include if value != LOGPROBS]
        del settings.include[:]
        settings.include.extend(kept)
        return
    message, name = _owner(settings, path)
    if message is not None:
        message.ClearField(name)


def _owner(settings: ResponseCreate, path: str) -> tuple[Any, str]:
    """Returns the message that has a field, None where it is unset, and the field's name."""
    outer, _, name = path.rpartition(".")
    if not outer:
        return settings, name
    return (getattr(settings, outer) if settings.HasField(outer) else None), name  # type: ignore[arg-type]
