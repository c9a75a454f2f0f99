"""The one form in which texts and rules are compared: characters folded one by one, then UTF-8.

Above it: rules files, whose literals are folded, and the screener. Below it: Unicode's tables.

Every character is folded for itself, so that a text cut anywhere folds to the same bytes as the whole:

- compatibility forms are decomposed (NFKD: full-width letters, ligatures, mathematical alphabets, circled digits) and
  case is folded (`ß` is `ss`);
- generic combining marks (accents and what else is stacked on letters) are dropped. Marks of single scripts, such as
  vowel signs and the kana voicing marks, stay: they tell words apart;
- what is not seen is dropped: zero-width characters, direction marks, variation selectors, tags, control characters;
- white space of any kind becomes a space, and a run of it one space.

Letters of other alphabets that look alike, and digits written for letters, are not folded.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_COMBINING: Final = ((0x0300, 0x036F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F))
"""Unicode's blocks of combining marks that belong to no script."""
_UNSEEN: Final = frozenset({0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0})
"""Fillers and the like that Unicode calls letters or marks and nobody sees."""
_SELECTORS: Final = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_REMEMBERED: Final = 65_536
"""Most characters whose folded form is kept; the others are folded anew each time."""

_ASCII: Final = bytes(
    0x20 if chr(code).isspace() else ord(chr(code).lower()) if code < 0x80 else code for code in range(256)
)
_ASCII_DROPPED: Final = bytes(code for code in range(0x80) if not chr(code).isspace() and not chr(code).isprintable())


def fold(text: str) -> bytes:
    """Returns a text in the form in which it is compared."""
    if text.isascii():
        data = text.encode("ascii").translate(_ASCII, _ASCII_DROPPED)
    else:
        data = text.translate(_FOLDED).encode("utf-8", "replace")
    # Each round halves the longest run.
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data


def fold_character(character: str) -> str:
    """Returns one character folded; "" where it is dropped."""
    return "".join(
        _settled(last)
        for first in unicodedata.normalize("NFKD", character)
        for last in unicodedata.normalize("NFKD", first.casefold())
    )


def _settled(character: str) -> str:
    if character.isspace():
        return " "
    code = ord(character)
    category = unicodedata.category(character)
    if category in ("Cc", "Cf") or code in _UNSEEN:
        return ""
    if any(low <= code <= high for low, high in (*_COMBINING, *_SELECTORS)):
        return ""
    return character


class _Table(dict[int, str]):
    """What `str.translate` asks for the form of each character."""

    def __missing__(self, code: int) -> str:
        folded = fold_character(chr(code))
        if len(self) < _REMEMBERED:
            self[code] = folded
        return folded


_FOLDED: Final = _Table()
