"""Settings out of their range, too long or outside their vocabulary are refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

BAD: list[tuple[dict[str, Any], str, str, str]] = [
    # settings, code, param, message ("" where the public API has none of its own)
    ({"model": ""}, "missing_required_parameter", "model", "Missing required parameter: 'model'."),
    ({"model": "x"}, "model_not_found", "model", "The requested model 'x' does not exist."),
    (
        {"temperature": 3.0},
        "invalid_value",
        "temperature",
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3.0 instead.",
    ),
    (
        {"temperature": -0.5},
        "invalid_value",
        "temperature",
        "Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -0.5 instead.",
    ),
    ({"temperature": math.nan}, "invalid_value", "temperature", ""),
    ({"temperature": math.inf}, "invalid_value", "temperature", ""),
    ({"top_p": 1.01}, "invalid_value", "top_p", ""),
    ({"top_p": -math.inf}, "invalid_value", "top_p", ""),
    (
        {"max_output_tokens": 15},
        "invalid_value",
        "max_output_tokens",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.",
    ),
    ({"max_tool_calls": 0}, "invalid_value", "max_tool_calls", ""),
    (
        {"top_logprobs": 21},
        "invalid_value",
        "top_logprobs",
        "Invalid 'top_logprobs': integer above maximum value. Expected a value <= 20, but got 21 instead.",
    ),
    ({"top_logprobs": -1}, "invalid_value", "top_logprobs", ""),
    ({"top_k": 0}, "invalid_value", "top_k", ""),
    ({"min_p": 1.5}, "invalid_value", "min_p", ""),
    ({"repetition_penalty": 0.0}, "invalid_value", "repetition_penalty", ""),
    ({"repetition_penalty": 2.1}, "invalid_value", "repetition_penalty", ""),
    ({"presence_penalty": -2.1}, "invalid_value", "presence_penalty", ""),
    ({"frequency_penalty": 2.1}, "invalid_value", "frequency_penalty", ""),
    ({"stop": ["a"] * 17}, "array_above_max_length", "stop", ""),
    ({"stop": ["a", ""]}, "invalid_value", "stop[1]", ""),
    ({"logit_bias": {str(n): 1.0 for n in range(1_025)}}, "array_above_max_length", "logit_bias", ""),
    ({"logit_bias": {"7": 101.0}}, "invalid_value", "logit_bias.7", ""),
    ({"logit_bias": {"7": math.nan}}, "invalid_value", "logit_bias.7", ""),
    ({"logit_bias": {"seven": 1.0}}, "invalid_value", "logit_bias", ""),
    ({"metadata": {str(n): "" for n in range(17)}}, "invalid_value", "metadata", ""),
    ({"metadata": {"k" * 65: ""}}, "string_above_max_length", "metadata", ""),
    (
        {"metadata": {"k": "v" * 513}},
        "string_above_max_length",
        "metadata.k",
        "Invalid 'metadata.k': string too long. Expected a string with maximum length 512, but got a string with"
        " length 513 instead.",
    ),
    ({"instructions": "x" * 10_485_761}, "string_above_max_length", "instructions", ""),
    ({"safety_identifier": "x" * 129}, "string_above_max_length", "safety_identifier", ""),
    (
        {"truncation": "maybe"},
        "invalid_value",
        "truncation",
        "Invalid value: 'maybe'. Supported values are: 'auto' and 'disabled'.",
    ),
    ({"truncation": ""}, "invalid_value", "truncation", ""),
    ({"reasoning": {"effort": "most"}}, "invalid_value", "reasoning.effort", ""),
    (
        {"reasoning": {"summary": "long"}},
        "invalid_value",
        "reasoning.summary",
        "Invalid value: 'long'. Supported values are: 'auto', 'concise', and 'detailed'.",
    ),
    ({"reasoning": {"context": "some"}}, "invalid_value", "reasoning.context", ""),
    ({"reasoning": {"mode": "fast"}}, "invalid_value", "reasoning.mode", ""),
    ({"reasoning": {"extra_json": "[]"}}, "invalid_type", "reasoning.extra_json", ""),
    ({"text": {"verbosity": "max"}}, "invalid_value", "text.verbosity", ""),
    ({"text": {"format": {}}}, "missing_required_parameter", "text.format.type", ""),
    ({"text": {"format": {"text": {"extra_json": "{"}}}}, "invalid_json", "text.format.extra_json", ""),
    ({"prompt": '{"id":"p"}'}, "unsupported_parameter", "prompt", ""),
    ({"conversation": '"c"'}, "unsupported_parameter", "conversation", ""),
    ({"client_metadata": "{oops"}, "invalid_json", "client_metadata", ""),
    ({"client_metadata": "NaN"}, "invalid_json", "client_metadata", ""),
    ({"client_metadata": "[" * 100_000}, "invalid_json", "client_metadata", ""),
    ({"client_metadata": "[" * 201 + "]" * 201}, "invalid_json", "client_metadata", ""),
    ({"prompt_cache_options": "[]"}, "invalid_type", "prompt_cache_options", ""),
    ({"context_management": ['{"type":"compaction"}', "1"]}, "invalid_type", "context_management[1]", ""),
    ({"context_management": [""]}, "invalid_json", "context_management[0]", ""),
    ({"extra_json": '{"a":1'}, "invalid_json", "extra_json", ""),
    ({"extra_json": '"a"'}, "invalid_type", "extra_json", ""),
    ({"verbosity": 77}, "invalid_value", "verbosity", ""),
    ({"timeouts": {"total": {"seconds": -1}}}, "invalid_value", "timeouts.total", ""),
    ({"timeouts": {"hold": {"nanos": -1}}}, "invalid_value", "timeouts.hold", ""),
    ({"timeouts": {"first_token": {"nanos": 2_000_000_000}}}, "invalid_value", "timeouts.first_token", ""),
    ({"timeouts": {"total": {"seconds": 2**62}}}, "invalid_value", "timeouts.total", ""),
]

GOOD: list[dict[str, Any]] = [
    {"temperature": 0.0, "top_p": 0.0, "top_logprobs": 0},
    {"temperature": 2.0, "top_p": 1.0, "top_logprobs": 20},
    {"max_output_tokens": 16, "max_tool_calls": 1, "top_k": 1, "min_p": 0.0},
    {"repetition_penalty": 2.0, "presence_penalty": -2.0, "frequency_penalty": 2.0, "seed": -(2**63)},
    {"stop": ["a"] * 16, "logit_bias": {"7": -100.0, "8": 100.0}},
    {"metadata": {"k" * 64: "v" * 512, **{str(n): "" for n in range(15)}}},
    {"safety_identifier": "ü" * 128, "service_tier": "whatever", "include": ["anything"]},
    {"truncation": "auto", "reasoning": {"effort": "none", "summary": "auto", "context": "auto", "mode": "pro"}},
    {"text": {"verbosity": "low", "format": {"json_object": {}}}},
    {"client_metadata": '{"thread":"1"}', "prompt_cache_options": '{"prewarm":true}', "extra_json": '{"new":[1]}'},
    {"client_metadata": "[" * 200 + "]" * 200},
    {"client_metadata": '"' + "[" * 10_000 + '"'},
    {"client_metadata": ""},
    {"timeouts": {"total": {"seconds": 5, "nanos": 999_999_999}, "hold": {}}},
]


@pytest.mark.parametrize(("settings", "code", "param", "message"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_setting_is_refused_by_name(
    refuse: Any, settings: dict[str, Any], code: str, param: str, message: str
) -> None:
    error = refuse(**settings)
    assert (error.code, error.param) == (code, param)
    assert error.type == "invalid_request_error"
    assert error.message
    if message:
        assert error.message == message


@pytest.mark.parametrize("settings", GOOD, ids=lambda value: str(value)[:50])
def test_a_setting_at_its_limit_is_taken(prepare: Any, settings: dict[str, Any]) -> None:
    assert prepare(**settings).model == "echo-2026"


@pytest.mark.parametrize(
    ("wanted", "code", "param"),
    [
        ({"schema": "{}"}, "missing_required_parameter", "text.format.name"),
        ({"name": "a" * 65, "schema": "{}"}, "string_above_max_length", "text.format.name"),
        ({"name": "a b", "schema": "{}"}, "invalid_value", "text.format.name"),
        ({"name": "a\n", "schema": "{}"}, "invalid_value", "text.format.name"),
        ({"name": "a"}, "missing_required_parameter", "text.format.schema"),
        ({"name": "a", "schema": "{"}, "invalid_json", "text.format.schema"),
        ({"name": "a", "schema": "[]"}, "invalid_value", "text.format.schema"),
        ({"name": "a", "schema": '{"type":"strng"}'}, "invalid_value", "text.format.schema"),
    ],
)
def test_a_bad_text_format_is_refused(refuse: Any, wanted: dict[str, Any], code: str, param: str) -> None:
    error = refuse(text={"format": {"json_schema": wanted}})
    assert (error.code, error.param) == (code, param)


def test_a_bad_schema_of_a_text_format_is_named_in_the_public_words(refuse: Any) -> None:
    error = refuse(
        text={"format": {"json_schema": {"name": "plan", "schema": '{"properties":{"a":{"type":"strng"}}}'}}}
    )
    assert error.message == (
        "Invalid schema for response_format 'plan': In context=('properties', 'a', 'type'), 'strng' is not valid under"
        " any of the given schemas."
    )


def test_a_long_value_is_not_repeated_in_full(refuse: Any) -> None:
    assert len(refuse(model="m" * 10_000).message) < 200
    assert len(refuse(truncation="t" * 10_000).message) < 200
