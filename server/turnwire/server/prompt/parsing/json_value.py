"""The extent of one JSON value in text that arrives in pieces.

Above it: the readers of calls. Below it: nothing. The text itself is not kept and not checked: arguments are passed on
verbatim, as sampled.
"""

from __future__ import annotations

import re
from typing import Final

_IN_STRING: Final = re.compile(r'["\\]')
# `<` is not JSON: it begins the mark that ends a call, however much of the value is missing.
_OUTSIDE: Final = re.compile(r'["{}\[\]<]')
_SCALAR_END: Final = re.compile(r"[\s,}\]<]")


class JsonValue:
    """Scans one value, from its first character on."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_scalar", "_started", "broken")

    def __init__(self) -> None:
        self._started = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._scalar = False
        self.broken = False
        """Whether the value ended at something that cannot be JSON."""

    def scan(self, text: str, position: int) -> int:
        """Goes on at `position`; returns the place behind the value, or -1 where the text ends before it does."""
        size = len(text)
        if not self._started and position < size:
            self._started = True
            first = text[position]
            self._scalar = first not in '{["'
        if self._scalar:
            end = _SCALAR_END.search(text, position)
            return end.start() if end else -1
        while position < size:
            if self._escaped:
                self._escaped = False
                position += 1
            elif self._in_string:
                found = _IN_STRING.search(text, position)
                if found is None:
                    return -1
                position = found.end()
                if found.group() == "\\":
                    self._escaped = True
                    continue
                self._in_string = False
                if self._depth == 0:
                    return position
            else:
                found = _OUTSIDE.search(text, position)
                if found is None:
                    return -1
                position = found.end()
                character = found.group()
                if character == '"':
                    self._in_string = True
                elif character in "{[":
                    self._depth += 1
                elif character == "<":
                    self.broken = True
                    return found.start()
                else:
                    self._depth -= 1
                    if self._depth == 0:
                        return position
        return -1
