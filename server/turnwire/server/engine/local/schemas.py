"""JSON schemas as llama.cpp is to follow them. Pure.

Above it: `token_requests`. Below it: nothing. A prompt of ids is answered under llguidance, the grammar engine within
llama.cpp, which takes schemas as the standard means them: blanks wherever JSON lets them stand, and members of any name
where a schema does not forbid it. A small model never comes to an end that way. So answers are written on one line, and
an object whose members are listed has no others, unless its schema speaks of others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from turnwire.server.prompt.parts import json_object
from turnwire.v1.response_pb2 import ResponseCreate

_LAYOUT: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_COMBINING: Final = frozenset({"allOf", "anyOf", "oneOf", "$ref", "if", "not", "dependentSchemas"})
"""What makes an object's members come from elsewhere too."""
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
    closed = cast("dict[str, Any]", _closed(schema, parts=False))
    return json.dumps({**closed, "x-guidance": _LAYOUT}, ensure_ascii=False)


def _closed(value: object, *, parts: bool) -> object:
    """Returns a schema without members that nobody listed; within combined schemas all is left as it is."""
    if isinstance(value, list):
        return [_closed(each, parts=parts) for each in cast("list[object]", value)]
    if not isinstance(value, Mapping):
        return value
    schema = cast("Mapping[str, Any]", value)
    combined = parts or not _COMBINING.isdisjoint(schema)
    found: dict[str, Any] = {}
    for key, each in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(each, Mapping):
            # Names here are the author's own, even where they read like a keyword.
            below = cast("Mapping[str, Any]", each)
            found[key] = {name: _closed(one, parts=False) for name, one in below.items()}
        elif key in ("enum", "const", "default", "examples"):
            found[key] = each
        else:
            found[key] = _closed(each, parts=key == "allOf")
    if isinstance(schema.get("properties"), Mapping) and not combined and _OTHERS.isdisjoint(schema):
        found["additionalProperties"] = False
    return found
