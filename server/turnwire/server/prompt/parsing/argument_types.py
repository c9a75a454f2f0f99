"""What JSON Schema says of the arguments of a call, and the JSON that a text becomes by it.

Above it: readers of formats that write arguments as bare text. Below it: nothing. Such formats write a string as it is,
and everything else as JSON, so that only the tool's schema tells the text `3` from the number.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

ANY: Final = frozenset(("string", "number", "boolean", "null", "object", "array"))
"""Types of JSON; integers count as numbers."""
STRING: Final = frozenset(("string",))

MOST_SHORT: Final = 64
"""Characters of the longest text that may be a number, a truth value or null."""
MOST_HELD: Final = 1 << 20
"""Characters of the longest text that may be an object or a list; what is longer is a string, so that no model can make
us hold more."""

_KNOWN: Final = 256
_DEEPEST: Final = 16
_BEGINS_LONG: Final = re.compile(r"\s*(?:[\[{(]|$)")
_BEGINS_ANY: Final = re.compile(r"\s*(?:[\[{(\-+.\dtfnTFN\"']|$)")


@functools.lru_cache(_KNOWN)
def types_by_name(schema: str) -> Mapping[str, frozenset[str]]:
    """Returns the types of a tool's arguments by name; those that the schema does not tell are missing.

    Args:
        schema: JSON Schema of all arguments, as JSON text.
    """
    try:
        document: object = json.loads(schema)
    except (ValueError, RecursionError):
        return {}
    root = _members(document)
    return {name: found for name, each in _properties(root, root, _DEEPEST).items() if (found := _types(each, root))}


def held(text: str, start: int, stop: int, types: frozenset[str]) -> bool:
    """Whether an argument that begins with `text[start:stop]` may become something else than a string."""
    if types == STRING:
        return False
    if types & {"object", "array"}:
        begins = _BEGINS_LONG if types <= {"object", "array", "string"} else _BEGINS_ANY
        return stop - start <= MOST_HELD and begins.match(text, start, stop) is not None
    return stop - start <= MOST_SHORT


def as_json(text: str, types: frozenset[str]) -> str:
    """Returns the JSON text of an argument: verbatim where it is JSON of one of the types, else a string."""
    if held(text, 0, len(text), types):
        bare = text.strip()
        found = _json_type(bare)
        if found in types and found != "string":
            return bare
        if found is None and (literal := _python_literal(bare, types)) is not None:
            return literal
    return quoted(text)


def quoted(text: str) -> str:
    """Returns a string as JSON."""
    return json.dumps(text, ensure_ascii=False)


def _json_type(text: str) -> str | None:
    """Returns the type of a JSON text; None where it is none."""
    try:
        return _type_of(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def _python_literal(text: str, types: frozenset[str]) -> str | None:
    """Returns JSON for a literal of Python, as models write that have seen rendered ones; None where it is none."""
    try:
        with warnings.catch_warnings():
            # Of unknown escapes and the like, which are the model's business.
            warnings.simplefilter("ignore")
            value: object = ast.literal_eval(text)
        # Of Python's numbers, what JSON does not write so too (`0x1f`, `1_000`) is left alone.
        found_type = "" if isinstance(value, int | float) and not isinstance(value, bool) else _type_of(value)
        if found_type == "string" or found_type not in types:
            return None
        found = json.dumps(value, ensure_ascii=False, allow_nan=False)
        # Escapes can spell half a character, which no protobuf string holds.
        found.encode()
        return found
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _refuse(constant: str) -> NoReturn:
    msg = f"{constant} is not JSON"
    raise ValueError(msg)


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case list() | tuple():
            return "array"
        case _:
            return ""


# What schemas say.


def _members(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _resolved(schema: object, root: dict[str, Any]) -> dict[str, Any]:
    """Follows references within the schema; those that lead nowhere say nothing."""
    found = _members(schema)
    for _ in range(_DEEPEST):
        reference: object = found.get("$ref")
        if not isinstance(reference, str):
            return found
        at: object = root
        for step in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else ["\0"]:
            at = _members(at).get(step.replace("~1", "/").replace("~0", "~"))
        found = _members(at)
    return {}


def _alternatives(schema: dict[str, Any], key: str) -> list[object]:
    found: object = schema.get(key)
    return cast("list[object]", found) if isinstance(found, list) else []


def _properties(schema: object, root: dict[str, Any], depth: int) -> dict[str, object]:
    here = _resolved(schema, root)
    found: dict[str, object] = {}
    if depth:
        for key in ("allOf", "anyOf", "oneOf"):
            for each in _alternatives(here, key):
                found.update(_properties(each, root, depth - 1))
    found.update(_members(here.get("properties")))
    return found


def _types(schema: object, root: dict[str, Any], depth: int = _DEEPEST) -> frozenset[str]:
    """Returns the types that a schema allows; empty where it does not tell."""
    here = _resolved(schema, root)
    named: object = here.get("type")
    names = cast("list[object]", named) if isinstance(named, list) else [named]
    told = frozenset("number" if name == "integer" else str(name) for name in names) & ANY
    if told:
        return told
    values = _alternatives(here, "enum") or ([here["const"]] if "const" in here else [])
    if values:
        return frozenset(map(_type_of, values))
    if depth:
        for key in ("anyOf", "oneOf"):
            each_told = [_types(each, root, depth - 1) for each in _alternatives(here, key)]
            if each_told and all(each_told):
                return each_told[0].union(*each_told[1:])
        all_told = [found for each in _alternatives(here, "allOf") if (found := _types(each, root, depth - 1))]
        if all_told:
            return all_told[0].intersection(*all_told[1:])
    if "properties" in here:
        return frozenset(("object",))
    return frozenset(("array",)) if "items" in here else frozenset()
