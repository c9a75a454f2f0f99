"""Sampling parameters from a request's settings: the official ones and the documented extensions.

Above it: `rendered`. Below it: nothing. The request was checked before, so nothing here is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwire.server.engine.tokens.port import Constraint, Sampling
from turnwire.v1.response_pb2 import ResponseCreate

LOGPROBS_IN_TEXT: Final = "message.output_text.logprobs"
"""The value of `include` that asks for log-probabilities in output text."""

_LEAST_TOP_P: Final = 1e-6
"""What a `top_p` of 0 becomes: only the likeliest token, where engines would read no limit at all."""


def wants_text_logprobs(settings: ResponseCreate) -> bool:
    """Tells whether output text is to carry log-probabilities."""
    return LOGPROBS_IN_TEXT in settings.include


def wants_logprobs(settings: ResponseCreate) -> bool:
    """Tells whether log-probabilities are asked for in any form."""
    return wants_text_logprobs(settings) or settings.token_output.logprobs


def sampling_of(
    settings: ResponseCreate,
    *,
    room: int | None,
    stop_token_ids: Sequence[int],
    constraint: Constraint | None,
) -> Sampling:
    """Translates settings.

    Args:
        settings: The effective settings of the pass.
        room: Ids that still fit into the context behind the prompt; None where nobody knows.
        stop_token_ids: The renderer's own.
        constraint: What the output has to follow.
    """
    limits = [n for n in (room, settings.max_output_tokens if settings.HasField("max_output_tokens") else None) if n]
    logprobs: int | None = None
    if wants_logprobs(settings):
        logprobs = settings.top_logprobs if wants_text_logprobs(settings) else 0
    return Sampling(
        temperature=settings.temperature if settings.HasField("temperature") else 1.0,
        top_p=max(settings.top_p, _LEAST_TOP_P) if settings.HasField("top_p") else 1.0,
        top_k=settings.top_k,
        min_p=settings.min_p,
        frequency_penalty=settings.frequency_penalty,
        presence_penalty=settings.presence_penalty,
        repetition_penalty=settings.repetition_penalty if settings.HasField("repetition_penalty") else 1.0,
        max_tokens=min(limits) if limits else None,
        stop=tuple(settings.stop),
        stop_token_ids=tuple(stop_token_ids),
        seed=settings.seed if settings.HasField("seed") else None,
        logit_bias={int(key): value for key, value in settings.logit_bias.items()},
        logprobs=logprobs,
        constraint=constraint,
    )
