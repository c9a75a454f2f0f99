"""JSON schemas as llama.cpp is to follow them. Pure.

Above it: `token_requests`. Below it: nothing. A prompt of ids is answered under llguidance, the grammar engine within
llama.cpp, which takes schemas as the standard means them: blanks wherever JSON lets them stand, and members of any name
where a schema does not forbid it. A small model never comes to an end that way. So answers are written on one line, and
an object whose members are listed has no others, unless its schema speaks of others or is put together of several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from turnwire.server.prompt.parts import json_object
from turnwire.v1.response_pb2 import ResponseCreate

_LAYOUT: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_ELSEWHERE: Final = frozenset({"allOf", "anyOf", "oneOf", "$ref", "if", "not", "dependentSchemas"})
"""What lets an object's members come from elsewhere too."""
_OTHERS: Final = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames"})
"""What speaks of members that are not listed."""


def answer_schema(settings: ResponseCreate) -> dict[str, Any] | None:
    """Returns the schema that an answer has to follow; None for any text."""
    wanted = settings.text.format
    match wanted.WhichOneof("kind"):
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            return json_object(wanted.json_schema.schema) or {"type": "object"}
        case _:
            return None


def guided(schema: Mapping[str, Any]) -> str:
    """Returns a schema as llama.cpp is given it, as JSON text."""
    shown = schema if _adds_up(schema) else cast("Mapping[str, Any]", _closed(schema))
    return json.dumps({**shown, "x-guidance": _LAYOUT}, ensure_ascii=False)


def _adds_up(value: object) -> bool:
    """Whether objects are put together of several schemas somewhere: each of them may list members of its own."""
    if isinstance(value, list):
        return any(map(_adds_up, cast("list[object]", value)))
    if not isinstance(value, Mapping):
        return False
    schema = cast("Mapping[str, Any]", value)
    parts = schema.get("allOf")
    several = isinstance(parts, list) and len(cast("list[object]", parts)) > 1
    listed = isinstance(schema.get("properties"), Mapping) and not _ELSEWHERE.isdisjoint(schema)
    return several or listed or any(map(_adds_up, schema.values()))


def _closed(value: object) -> object:
    """Returns a schema without members that nobody listed."""
    if isinstance(value, list):
        return [_closed(each) for each in cast("list[object]", value)]
    if not isinstance(value, Mapping):
        return value
    schema = cast("Mapping[str, Any]", value)
    found: dict[str, Any] = {}
    for key, each in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(each, Mapping):
            # Names here are the author's own, even where they read like a keyword.
            below = cast("Mapping[str, Any]", each)
            found[key] = {name: _closed(one) for name, one in below.items()}
        else:
            found[key] = each if key in ("enum", "const", "default", "examples") else _closed(each)
    if isinstance(schema.get("properties"), Mapping) and _OTHERS.isdisjoint(schema):
        found["additionalProperties"] = False
    return found
