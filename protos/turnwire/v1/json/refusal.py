"""Words for refused input, in the public API's style, and the path to what was refused.

Above: `decode`, which raises refusals where it stands and adds a path segment on the way out, so that paths cost
nothing while input is good. Below: the error table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Raw

from turnwire.v1.errors import RequestError, reject

_MAX_SHOWN: Final = 64  # characters of a client's own text that are repeated in a message or a path
_QUOTE, _ARRAY, _OBJECT, _NULL = b'"[{n'
_TRUE_FALSE: Final = b"tf"

TYPE: Final = "type"
NOT_UTF8: Final = "the text is not UTF-8"
TOO_NESTED: Final = "the text nests too deeply"


class Refusal(Exception):
    """One refused value, on its way out to the top of the document."""

    def __init__(self, code: str, template: str, **facts: str) -> None:
        """Takes a code of the error table and a message in which `{param}` and the facts are filled in."""
        super().__init__(code)
        self.code = code
        self.template = template
        self.facts = facts
        self.path: list[str | int] = []

    def within(self, segment: str | int) -> Refusal:
        """Adds the key or index of the container that the refused value stands in."""
        self.path.append(segment)
        return self

    def error(self) -> RequestError:
        """Builds the exception that leaves the codec."""
        path = ""
        for segment in reversed(self.path):
            if isinstance(segment, int):
                path += f"[{segment}]"
            else:
                path += f".{shown(segment)}" if path else shown(segment)
        message = self.template.format(param=path, **self.facts)
        return reject(self.code, message, param=path or None, **self.facts)


def wrong_type(raw: Raw, expected: str) -> Refusal:
    """Refuses a value of another JSON kind, such as a number where a string belongs."""
    template = "Invalid type for '{param}': expected {expected}, but got {got} instead."
    return Refusal("invalid_type", template, expected=expected, got=kind_of(raw))


def unknown_value(value: str, supported: Iterable[str]) -> Refusal:
    """Refuses a string that is not among the allowed ones."""
    *most, last = (f"'{name}'" for name in supported)
    allowed = f"{', '.join(most)}{',' if len(most) > 1 else ''} and {last}" if most else last
    template = "Invalid value: '{value}'. Supported values are: {supported}."
    return Refusal("invalid_value", template, value=shown(value), supported=allowed)


def out_of_range(bounds: tuple[float, float]) -> Refusal:
    """Refuses a number that its field cannot hold."""
    template = "Invalid value for '{param}': expected a number from {minimum} to {maximum}."
    return Refusal("invalid_value", template, minimum=str(bounds[0]), maximum=str(bounds[1]))


def too_deep(limit: int) -> Refusal:
    """Refuses objects that nest without end."""
    return Refusal("invalid_value", "Invalid value for '{param}': nested more than {limit} levels.", limit=str(limit))


def no_type() -> Refusal:
    """Refuses an object that says by nothing what it is."""
    return Refusal("missing_required_parameter", "Missing required parameter: '{param}'.").within(TYPE)


def malformed(reason: str) -> RequestError:
    """Builds the exception for text that is not a JSON document."""
    return reject("invalid_json", f"We could not parse the JSON body of your request: {reason}.", reason=reason)


def not_expected(expected: str, got: str) -> RequestError:
    """Builds the exception for a document of another JSON kind."""
    return malformed(f"expected {expected}, but got {got}")


def is_null(raw: Raw | None) -> bool:
    """Tells whether a member is absent, which null means too."""
    return raw is None or memoryview(raw)[0] == _NULL


def kind_of(raw: Raw) -> str:
    """Names the JSON kind of a value with its article."""
    view = memoryview(raw)
    first = view[0]
    if first == _QUOTE:
        return "a string"
    if first == _ARRAY:
        return "an array"
    if first == _OBJECT:
        return "an object"
    if first == _NULL:
        return "null"
    if first in _TRUE_FALSE:
        return "a boolean"
    return "a decimal" if any(mark in bytes(view) for mark in (b".", b"e", b"E")) else "an integer"


def shown(text: str) -> str:
    """Shortens text of the client's that is repeated to it."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
