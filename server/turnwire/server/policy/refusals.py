"""The public API's sentences for refused parameters, each built in one place.

Above: the checks of this package. Below: the error table. What a client wrote is shortened before it is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnwire.v1.errors import RequestError, reject
from turnwire.v1.json.refusal import shown, unknown_value

__all__ = [
    "above",
    "below",
    "duplicate",
    "invalid",
    "missing",
    "not_among",
    "not_found_in_tools",
    "not_object",
    "pattern",
    "shown",
    "too_few",
    "too_long",
    "too_many",
    "unsupported",
]


def missing(param: str) -> RequestError:
    """Refuses an absent parameter; an empty string is absent where one is required."""
    return reject("missing_required_parameter", f"Missing required parameter: '{param}'.", param=param)


def unsupported(param: str, reason: str = "is not supported") -> RequestError:
    """Refuses a parameter that this server has no use for."""
    return reject("unsupported_parameter", f"Unsupported parameter: '{param}' {reason}.", param=param)


def invalid(param: str, expected: str) -> RequestError:
    """Refuses a value for which the public API has no sentence of its own."""
    return reject("invalid_value", f"Invalid '{param}': {expected}.", param=param)


def not_among(param: str, value: str, supported: Iterable[str]) -> RequestError:
    """Refuses a word that is not in a closed vocabulary."""
    error = unknown_value(value, supported).error().error
    error.param = param
    return RequestError(error)


def too_long(param: str, limit: int, length: int) -> RequestError:
    """Refuses a string above its maximum length, in characters."""
    message = (
        f"Invalid '{param}': string too long. Expected a string with maximum length {limit}, but got a string with"
        f" length {length} instead."
    )
    return reject("string_above_max_length", message, param=param, limit=str(limit), length=str(length))


def too_many(param: str, limit: int, length: int) -> RequestError:
    """Refuses an array or a map above its maximum length."""
    message = (
        f"Invalid '{param}': array too long. Expected an array with maximum length {limit}, but got an array with"
        f" length {length} instead."
    )
    return reject("array_above_max_length", message, param=param, limit=str(limit), length=str(length))


def too_few(param: str) -> RequestError:
    """Refuses an empty array where there must be one element."""
    message = (
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    )
    return reject("invalid_value", message, param=param)


def below(param: str, kind: str, bound: str, value: float) -> RequestError:
    """Refuses a number that is too small.

    Args:
        param: Path of the parameter.
        kind: `integer` or `decimal`.
        bound: The comparison that failed, such as `>= 16`.
        value: What was given.
    """
    message = f"Invalid '{param}': {kind} below minimum value. Expected a value {bound}, but got {value} instead."
    return reject("invalid_value", message, param=param, bound=bound, value=str(value))


def above(param: str, kind: str, bound: str, value: float) -> RequestError:
    """Refuses a number that is too large; see `below`."""
    message = f"Invalid '{param}': {kind} above maximum value. Expected a value {bound}, but got {value} instead."
    return reject("invalid_value", message, param=param, bound=bound, value=str(value))


def pattern(param: str, expression: str) -> RequestError:
    """Refuses a string that does not match a pattern."""
    message = (
        f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '{expression}'."
    )
    return reject("invalid_value", message, param=param, pattern=expression)


def not_object(param: str) -> RequestError:
    """Refuses JSON text that holds another kind of value than an object."""
    return reject("invalid_type", f"Invalid type for '{param}': expected an object.", param=param)


def duplicate(param: str, name: str) -> RequestError:
    """Refuses the second of two declarations with one name."""
    message = f"Invalid '{param}': '{shown(name)}' is declared more than once; names must be unique."
    return reject("invalid_value", message, param=param, name=shown(name))


def not_found_in_tools(kind: str) -> RequestError:
    """Refuses a choice of a tool that is not declared."""
    message = f"Tool choice '{shown(kind)}' not found in 'tools' parameter."
    return reject("invalid_value", message, param="tool_choice", type=shown(kind))
