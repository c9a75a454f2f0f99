"""One call written as a JSON object with a name and arguments, in whatever order.

Above it: the dialects. Below it: the scanner of JSON values. Arguments that are an object are passed on as they arrive;
where they come before the name, when it has come.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Final

from turnwire.server.prompt.parsing.calls import CallSink, Progress
from turnwire.server.prompt.parsing.json_value import JsonValue

_BLANK: Final = re.compile(r"\s*")
_BETWEEN: Final = re.compile(r"[\s,]*")
_ARGUMENT_KEYS: Final = ("arguments", "parameters")
_KNOWN_KEYS: Final = frozenset((*_ARGUMENT_KEYS, "name", "type", "id"))
_LONGEST_KEY: Final = 256


class _At(enum.IntEnum):
    OPEN = 0
    KEY = 1
    COLON = 2
    VALUE = 3
    STREAM = 4


class CallObject:
    """Reads the object from its brace on."""

    def __init__(self, *, bare: bool = False, offered: frozenset[str] = frozenset()) -> None:
        """Begins before the brace.

        Args:
            bare: No mark told that a call follows, so only an object that is nothing but a call is one.
            offered: The only names that are bare calls, where they are known.
        """
        self.progress = Progress.MORE
        self._bare = bare
        self._offered = offered
        self._at = _At.OPEN
        self._key = ""
        self._name = ""
        self._call_id = ""
        self._value = JsonValue()
        self._value_start = -1
        self._scanned = 0
        self._early: tuple[int, int] | None = None
        self._said = False

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position`; see `Reader.read`."""
        while self.progress is Progress.MORE:
            before, at = position, self._at
            if at is _At.STREAM:
                position = self._stream(text, position, sink)
            elif at is _At.VALUE:
                position = self._read_value(text, position, sink)
            else:
                position = self._read_mark(text, position, sink)
            if position == before and at is self._at:
                break
        return position

    def may_end(self) -> bool:
        """Whether nothing is missing: never, while it reads."""
        return False

    def _fail(self) -> None:
        """Gives up: what has been said stays said."""
        self.progress = Progress.DONE if self._said else Progress.FAILED

    def _read_mark(self, text: str, position: int, sink: CallSink) -> int:
        blank = _BETWEEN if self._at is _At.KEY else _BLANK
        found = blank.match(text, position)
        position = found.end() if found else position
        if position == len(text):
            return position
        character = text[position]
        if self._at is _At.OPEN and character == "{":
            self._at = _At.KEY
        elif self._at is _At.COLON and character == ":":
            self._at = _At.VALUE
        elif self._at is _At.KEY and character == "}":
            self._close(position, sink)
        elif self._at is _At.KEY and character == '"':
            return self._read_key(text, position, sink)
        else:
            self._fail()
            return position
        return position + 1

    def _read_key(self, text: str, position: int, sink: CallSink) -> int:
        end = JsonValue().scan(text, position)
        if (len(text) if end < 0 else end) - position > _LONGEST_KEY:
            self._fail()
            return position
        if end < 0:
            return position
        self._key = _string(text[position:end])
        if self._bare and self._key not in _KNOWN_KEYS:
            self._fail()
        self._at = _At.COLON
        return end

    def _read_value(self, text: str, position: int, sink: CallSink) -> int:
        if self._value_start < 0:
            found = _BLANK.match(text, position)
            position = found.end() if found else position
            if position == len(text):
                return position
            if self._key in _ARGUMENT_KEYS and self._name and not self._said and text[position] == "{":
                self._begin(position, sink)
                self._at = _At.STREAM
                return position
            self._value_start = self._scanned = position
        # While nothing is said the text is kept, so the value can be cut out of it once it is complete.
        end = self._value.scan(text, position if self._said else max(position, self._scanned))
        self._scanned = len(text)
        if end < 0:
            return len(text)
        if self._value.broken:
            self._fail()
            return end
        start, self._value_start = self._value_start, -1
        self._value, self._at = JsonValue(), _At.KEY
        if not self._said:
            self._take(text, start, end, sink)
        return end

    def _take(self, text: str, start: int, end: int, sink: CallSink) -> None:
        if self._key == "name":
            self._name = _string(text[start:end])
            if not self._name or (self._bare and self._offered and self._name not in self._offered):
                self._fail()
            elif self._early:
                self._say_early(text, end, sink)
        elif self._key in _ARGUMENT_KEYS:
            self._early = (start, end)
            if self._name:
                self._say_early(text, end, sink)
        elif self._key == "id":
            self._call_id = _string(text[start:end])

    def _begin(self, position: int, sink: CallSink) -> bool:
        if not sink.start(self._name, position, self._call_id):
            self.progress = Progress.FAILED
            return False
        self._said = True
        return True

    def _say_early(self, text: str, position: int, sink: CallSink) -> None:
        start, end = self._early or (0, 0)
        if self._begin(position, sink):
            sink.arguments(_arguments(text[start:end]), start, end)
            sink.end()

    def _stream(self, text: str, position: int, sink: CallSink) -> int:
        if self.progress is not Progress.MORE:
            return position
        end = self._value.scan(text, position)
        stop = len(text) if end < 0 else end
        if stop > position:
            sink.arguments(text[position:stop], position, stop)
        if end >= 0:
            sink.end()
            if self._value.broken:
                self.progress = Progress.DONE
            self._value, self._at = JsonValue(), _At.KEY
        return stop

    def _close(self, position: int, sink: CallSink) -> None:
        if not self._said:
            if not self._name or self._bare:
                self.progress = Progress.FAILED
                return
            if self._begin(position, sink):
                sink.arguments("{}", position, position)
                sink.end()
        if self.progress is Progress.MORE:
            self.progress = Progress.DONE


def _string(raw: str) -> str:
    """Returns the value of a JSON string; empty for anything else."""
    try:
        value = json.loads(raw, strict=False)
        if isinstance(value, str):
            # Escapes can spell half a character, which no protobuf string holds.
            value.encode()
            return value
    except (ValueError, RecursionError):
        pass
    return ""


def _arguments(raw: str) -> str:
    """Returns arguments as JSON text: some models write the text as a string, or null for none."""
    if raw == "null":
        return "{}"
    return _string(raw) or raw
