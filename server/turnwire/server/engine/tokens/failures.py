"""What an engine's trouble means to a client: statuses of gRPC and HTTP as official error codes.

Above it: the adapters. An engine's own words reach the client only where the client can do something about them, and
never in full: they may be megabytes, or hold what is the operator's alone.
"""

from __future__ import annotations

import re
from typing import Final

import grpc

from turnwire.server.session.chunks import EngineFailure

_MAX_WORDS: Final = 300
"""Characters of an engine's words that are passed on."""

_OVERFLOW: Final = re.compile(
    r"context length|maximum model length|max_model_len|max(imum)? (allowed )?(input |prompt )?length"
    r"|(prompt|input)( is)? too long|longer than the (max|model|context)|exceeds? the (max|model|context)",
    re.IGNORECASE,
)
"""How vLLM and SGLang say that the prompt is too long; no code of theirs does."""

OVERLOAD_PAUSE: Final = 1.0
"""Seconds after which to retry where an overloaded engine does not say."""


def words(text: str) -> str:
    """Returns an engine's words in one line of bearable length."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _MAX_WORDS]).split())
    return flat if len(flat) <= _MAX_WORDS else f"{flat[:_MAX_WORDS]}…"


def overflow(prompt_tokens: int, context_length: int) -> EngineFailure:
    """Says that a prompt does not fit, as the official API does."""
    return EngineFailure(
        "context_length_exceeded",
        f"Your input exceeds the context window of this model: {prompt_tokens} tokens of at most {context_length - 1}.",
    )


def refused(text: str) -> EngineFailure:
    """Says that the engine found something wrong with the request."""
    if _OVERFLOW.search(text[:10_000]):
        message = "Your input exceeds the context window of this model."
        return EngineFailure("context_length_exceeded", f"{message} The engine says: {words(text)}")
    return EngineFailure("invalid_request_error", f"The engine refused the request: {words(text)}")


def unavailable(engine: str) -> EngineFailure:
    """Says that the engine cannot be reached, or was lost."""
    return EngineFailure("engine_unavailable", f"The engine {engine} cannot be reached.", OVERLOAD_PAUSE)


def broken(engine: str, what: str) -> EngineFailure:
    """Says that the engine does not keep to its protocol."""
    return EngineFailure("server_error", f"The engine {engine} {what}.")


def grpc_failure(engine: str, status: grpc.StatusCode, details: str, retry_after: float | None) -> EngineFailure:
    """Translates a status other than OK.

    Args:
        engine: Label of the engine, for messages.
        status: The status.
        details: The engine's words.
        retry_after: Seconds, where the engine said.
    """
    match status:
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return refused(details)
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED | grpc.StatusCode.ABORTED:
            failure = unavailable(engine)
            return EngineFailure(failure.code, failure.message, retry_after or failure.retry_after)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            message = f"The engine {engine} is overloaded."
            return EngineFailure("server_is_overloaded", message, retry_after or OVERLOAD_PAUSE)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return EngineFailure("engine_unavailable", f"The engine {engine} did not answer in time.", retry_after)
        case grpc.StatusCode.NOT_FOUND:
            return EngineFailure("model_not_found", f"The engine {engine} does not serve the model: {words(details)}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return broken(engine, "does not support this request")
        case _:
            return broken(engine, f"failed ({status.name})")


def http_failure(engine: str, status: int, text: str, retry_after: float | None) -> EngineFailure:
    """Translates an HTTP status other than 200; see `grpc_failure`."""
    match status:
        case 400 | 413 | 422:
            return refused(text)
        case 404:
            return EngineFailure("model_not_found", f"The engine {engine} does not serve the model: {words(text)}")
        case 408 | 502 | 504:
            failure = unavailable(engine)
            return EngineFailure(failure.code, failure.message, retry_after or failure.retry_after)
        case 429 | 503:
            message = f"The engine {engine} is overloaded."
            return EngineFailure("server_is_overloaded", message, retry_after or OVERLOAD_PAUSE)
        case _:
            return broken(engine, f"failed (HTTP {status})")


def pause_of(text: str | None) -> float | None:
    """Reads the seconds of a `retry-after`; None where there are none, or nonsense."""
    try:
        seconds = float(text) if text else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None
