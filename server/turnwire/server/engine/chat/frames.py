"""Frames of a chat stream as values: strict and fast where they are sound, lenient where they are not.

Above it: `stream`. Below it: nothing. A sound frame takes about a microsecond. What does not fit is read again with
everything allowed that real upstreams send: bytes that are not UTF-8, NaN, halves of surrogate pairs, numbers as text.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, cast

import msgspec

from turnwire.server.session.chunks import PassUsage
from turnwire.v1.item_pb2 import Logprob, TopLogprob

_LEAST: Final = -9999.0
"""Stands for a log-probability that is no number; vLLM's own word for minus infinity."""


class FunctionPiece(msgspec.Struct):
    """A piece of a function call."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPiece(msgspec.Struct):
    """A piece of a tool call."""

    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None


class Delta(msgspec.Struct):
    """What a frame adds to the answer; also the whole message of an upstream that does not stream."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: FunctionPiece | None = None


class TokenLogprob(msgspec.Struct):
    """A token with its log-probability."""

    token: str = ""
    logprob: float | None = None
    bytes: list[int] | None = None
    top_logprobs: list[TokenLogprob] | None = None


class Logprobs(msgspec.Struct):
    """Log-probabilities of a frame."""

    content: list[TokenLogprob] | None = None


class Choice(msgspec.Struct):
    """One answer; only the first is asked for."""

    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class Frame(msgspec.Struct):
    """One event of a stream, or the whole answer."""

    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    error: Any = None
    message: Any = None
    detail: Any = None


_decode: Final = msgspec.json.Decoder(Frame).decode


def read_frame(data: bytes) -> Frame | None:
    """Returns the frame that an event's data holds; None where it is none."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _lenient(data)


def _lenient(data: bytes) -> Frame | None:
    try:
        value = _sound(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    try:
        return msgspec.convert(fields, Frame, strict=False)
    except msgspec.ValidationError:
        # An error counts whatever stands beside it.
        return Frame(error=fields["error"]) if fields.get("error") else None


def _sound(value: object) -> object:
    """Returns a JSON value without what protobuf and JSON cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else _LEAST
    if isinstance(value, list):
        return [_sound(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {str(key): _sound(each) for key, each in cast("dict[object, object]", value).items()}
    return value


def logprobs_of(found: Logprobs | None) -> tuple[Logprob, ...]:
    """Returns a frame's log-probabilities as they stand in items."""
    if found is None or not found.content:
        return ()
    return tuple(
        Logprob(
            token=each.token,
            logprob=_number(each.logprob),
            bytes=_bytes(each),
            top_logprobs=[
                TopLogprob(token=top.token, logprob=_number(top.logprob), bytes=_bytes(top))
                for top in each.top_logprobs or ()
            ],
        )
        for each in found.content
    )


def _number(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else _LEAST


def _bytes(token: TokenLogprob) -> list[int]:
    if token.bytes is not None and all(0 <= each < 256 for each in token.bytes):
        return token.bytes
    return list(token.token.encode("utf-8", "replace"))


def usage_of(usage: dict[str, Any], timings: dict[str, Any] | None = None) -> PassUsage:
    """Reads an upstream's count, and llama.cpp's own; what is missing or nonsense is 0."""
    prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    if not cached and timings:
        cached = _count(timings.get("cache_n"))
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    return PassUsage(prompt, min(cached, prompt), output, min(reasoning, output))


def _detail(usage: dict[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    return _count(cast("dict[str, Any]", details).get(name)) if isinstance(details, dict) else 0


def _count(value: object) -> int:
    if isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 2**31:
        return int(value)
    return 0
