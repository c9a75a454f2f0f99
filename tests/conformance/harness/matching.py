"""Names and matching: what `$name` stands for, and whether an event is as expected.

Above: the player. Below: nothing.
"""

from __future__ import annotations

import re
from typing import Any, TypeGuard

_WHOLE = re.compile(r"\$([a-z_][a-z0-9_]*(?:\.[a-z]+)?)")

ANY = "..."


class Names(dict[str, Any]):
    """Values captured so far."""

    absent: Any = None
    """What an expectation says of a key that must not be there."""

    def fill(self, value: Any) -> Any:
        """Replaces names by their values, in strings within anything; `{repeat: [text, times]}` becomes a long text.

        Raises:
            KeyError: A name was not captured yet.
        """
        if isinstance(value, str):
            whole = _WHOLE.fullmatch(value)
            if whole is not None:
                return self[whole[1]]
            return _WHOLE.sub(lambda found: str(self[found[1]]), value)
        if is_list(value):
            return [self.fill(item) for item in value]
        if is_object(value):
            if set(value) == {"repeat"}:
                text, times = value["repeat"]
                return text * times
            return {key: self.fill(item) for key, item in value.items()}
        return value

    def mismatch(self, expected: Any, actual: Any, path: str = "") -> str:
        """Returns why a value is not as expected, "" if it is; captures names that are free.

        Objects may hold more than is expected; lists must be whole, unless they end in `...`.
        """
        if isinstance(expected, str):
            if expected == ANY:
                return ""
            whole = _WHOLE.fullmatch(expected)
            if whole is not None and whole[1] not in self:
                self[whole[1]] = actual
                return ""
        if is_object(expected) and "repeat" not in expected:
            return self._object(expected, actual, path)
        if is_list(expected):
            return self._list(expected, actual, path)
        wanted = self.fill(expected)
        if wanted == actual or _same(wanted, actual):
            return ""
        return f"{path or 'value'} is {_short(actual)}, not {_short(wanted)}"

    def _object(self, expected: dict[str, Any], actual: Any, path: str) -> str:
        if not is_object(actual):
            return f"{path} is {_short(actual)}, not an object"
        for key, value in expected.items():
            here = f"{path}.{key}" if path else key
            if value == self.absent:
                if key in actual:
                    return f"{here} is {_short(actual[key])}, not absent"
            elif key not in actual:
                return f"{here} is absent; there are {sorted(actual)}"
            elif problem := self.mismatch(value, actual[key], here):
                return problem
        return ""

    def _list(self, expected: list[Any], actual: Any, path: str) -> str:
        if not is_list(actual):
            return f"{path} is {_short(actual)}, not a list"
        wanted = expected[:-1] if expected and expected[-1] == ANY else expected
        if len(actual) < len(wanted) or (wanted is expected and len(actual) > len(wanted)):
            return f"{path} has {len(actual)} elements, not {len(wanted)}: {_short(actual)}"
        for index, value in enumerate(wanted):
            if problem := self.mismatch(value, actual[index], f"{path}[{index}]"):
                return problem
        return ""


def _same(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, str) and isinstance(actual, str):
        # Enum values by the part that tells them apart.
        return wanted.isupper() and actual.endswith(f"_{wanted}")
    # 64-bit integers are strings in proto JSON.
    return isinstance(actual, str) and isinstance(wanted, int) and str(wanted) == actual


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Tells whether a value is a list of whatever."""
    return isinstance(value, list)


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tells whether a value is an object."""
    return isinstance(value, dict)
