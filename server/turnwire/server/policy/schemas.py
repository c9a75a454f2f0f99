"""Checks of JSON Schemas, with verdicts remembered: a client resends the same schemas with every request.

Above: the checks of tools and of text formats. Below: jsonschema, behind a shortcut for ordinary schemas. A schema is
held against its meta-schema only: no reference in it is followed, so nothing is ever fetched.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from jsonschema import Draft202012Validator, FormatChecker, SchemaError
from jsonschema.validators import validator_for

from turnwire.server.policy.schema_shape import is_common

MAX_CHARS: Final = 1024 * 1024
"""Characters of one schema."""
MAX_DEPTH: Final = 100
"""Levels of arrays and objects in one schema; the library recurses about ten frames per level."""
MAX_VALUES: Final = 10_000
"""Values in one schema; the library takes about 60 µs each."""
MAX_MIXED: Final = 256
"""Elements of an array that cannot be sorted; the library compares each with each."""
_REMEMBERED: Final = 4_096
_MAX_REASON: Final = 300

# Formats are left alone: a pattern that Python cannot compile may be good ECMA 262, which is what schemas use.
_NO_FORMATS: Final = FormatChecker(formats=())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one schema text."""

    reason: str
    """Why it is refused; empty where it is valid."""
    values: int = 0
    """How many values it holds."""
    root_type: str = ""
    """The `type` of the schema, as Python shows it; empty where it states none."""


class Schemas:
    """Checks schemas; remembers verdicts by hash, not the schemas. Safe to use from several threads."""

    def __init__(self, *, cached: bool = True) -> None:
        """Starts with nothing remembered, and stays so where nothing is to be."""
        self._cached = cached
        self._verdicts: dict[bytes, Verdict] = {}
        self._lock = threading.Lock()

    def check(self, text: str) -> Verdict:
        """Returns the verdict on a schema; costs its length, and a full check the first time."""
        if len(text) > MAX_CHARS:
            return Verdict(f"the schema is longer than {MAX_CHARS} characters")
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        known = self._verdicts.get(key)
        if known is not None:
            return known
        verdict = _judge(text)
        if not self._cached:
            return verdict
        with self._lock:
            while len(self._verdicts) >= _REMEMBERED:
                del self._verdicts[next(iter(self._verdicts))]
            self._verdicts[key] = verdict
        return verdict


def _judge(text: str) -> Verdict:
    try:
        schema: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return Verdict(f"the text is not valid JSON: {error}")
    except RecursionError:
        return _too_deep()
    values, depth, mixed = _measure(schema)
    if values > MAX_VALUES:
        return Verdict(f"the schema holds more than {MAX_VALUES} values")
    if depth > MAX_DEPTH:
        return _too_deep()
    if not isinstance(schema, dict):
        return Verdict(f"{_shown(repr(schema))} is not of type 'object'")
    root = cast("dict[str, Any]", schema)
    reason = "" if is_common(text) else _fault(root, mixed)
    return Verdict(reason, values=values, root_type=_root_type(root))


def _too_deep() -> Verdict:
    return Verdict(f"the schema nests more than {MAX_DEPTH} levels")


def _root_type(schema: dict[str, Any]) -> str:
    """Returns the stated type, "object" where objects are among the stated types."""
    stated = schema.get("type")
    if isinstance(stated, list):
        types = cast("Sequence[Any]", stated)
        return "object" if "object" in types else _shown(repr(list(types)))
    return _shown(str(stated)) if stated is not None else ""


def _measure(schema: Any) -> tuple[int, int, bool]:
    """Returns how many values a schema has, how deep it nests, and whether an array in it is long and mixed."""
    values, deepest, mixed = 0, 0, False
    todo: list[tuple[Any, int]] = [(schema, 0)]
    while todo and values <= MAX_VALUES:
        value, depth = todo.pop()
        values += 1
        deepest = max(deepest, depth)
        if isinstance(value, dict):
            todo += [(each, depth + 1) for each in cast("dict[str, Any]", value).values()]
        elif isinstance(value, list):
            elements = cast("Sequence[Any]", value)
            mixed = mixed or (len(elements) > MAX_MIXED and not _is_sortable(elements))
            todo += [(each, depth + 1) for each in elements]
    return values, deepest, mixed


def _is_sortable(elements: Sequence[Any]) -> bool:
    kinds: set[type[object]] = {type(each) for each in elements}
    return kinds == {str} or kinds <= {int, float}


def _fault(schema: dict[str, Any], mixed: bool) -> str:
    """Returns what the library finds wrong with a schema, in the public API's words; "" where nothing is."""
    if mixed:
        return f"an array holds more than {MAX_MIXED} elements of several kinds"
    draft = schema.get("$schema")
    # An unknown draft is read as the newest one.
    wanted = {"$schema": draft} if isinstance(draft, str) else {}
    validator: Any = validator_for(wanted, default=Draft202012Validator)
    try:
        validator.check_schema(schema, format_checker=_NO_FORMATS)
    except SchemaError as error:
        path = tuple(error.absolute_path)
        context = f"In context={path!r}, " if path else ""
        return _shown(f"{context}{error.message}")
    except RecursionError:
        return _too_deep().reason
    return ""


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"
