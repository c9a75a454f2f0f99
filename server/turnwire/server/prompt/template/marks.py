"""Tells the control tokens that a template wrote from text of clients that only looks like them.

Above: the template renderer and its tokenizer. Below: nothing.

Text from clients is *marked* before it reaches a template: wherever it looks like a control token, or could become one
together with what stands next to it, it gets a character that no text holds. In the rendered prompt, a control token
without the mark can only come from the template. The prompt is cut there, and then the marks are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

MARK: Final = "\ufdd0"
"""A code point that Unicode reserves for a program's own use; in a client's text it becomes U+FFFD."""

_BLANKS: Final = re.compile(r"\s*")


class SpecialTokens:
    """The control tokens of a model: those that are special, and those that its template writes."""

    def __init__(self, ids: Mapping[str, int], strips: Mapping[str, tuple[bool, bool]]) -> None:
        """Takes the tokens, and which swallow blanks on their left and right."""
        self.ids = dict(ids)
        names = sorted(self.ids, key=len, reverse=True)
        self._strips = dict(strips)
        longest = _longest_of(names)
        self._plain = re.compile(longest)
        self._begins = re.compile(f"(?={longest})(?s:(.))")
        self._heads = frozenset(name[:end] for name in names for end in range(1, len(name)))
        self._tails = frozenset(name[start:] for name in names for start in range(1, len(name)))
        self._names = tuple(names)
        self._longest = max(map(len, names), default=0)

    def mark(self, text: str) -> str:
        """Marks a text so that no part of it can be taken for a control token."""
        if MARK in text:
            text = text.replace(MARK, "\ufffd")
        text = self._begins.sub(rf"\1{MARK}", text)
        core = text.strip()
        if not core:
            return text
        # A template may trim, so that the visible ends are what meets the template's own text.
        left, right = text.index(core), text.index(core) + len(core)
        reach = range(1, min(self._longest, len(core)) + 1)
        if any(core[-size:] in self._heads for size in reach):
            text = f"{text[:right]}{MARK}{text[right:]}"
        inside = len(core) < self._longest and any(core in name for name in self._names)
        if inside or any(core[:size] in self._tails for size in reach):
            text = f"{text[:left]}{MARK}{text[left:]}"
        return text

    def cut(self, text: str) -> Iterator[str | int]:
        """Yields the control tokens of a marked text as ids, and the runs between them without marks."""
        end = 0
        for found in self._plain.finditer(text):
            name = found[0]
            left, right = self._strips.get(name, (False, False))
            run = text[end : found.start()]
            if left:
                run = run.rstrip()
            if run:
                yield run.replace(MARK, "")
            yield self.ids[name]
            end = found.end()
            if right:
                blanks = _BLANKS.match(text, end)
                end = blanks.end() if blanks else end
        if end < len(text):
            yield text[end:].replace(MARK, "")

    def begins(self, text: str) -> bool:
        """Whether a marked text begins with a control token."""
        return self._plain.match(text) is not None

    def ends(self, text: str) -> bool:
        """Whether a marked text ends with a control token."""
        return text.endswith(self._names)

    def pieces(self, run: str) -> list[str]:
        """Cuts a run inside everything in it that reads like a control token."""
        return self._begins.sub(rf"\1{MARK}", run).split(MARK)


def _longest_of(names: Iterable[str]) -> str:
    """Returns a pattern for the longest of some names: a tree, since some models have thousands of control tokens."""
    tree: dict[str, Any] = {}
    for name in names:
        node = tree
        for letter in name:
            node = node.setdefault(letter, {})
        node[""] = {}
    # Matches nothing, as models without control tokens need it.
    return _branches(tree) if tree else "(?!)"


def _branches(node: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for letter, below in node.items():
        if letter:
            text = letter
            # Names have long stretches in common, and nested groups have to be few.
            while len(below) == 1 and "" not in below:
                [(letter, below)] = below.items()
                text += letter
            parts.append(re.escape(text) + ("" if list(below) == [""] else _branches(below)))
    if "" in node:
        parts.append("")
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
