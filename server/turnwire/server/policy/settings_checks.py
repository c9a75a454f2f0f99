"""Checks of settings: ranges, lengths, vocabularies, metadata, time-outs, and the format of text.

Above: `prepare`. Below: refusals and schemas. Tools, tool choice and items are checked by their own modules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from turnwire.server.policy import json_text
from turnwire.server.policy.content_checks import MAX_TEXT
from turnwire.server.policy.refusals import (
    above,
    below,
    invalid,
    missing,
    not_among,
    not_object,
    pattern,
    shown,
    too_long,
    too_many,
    unsupported,
)
from turnwire.server.policy.schemas import Schemas
from turnwire.server.policy.wellformed import check_wellformed
from turnwire.v1.errors import reject
from turnwire.v1.response_pb2 import JsonSchemaFormat, ReasoningConfig, ResponseCreate, TextConfig, Timeouts

_MAX_METADATA: Final = 16
_MAX_KEY: Final = 64
_MAX_VALUE: Final = 512
_MAX_SAFETY_IDENTIFIER: Final = 128
_MAX_STOP: Final = 16
_MAX_BIASES: Final = 1_024
_MAX_BIAS: Final = 100
_FORMAT_NAME: Final = "^[a-zA-Z0-9_-]+$"
_MAX_FORMAT_NAME: Final = 64
_MAX_SECONDS: Final = 315_576_000_000
"""The largest Duration that protobuf allows."""
_NANOS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Range:
    name: str
    kind: str
    low: float
    high: float | None = None
    open_low: bool = False
    """Whether the lower bound itself is outside."""


_RANGES: Final = (
    _Range("max_output_tokens", "integer", 16),
    _Range("max_tool_calls", "integer", 1),
    _Range("top_logprobs", "integer", 0, 20),
    _Range("temperature", "decimal", 0, 2),
    _Range("top_p", "decimal", 0, 1),
    _Range("top_k", "integer", 1),
    _Range("min_p", "decimal", 0, 1),
    _Range("repetition_penalty", "decimal", 0, 2, open_low=True),
    _Range("presence_penalty", "decimal", -2, 2),
    _Range("frequency_penalty", "decimal", -2, 2),
)
_UNSUPPORTED: Final = ("prompt", "conversation")
_TRUNCATION: Final = ("auto", "disabled")
_VERBOSITY: Final = ("low", "medium", "high")
_REASONING: Final = {
    "effort": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "summary": ("auto", "concise", "detailed"),
    "context": ("auto", "current_turn", "all_turns"),
    "mode": ("standard", "pro"),
}


def check_settings(settings: ResponseCreate, schemas: Schemas) -> None:
    """Checks all settings but model, tools and tool choice.

    Args:
        settings: The settings in force, without input and tools.
        schemas: Judges the schema of a text format.

    Raises:
        turnwire.v1.errors.RequestError: A setting cannot be taken, with its path as `param`.
    """
    for name in _UNSUPPORTED:
        if settings.HasField(name):
            raise unsupported(name)
    check_wellformed(settings)
    for limits in _RANGES:
        if settings.HasField(limits.name):  # type: ignore[arg-type]
            _check_range(limits, getattr(settings, limits.name))
    if len(settings.instructions) > MAX_TEXT:
        raise too_long("instructions", MAX_TEXT, len(settings.instructions))
    if len(settings.safety_identifier) > _MAX_SAFETY_IDENTIFIER:
        raise too_long("safety_identifier", _MAX_SAFETY_IDENTIFIER, len(settings.safety_identifier))
    if settings.HasField("truncation") and settings.truncation not in _TRUNCATION:
        raise not_among("truncation", settings.truncation, _TRUNCATION)
    _check_metadata(settings)
    _check_sampling(settings)
    _check_objects(settings)
    if settings.HasField("reasoning"):
        _check_reasoning(settings.reasoning)
    if settings.HasField("text"):
        _check_text(settings.text, schemas)
    if settings.HasField("timeouts"):
        _check_timeouts(settings.timeouts)


def _check_range(limits: _Range, value: float) -> None:
    if value < limits.low or (limits.open_low and value == limits.low):
        raise below(limits.name, limits.kind, f"{'>' if limits.open_low else '>='} {limits.low:g}", value)
    if limits.high is not None and value > limits.high:
        raise above(limits.name, limits.kind, f"<= {limits.high:g}", value)


def _check_metadata(settings: ResponseCreate) -> None:
    metadata = settings.metadata
    if len(metadata) > _MAX_METADATA:
        message = (
            f"Invalid 'metadata': too many properties. Expected an object with at most {_MAX_METADATA} properties, but"
            f" got an object with {len(metadata)} properties instead."
        )
        raise reject("invalid_value", message, param="metadata", limit=str(_MAX_METADATA), length=str(len(metadata)))
    for key, value in metadata.items():
        if len(key) > _MAX_KEY:
            raise too_long("metadata", _MAX_KEY, len(key))
        if len(value) > _MAX_VALUE:
            raise too_long(f"metadata.{key}", _MAX_VALUE, len(value))


def _check_sampling(settings: ResponseCreate) -> None:
    if len(settings.stop) > _MAX_STOP:
        raise too_many("stop", _MAX_STOP, len(settings.stop))
    for index, text in enumerate(settings.stop):
        if not text:
            raise invalid(f"stop[{index}]", "an empty string would end sampling at once")
    if len(settings.logit_bias) > _MAX_BIASES:
        raise too_many("logit_bias", _MAX_BIASES, len(settings.logit_bias))
    for token, bias in settings.logit_bias.items():
        if not (token.isascii() and token.isdigit()):
            raise invalid("logit_bias", f"expected token ids as keys, but got '{shown(token)}'")
        _check_range(_Range(f"logit_bias.{shown(token)}", "decimal", -_MAX_BIAS, _MAX_BIAS), bias)


def _check_objects(settings: ResponseCreate) -> None:
    """Checks the settings that are carried as JSON and must be objects."""
    options = settings.prompt_cache_options
    if options and json_text.members(options) is None:
        raise not_object("prompt_cache_options")
    for index, rule in enumerate(settings.context_management):
        if json_text.members(rule) is None:
            raise not_object(f"context_management[{index}]")


def _check_reasoning(reasoning: ReasoningConfig) -> None:
    for name, supported in _REASONING.items():
        value = getattr(reasoning, name)
        if reasoning.HasField(name) and value not in supported:  # type: ignore[arg-type]
            raise not_among(f"reasoning.{name}", value, supported)


def _check_text(text: TextConfig, schemas: Schemas) -> None:
    if text.HasField("verbosity") and text.verbosity not in _VERBOSITY:
        raise not_among("text.verbosity", text.verbosity, _VERBOSITY)
    if not text.HasField("format"):
        return
    kind = text.format.WhichOneof("kind")
    if kind is None:
        raise missing("text.format.type")
    if kind == "json_schema":
        _check_schema_format(text.format.json_schema, schemas)


def _check_schema_format(wanted: JsonSchemaFormat, schemas: Schemas) -> None:
    if not wanted.name:
        raise missing("text.format.name")
    if len(wanted.name) > _MAX_FORMAT_NAME:
        raise too_long("text.format.name", _MAX_FORMAT_NAME, len(wanted.name))
    if not re.fullmatch(_FORMAT_NAME, wanted.name):
        raise pattern("text.format.name", _FORMAT_NAME)
    if not wanted.schema:
        raise missing("text.format.schema")
    verdict = schemas.check(wanted.schema)
    if verdict.reason:
        message = f"Invalid schema for response_format '{wanted.name}': {verdict.reason}."
        raise reject("invalid_value", message, param="text.format.schema", name=wanted.name, reason=verdict.reason)


def _check_timeouts(timeouts: Timeouts) -> None:
    for field, value in timeouts.ListFields():
        param = f"timeouts.{field.name}"
        duration: Duration = value
        if duration.seconds < 0 or duration.nanos < 0:
            raise invalid(param, "expected a time of 0 seconds or more")
        if duration.seconds > _MAX_SECONDS or duration.nanos >= _NANOS:
            raise invalid(param, "not a valid duration")
