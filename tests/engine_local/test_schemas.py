"""Schemas as llama.cpp is given them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.engine.local.schemas import answer_schema, guided

from .scene import prompt

A: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED: dict[str, Any] = {**A, "additionalProperties": False}


def read(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(guided(schema))
    assert found.pop("x-guidance")["whitespace_flexible"] is False
    return found


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (A, CLOSED),
        ({"type": "array", "items": A}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        (
            {"$ref": "#/$defs/properties", "$defs": {"properties": A}},
            {"$ref": "#/$defs/properties", "$defs": {"properties": CLOSED}},
        ),
    ],
)
def test_members_that_nobody_listed_are_shut_out(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**A, "additionalProperties": {"type": "string"}},
        {**A, "patternProperties": {"^x": {}}},
        {"allOf": [A, {"type": "object", "properties": {"b": A}}]},
        {"allOf": [{"$ref": "#/$defs/base"}, A], "$defs": {"base": A}},
        {**A, "anyOf": [{"required": ["a"]}]},
        {"const": A},
        {"enum": [A]},
    ],
)
def test_schemas_that_speak_of_others_or_are_combined_stay_as_they_are(schema: dict[str, Any]) -> None:
    assert read(schema) == schema


def test_a_layout_of_the_clients_own_is_not_asked_for() -> None:
    assert read({**A, "x-guidance": {"whitespace_flexible": True}}) == CLOSED


def test_the_schema_of_an_answer_is_the_formats() -> None:
    assert answer_schema(prompt().settings) is None
    assert answer_schema(prompt(text={"format": {"type": "json_object"}}).settings) == {"type": "object"}
    wanted = {"type": "json_schema", "name": "x", "schema": A}
    assert answer_schema(prompt(text={"format": wanted}).settings) == A
