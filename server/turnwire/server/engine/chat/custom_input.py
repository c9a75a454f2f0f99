"""Free text out of the JSON arguments `{"input": "…"}`, piece by piece, as the model writes them.

Above it: `calls`. Below it: nothing. A model that writes something else is taken at its word: the arguments as they
stand are the input then.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

_OPENING: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_OPENING_TOKENS: Final = ("{", '"input"', ":", '"')
_STOPS: Final = re.compile(r'["\\]')
_SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class CustomInput:
    """Decodes one call's arguments."""

    __slots__ = ("_done", "_inside", "_other", "_raw", "_rest")

    def __init__(self) -> None:
        self._raw: list[str] = []
        """Everything, kept until it is known to have the expected form."""
        self._rest = ""
        """What cannot be decoded yet: a part of the opening, or of an escape."""
        self._inside = False
        self._done = False
        self._other = False
        """Whether the arguments have another form, so that only the whole can be judged."""

    def feed(self, text: str) -> str:
        """Returns the input that is certain with this piece."""
        if self._other:
            self._raw.append(text)
            return ""
        if self._done:
            return ""
        text = self._rest + text
        if not self._inside:
            opening = _OPENING.match(text)
            if opening is None:
                self._rest = text
                if not _may_open(text):
                    self._raw.append(text)
                    self._rest = ""
                    self._other = True
                return ""
            self._inside = True
            text = text[opening.end() :]
        return self._decode(text)

    def finish(self) -> str:
        """Returns the rest of the input, once no more arguments come."""
        if self._inside:
            # The escape or the pair that was cut short says nothing.
            return ""
        whole = "".join(self._raw) + self._rest
        try:
            value = msgspec.json.decode(whole)
        except (msgspec.DecodeError, UnicodeError):
            return whole
        found = cast("dict[str, Any]", value).get("input") if isinstance(value, dict) else None
        return found if isinstance(found, str) else whole

    def _decode(self, text: str) -> str:
        pieces: list[str] = []
        at = 0
        self._rest = ""
        while True:
            stop = _STOPS.search(text, at)
            if stop is None:
                pieces.append(text[at:])
                break
            pieces.append(text[at : stop.start()])
            if stop[0] == '"':
                self._done = True
                break
            decoded, at = _escape(text, stop.start())
            if at < 0:
                self._rest = text[stop.start() :]
                break
            pieces.append(decoded)
        return "".join(pieces)


def _escape(text: str, at: int) -> tuple[str, int]:
    """Returns the character of the escape at a place and where it ends; -1 where more is needed."""
    letter = text[at + 1 : at + 2]
    if not letter:
        return "", -1
    if letter != "u":
        # An escape that JSON does not have stands for itself.
        return _SHORT.get(letter, f"\\{letter}"), at + 2
    first = _unit(text, at)
    if first is None:
        return ("", -1) if len(text) < at + 6 else ("\\u", at + 2)
    if not 0xD800 <= first < 0xE000:
        return chr(first), at + 6
    if first < 0xDC00:
        following = text[at + 6 : at + 12]
        if len(following) < 6 and "\\u".startswith(following[:2]):
            return "", -1
        second = _unit(text, at + 6) if following.startswith("\\u") else None
        if second is not None and 0xDC00 <= second < 0xE000:
            return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)), at + 12
    # Half of a pair cannot be sent.
    return "\ufffd", at + 6


def _unit(text: str, at: int) -> int | None:
    digits = text[at + 2 : at + 6]
    if len(digits) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
        return int(digits, 16)
    return None


def _may_open(text: str) -> bool:
    """Whether the expected opening may still come of this beginning."""
    rest = text
    for token in _OPENING_TOKENS:
        rest = rest.lstrip()
        if not rest.startswith(token):
            return token.startswith(rest)
        rest = rest[len(token) :]
    return True
