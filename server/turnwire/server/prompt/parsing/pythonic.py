"""Calls written as Python: `[get_weather(city="Paris"), get_time()]`, as Llama 4 and Gemma do.

Above it: the dialects. Below it: Python's own parser of literals. Arguments become JSON, so a call is said when its
closing parenthesis has come.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any, Final

from turnwire.server.prompt.parsing.calls import CallSink, Progress
from turnwire.server.prompt.parsing.readers import MOST_BETWEEN

_NAME: Final = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,255})\s{0,255}\(")
# What may still become a name and a parenthesis.
_NAME_BEGUN: Final = re.compile(r"[A-Za-z_][\w.]{0,255}\s{0,255}")
_NOTABLE: Final = re.compile(r"[\"'()\[\]{}\\]")
_PRINT: Final = "print"


class PythonCalls:
    """Reads a list of calls from its bracket on, or one call without brackets."""

    def __init__(self, *, offered: frozenset[str] = frozenset(), closer: str = "") -> None:
        """Begins before the bracket.

        Args:
            offered: The only names that are calls, where they are known; else any name is.
            closer: The mark behind the calls, such as a fence; it may be missing.
        """
        self.progress = Progress.MORE
        self._offered = offered
        self._closer = closer
        self._bracket: bool | None = None
        self._said = False
        self._scan: _Extent | None = None
        self._scanned = 0
        self._body = 0
        self._name = ""
        self._closed = False

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position`; see `Reader.read`."""
        while self.progress is Progress.MORE:
            if self._closed:
                return self._read_closer(text, position)
            if self._scan is not None:
                end = self._scan.scan(text, self._scanned)
                self._scanned = len(text)
                if end < 0:
                    return position
                position = self._say(text, position, end, sink)
                continue
            after = self._between(text, position)
            if after == position and self._scan is None:
                return position
            position = after
        return position

    def may_end(self) -> bool:
        """Whether all calls so far are complete."""
        return self._said and self._scan is None

    def _between(self, text: str, position: int) -> int:
        """Reads up to the parenthesis of the next call; returns `position` where more is needed."""
        at = position
        while at < len(text) and (text[at].isspace() or (self._said and text[at] == ",")):
            at += 1
        if at - position > MOST_BETWEEN:
            self._fail()
            return position
        if at == len(text):
            return position
        if text[at] == "[" and self._bracket is None:
            self._bracket = True
            return at + 1
        if self._bracket is None:
            self._bracket = False
        if text[at] == "]" and self._bracket and self._said:
            self._end()
            return at + 1
        found = _NAME.match(text, at)
        if found is None:
            begun = _NAME_BEGUN.match(text, at)
            if begun is None or begun.end() < len(text):
                self._fail()
            return position
        if not self._bracket and self._said:
            self._fail()
            return position
        name = found["name"]
        if name == _PRINT and not self._bracket and self._closer:
            # Gemma prints its calls.
            self._bracket = False
            return found.end()
        if self._offered and name not in self._offered:
            self._fail()
            return position
        self._name, self._body = name, found.end()
        self._scan, self._scanned = _Extent(), found.end()
        return position

    def _say(self, text: str, position: int, end: int, sink: CallSink) -> int:
        arguments = _as_json(text[self._body : end - 1])
        self._scan = None
        if arguments is None or (not sink.start(self._name, end, "")):
            self._fail()
            return position
        sink.arguments(arguments, position, end)
        sink.end()
        self._said = True
        if not self._bracket:
            self._end()
        return end

    def _end(self) -> None:
        if self._closer:
            self._closed = True
        else:
            self.progress = Progress.DONE

    def _read_closer(self, text: str, position: int) -> int:
        at = position
        while at < len(text) and text[at] in " \n\r\t)":
            at += 1
        if at - position <= MOST_BETWEEN and text.startswith(self._closer, at):
            self.progress = Progress.DONE
            return at + len(self._closer)
        if at - position > MOST_BETWEEN or not self._closer.startswith(text[at:]):
            self.progress = Progress.DONE
        return position

    def _fail(self) -> None:
        self.progress = Progress.DONE if self._said else Progress.FAILED


class _Extent:
    """Finds the parenthesis that closes a call; resumable."""

    def __init__(self) -> None:
        self._depth = 1
        self._quote = ""
        self._escaped = False

    def scan(self, text: str, position: int) -> int:
        """Goes on at `position`; returns the place behind the parenthesis, or -1."""
        if self._escaped and position < len(text):
            self._escaped = False
            position += 1
        while True:
            found = _NOTABLE.search(text, position)
            if found is None:
                return -1
            position = found.end()
            character = found.group()
            if character == "\\":
                if position == len(text):
                    self._escaped = True
                    return -1
                position += 1
            elif self._quote:
                if character == self._quote:
                    self._quote = ""
            elif character in "\"'":
                self._quote = character
            elif character in "([{":
                self._depth += 1
            elif character in ")]}":
                self._depth -= 1
                if self._depth == 0:
                    return position


def _as_json(body: str) -> str | None:
    """Returns the keyword arguments as a JSON object; None where they are not literals."""
    try:
        with warnings.catch_warnings():
            # Of unknown escapes and the like, which are the model's business.
            warnings.simplefilter("ignore")
            call = ast.parse(f"f({body})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        values = {keyword.arg: _literal(keyword.value) for keyword in call.keywords if keyword.arg is not None}
        if len(values) != len(call.keywords):
            return None
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
        # Escapes can spell half a character, which no protobuf string holds.
        text.encode()
        return text
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):
        # Models mix the spellings of JSON and of Python.
        return {"true": True, "false": False, "null": None}[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        return {_key(key): _literal(value) for key, value in zip(node.keys, node.values, strict=True)}
    value = ast.literal_eval(node)
    if isinstance(value, bytes | complex | set):
        msg = "not a JSON value"
        raise TypeError(msg)
    return value


def _key(node: ast.expr | None) -> str:
    key = None if node is None else ast.literal_eval(node)
    if not isinstance(key, str):
        msg = "keys of JSON are strings"
        raise TypeError(msg)
    return key
