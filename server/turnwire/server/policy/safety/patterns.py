"""Regular expressions whose matches have a longest length, and what the beginning of a match looks like.

Above it: rules files, which name the mistakes, and matchers. Below it: RE2, which has the last word on the syntax and
matches in linear time whatever the pattern. What is read here is only how a pattern is put together:

- its width, the most bytes that a match can have: so much of what was seen has to be kept, and no more;
- its beginnings: a pattern for everything that could still become a match. A match that is written piece by piece is
  recognized by it from the first character on, so that nothing of it has to leave before it is whole.

Beginnings may hold more than the truth, never less. Patterns without a longest match are refused, and so are anchors,
since a conversation has no line ends to speak of.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from turnwire.server.policy.safety.folding import fold_character

MAX_SOURCE: Final = 500
"""Characters of one pattern."""
MAX_WIDTH: Final = 1_000
"""Bytes of the longest match of one pattern."""
_MAX_BEGINNINGS: Final = 100_000
"""Characters of the pattern of its beginnings."""
_MEMORY: Final = 8 * 1024 * 1024
"""Bytes that RE2 may use for the automata of one compiled pattern."""

_CHARACTER_BYTES: Final = 4
"""Bytes that a character has at most."""
_ONE_BYTE: Final = frozenset("dsw")
"""Escapes that stand for ASCII alone."""
_OTHERS: Final = frozenset("DSW")
_CONTROLS: Final = frozenset("aftnrv")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]|\A\[\^|\[:\^|\\[DSWpPx]")
"""What a class has in it that may stand for more than ASCII."""
_COUNT: Final = re.compile(r"\{(\d+)(,?)(\d*)\}")
_HEX: Final = re.compile(r"x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]{1,6}\})")
_PROPERTY: Final = re.compile(r"[pP](?:[A-Z]|\{\^?\w+\})")


class PatternError(ValueError):
    """A pattern cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern that can be used."""

    source: str
    width: int
    """Bytes of its longest match."""
    beginnings: str
    """Matches whatever a match can begin with, whole matches included, and nothing empty."""


def read_pattern(source: str) -> Pattern:
    """Reads a pattern.

    Raises:
        PatternError: It cannot be used.
    """
    if len(source) > MAX_SOURCE:
        msg = f"is longer than {MAX_SOURCE} characters"
        raise PatternError(msg)
    for character in source:
        # What folding never leaves cannot be in any text that the pattern meets.
        if not character.isascii() and fold_character(character) not in (character, character.casefold()):
            folded = fold_character(character)
            instead = f"write '{folded}'" if folded else "leave it out"
            msg = f"can never match: texts are compared without '{character}', {instead}"
            raise PatternError(msg)
    compile_pattern(source)
    tree = _Reader(source).whole()
    if tree.narrow == 0:
        msg = "can match nothing at all"
        raise PatternError(msg)
    if tree.wide > MAX_WIDTH:
        msg = f"can match {tree.wide} bytes; the longest match may have {MAX_WIDTH}"
        raise PatternError(msg)
    beginnings = tree.some(_END)
    if len(beginnings) > _MAX_BEGINNINGS:
        msg = "is too complicated: write several patterns"
        raise PatternError(msg)
    return Pattern(source, tree.wide, beginnings)


def compile_pattern(source: str, memory: int = _MEMORY) -> Any:
    """Returns a compiled pattern, of the package `re2`, that takes bytes and tells no case apart.

    Raises:
        PatternError: RE2 does not take it.
        ImportError: RE2 is not installed.
    """
    # The package has no types.
    re2: Any = importlib.import_module("re2")
    options: Any = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory
    try:
        return re2.compile(source.encode(), options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        msg = f"is no pattern of RE2: {reason.decode(errors='replace') if isinstance(reason, bytes) else reason}"
        raise PatternError(msg) from error


@dataclass(frozen=True, slots=True)
class _Rest:
    """The beginnings of what follows a piece of a pattern."""

    every: str
    """Matches any, and the empty one."""
    some: str | None
    """Matches any but the empty one; None where nothing follows."""


_END: Final = _Rest("", None)


class _Node:
    """A piece of a pattern."""

    __slots__ = ("narrow", "source", "wide")

    def __init__(self, source: str, narrow: int, wide: int) -> None:
        self.source = source
        """Matches the piece; safe to be followed by anything."""
        self.narrow = narrow
        self.wide = wide

    def every(self, rest: _Rest) -> str:
        """Returns a pattern for the beginnings of the piece with what follows, the empty one included."""
        return f"(?:{self.source}{rest.every})?"

    def some(self, rest: _Rest) -> str:
        """Returns a pattern for those that are not empty."""
        return f"{self.source}{rest.every}"


class _Assertion(_Node):
    """A word boundary, or what is none."""

    __slots__ = ()

    def some(self, rest: _Rest) -> str:
        return _NEVER if rest.some is None else f"{self.source}{rest.some}"


_NEVER: Final = r"[^\x00-\x{10FFFF}]"


class _Sequence(_Node):
    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[_Node]) -> None:
        super().__init__("".join(n.source for n in nodes), sum(n.narrow for n in nodes), sum(n.wide for n in nodes))
        self._nodes = nodes

    def _rest(self, rest: _Rest) -> _Rest:
        for node in reversed(self._nodes):
            rest = _Rest(node.every(rest), node.some(rest))
        return rest

    def every(self, rest: _Rest) -> str:
        return self._rest(rest).every

    def some(self, rest: _Rest) -> str:
        found = self._rest(rest).some
        return _NEVER if found is None else found


class _Choice(_Node):
    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[_Node]) -> None:
        source = "(?:" + "|".join(node.source for node in nodes) + ")"
        super().__init__(source, min(node.narrow for node in nodes), max(node.wide for node in nodes))
        self._nodes = nodes

    def every(self, rest: _Rest) -> str:
        # What follows stands once, and not in each way.
        ways = "|".join(node.every(_END) for node in self._nodes)
        return f"(?:{self.source}{rest.every}|{ways})"

    def some(self, rest: _Rest) -> str:
        if self.narrow:
            ways = "|".join(node.some(_END) for node in self._nodes)
            return f"(?:{self.source}{rest.every}|{ways})"
        # A way that is empty leaves the beginning to what follows.
        ways = "|".join(node.some(rest) for node in self._nodes)
        nothing = f"|{rest.some}" if rest.some is not None else ""
        return f"(?:{ways}{nothing})"


class _Repeat(_Node):
    __slots__ = ("_least", "_most", "_node")

    def __init__(self, node: _Node, least: int, most: int) -> None:
        super().__init__(f"(?:{node.source}){{{least},{most}}}", node.narrow * least, node.wide * most)
        self._node = node
        self._least = least
        self._most = most

    def every(self, rest: _Rest) -> str:
        if self._most == 0:
            return rest.every
        inner = self._node
        # Fewer rounds than there have to be are let through too: more than the truth.
        return (
            f"(?:(?:{inner.source}){{0,{self._most}}}{rest.every}"
            f"|(?:{inner.source}){{0,{self._most - 1}}}{inner.every(_END)})"
        )

    def some(self, rest: _Rest) -> str:
        if self._most == 0:
            return _NEVER if rest.some is None else rest.some
        inner = self._node
        nothing = f"|{rest.some}" if self.narrow == 0 and rest.some is not None else ""
        # Each begins with a round that is not empty; rounds that are add nothing.
        first = inner.some(_Rest(f"(?:{inner.source}){{0,{self._most - 1}}}{self._later(rest)}", None))
        return f"(?:{first}{nothing})"

    def _later(self, rest: _Rest) -> str:
        return f"(?:{rest.every}|{self._node.every(_END)})"


class _Reader:
    """Reads a pattern that RE2 takes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def whole(self) -> _Node:
        node = self._choice()
        if self._at < len(self._source):
            msg = "has a parenthesis too many"
            raise PatternError(msg)
        return node

    def _choice(self) -> _Node:
        ways = [self._sequence()]
        while self._takes("|"):
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else _Choice(ways)

    def _sequence(self) -> _Node:
        nodes: list[_Node] = []
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            nodes.append(self._repeated(self._one()))
        return _Sequence(nodes)

    def _repeated(self, node: _Node) -> _Node:
        while self._at < len(self._source):
            if self._source[self._at] in "*+":
                msg = f"can match text of any length: write a number such as {{0,50}} in place of '{self._next()}'"
                raise PatternError(msg)
            if self._takes("?"):
                node = _Repeat(node, 0, 1)
            elif counted := _COUNT.match(self._source, self._at):
                self._at = counted.end()
                least = int(counted[1])
                if counted[2] and not counted[3]:
                    msg = f"can match text of any length: '{counted[0]}' needs a second number"
                    raise PatternError(msg)
                node = _Repeat(node, least, int(counted[3]) if counted[2] else least)
            else:
                break
            # Which of several matches is preferred does not matter here.
            self._takes("?")
        return node

    def _one(self) -> _Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character in "^$":
            msg = f"has an anchor, '{character}', but texts have no lines; use \\b"
            raise PatternError(msg)
        if character == ".":
            return _Node(".", 1, _CHARACTER_BYTES)
        # A letter's other case may have another length.
        if not character.isascii():
            return _Node(character, 1, _CHARACTER_BYTES)
        return _Node(re.escape(character), 1, 1)

    def _group(self) -> _Node:
        if self._takes("?") and not self._takes(":"):
            msg = "has a group that is not known; use (...) or (?:...)"
            raise PatternError(msg)
        node = self._choice()
        if not self._takes(")"):
            msg = "lacks a parenthesis"
            raise PatternError(msg)
        return _Node("", 0, 0) if not node.source else _Choice([node])

    def _escape(self) -> _Node:
        start = self._at - 1
        for form in (_HEX, _PROPERTY):
            if found := form.match(self._source, self._at):
                self._at = found.end()
                return _Node(self._source[start : self._at], 1, _CHARACTER_BYTES)
        character = self._next()
        source = "\\" + character
        if character in "bB":
            return _Assertion(source, 0, 0)
        if character in _ONE_BYTE or character in _CONTROLS:
            return _Node(source, 1, 1)
        if character in _OTHERS:
            return _Node(source, 1, _CHARACTER_BYTES)
        if character.isascii() and not character.isalnum():
            return _Node(source, 1, 1)
        msg = f"has an escape that is not known, '{source}'"
        raise PatternError(msg)

    def _class(self) -> _Node:
        start = self._at - 1
        self._takes("^")
        # The first may be the bracket itself.
        self._takes("]")
        while not self._takes("]"):
            if self._source.startswith("[:", self._at):
                self._at = self._source.index(":]", self._at) + 2
            elif self._next() == "\\":
                self._next()
        source = self._source[start : self._at]
        return _Node(source, 1, _CHARACTER_BYTES if _BEYOND_ASCII.search(source) else 1)

    def _next(self) -> str:
        character = self._source[self._at]
        self._at += 1
        return character

    def _takes(self, token: str) -> bool:
        found = self._source.startswith(token, self._at)
        if found:
            self._at += len(token)
        return found
