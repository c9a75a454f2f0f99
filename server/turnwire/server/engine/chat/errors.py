"""What an upstream's trouble means to a client: HTTP answers, error frames and exceptions as official error codes.

Above it: `stream`, `exchange` and `engine`. Below it: nothing. An upstream's own words reach the client only where the
client can do something about them, in one line of bearable length and without the server's own secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

import msgspec

from turnwire.server.session.chunks import EngineFailure

MAX_ERROR_BYTES: Final = 64 * 1024
"""How much of an error's body is read."""

RETRY_PAUSE: Final = 1.0
"""Seconds after which to retry where the upstream does not say."""

_MAX_WORDS: Final = 300
_MAX_PAUSE: Final = 86_400.0

_OVERFLOW: Final = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(maximum|max(imum)? model|model'?s?( maximum)?|available|allowed) context"
    r"|context (length|size|window)|maximum model length|max_model_len"
    r"|(prompt|input)( is)? too (long|large)|longer than the (max|model|context)|exceeds? the (max|model|context)"
    r"|too many (input )?tokens|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, SGLang, llama.cpp, Ollama and LM Studio say that the prompt is too long."""

_OVERLOADED: Final = re.compile(r"overload|at capacity|too busy|queue (is )?full", re.IGNORECASE)
_LOADING: Final = re.compile(r"loading model|model is (still )?loading", re.IGNORECASE)
_MODEL: Final = re.compile(r"model", re.IGNORECASE)
_QUOTA: Final = re.compile(r"insufficient_quota|exceeded your current quota|billing", re.IGNORECASE)
_SECRETS: Final = re.compile(r"(?i:bearer\s+)\S+|\b(?:sk|pk|key|token|hf|gsk|xai)[-_][A-Za-z0-9_-]{8,}")

_LOST: Final = "The upstream closed the connection before the answer was complete."


def words(text: str, secrets: Sequence[str] = ()) -> str:
    """Returns an upstream's words in one line of bearable length, without anything that looks like a key."""
    text = text[: 8 * _MAX_WORDS]
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    flat = " ".join("".join(c if c.isprintable() else " " for c in _SECRETS.sub("***", text)).split())
    return flat if len(flat) <= _MAX_WORDS else f"{flat[:_MAX_WORDS]}…"


def of_response(
    status: int, headers: Mapping[str, str], body: bytes, *, secrets: Sequence[str], now: float
) -> EngineFailure:
    """Translates an answer other than 200.

    Args:
        status: The HTTP status.
        headers: The headers, by their names in any case.
        body: The body or its beginning.
        secrets: What must not be repeated.
        now: Seconds since 1970-01-01 UTC, for dates to retry at.
    """
    code, text = _told(body)
    pause = retry_after(headers, now)
    return _translated(status, code, text, pause, secrets)


def of_frame(error: object, secrets: Sequence[str] = ()) -> EngineFailure:
    """Translates an error that came within a stream, or in place of an answer with status 200."""
    code, text = _described(error)
    status = 500
    if isinstance(error, dict):
        for name in ("code", "status", "status_code", "http_status"):
            value = cast("dict[str, Any]", error).get(name)
            if isinstance(value, int) and 400 <= value < 600:
                status = value
                break
    return _translated(status, code, text, None, secrets)


def _translated(status: int, code: str, text: str, pause: float | None, secrets: Sequence[str]) -> EngineFailure:
    said = f"{code} {text}"
    told = words(text, secrets)
    if status not in (401, 403, 404, 429) and _OVERFLOW.search(said):
        message = "Your input exceeds the context window of this model."
        return EngineFailure("context_length_exceeded", f"{message} The upstream says: {told}" if told else message)
    if _QUOTA.search(said) and status in (402, 403, 429, 500):
        return EngineFailure("insufficient_quota", "The server's quota at the upstream is used up.")
    match status:
        case 401 | 403 | 407:
            # Not the client's credentials, and none of its business.
            return EngineFailure("server_error", "The upstream refused the server's credentials.")
        case 402:
            return EngineFailure("insufficient_quota", "The server's quota at the upstream is used up.")
        case 404 if _MODEL.search(said):
            return EngineFailure("model_not_found", f"The upstream does not serve the model: {told}")
        case 404 | 405:
            return EngineFailure("server_error", "The upstream has no chat completions at the configured address.")
        case 408 | 502 | 504:
            return EngineFailure("engine_unavailable", "The upstream did not answer in time.", pause or RETRY_PAUSE)
        case 413:
            return EngineFailure("request_too_large", "The request is larger than the upstream takes.")
        case 429:
            message = "The upstream's rate limit was reached."
            return EngineFailure("rate_limit_exceeded", f"{message} It says: {told}" if told else message, pause)
        case 503 if _LOADING.search(said):
            return EngineFailure("engine_unavailable", "The upstream is loading its model.", pause or RETRY_PAUSE)
        case 503 | 529:
            return EngineFailure("server_is_overloaded", "The upstream is overloaded.", pause or RETRY_PAUSE)
        case _ if 400 <= status < 500:
            return EngineFailure("invalid_request_error", f"The upstream refused the request: {told or status}")
        case _ if 300 <= status < 400:
            return EngineFailure("server_error", "The upstream answered with a redirect: configure the final address.")
        case _ if _OVERLOADED.search(said):
            return EngineFailure("server_is_overloaded", "The upstream is overloaded.", pause or RETRY_PAUSE)
        case _:
            return EngineFailure("server_error", f"The upstream failed (status {status}).", pause)


def broken(what: str) -> EngineFailure:
    """Says that the upstream does not keep to its protocol."""
    return EngineFailure("server_error", f"The upstream {what}.")


def unreachable(what: str = "cannot be reached") -> EngineFailure:
    """Says that no connection came about."""
    return EngineFailure("engine_unavailable", f"The upstream {what}.", RETRY_PAUSE)


def lost(*, begun: bool) -> EngineFailure:
    """Says that the connection was lost; an answer that had begun cannot simply be asked for again."""
    return EngineFailure("server_error" if begun else "engine_unavailable", _LOST, None if begun else RETRY_PAUSE)


def silent(seconds: float) -> EngineFailure:
    """Says that the upstream said nothing for too long."""
    return EngineFailure("engine_unavailable", f"The upstream was silent for {seconds:g} seconds.", RETRY_PAUSE)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Reads when to retry: seconds, a date, or OpenAI's milliseconds; None where there is nothing, or nonsense."""
    found = {name.lower(): value for name, value in headers.items() if name.lower().startswith("retry-after")}
    pause = _number(found.get("retry-after-ms"))
    if pause is not None:
        return _bearable(pause / 1000)
    text = found.get("retry-after")
    if text is None:
        return None
    pause = _number(text)
    if pause is None:
        try:
            pause = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
        pause = max(pause, 0.0)
    return _bearable(pause)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _bearable(seconds: float) -> float | None:
    return min(seconds, _MAX_PAUSE) if math.isfinite(seconds) and seconds >= 0 else None


def _told(body: bytes) -> tuple[str, str]:
    """Returns the code and the text of an error's body, whatever its form."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        # A page of some proxy says nothing to a client.
        return "", "" if text.startswith("<") else text
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return _described(fields.get("error") or fields)
    return _described(value)


def _described(error: object) -> tuple[str, str]:
    if isinstance(error, str):
        return "", error
    if not isinstance(error, dict):
        return "", "" if error is None else str(error)
    fields = cast("dict[str, Any]", error)
    code = " ".join(str(fields[name]) for name in ("code", "type") if isinstance(fields.get(name), str))
    for name in ("message", "detail", "error", "msg"):
        value = fields.get(name)
        if isinstance(value, str) and value:
            return code, value
        if value:
            return code, msgspec.json.encode(value).decode()
    return code, ""
