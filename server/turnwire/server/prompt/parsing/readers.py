"""Readers of calls whose arguments are JSON text: tagged objects, lists of objects, and names followed by arguments.

Above it: the dialects. Below it: the reader of one object and the scanner of JSON values.
"""

from __future__ import annotations

import re
from typing import Final

from turnwire.server.prompt.parsing.call_object import CallObject
from turnwire.server.prompt.parsing.calls import CallSink, Progress
from turnwire.server.prompt.parsing.json_value import JsonValue

LONGEST_HEADER: Final = 512
"""Characters after which a name without arguments is no call."""
MOST_GARBAGE: Final = 32
"""Characters between arguments and closing mark that are forgiven: models add a brace, a fence or a line break."""
MOST_BETWEEN: Final = 256
"""Blanks and separators between two calls of a list."""


class Closing:
    """Looks for the mark that closes a call; it may be missing."""

    def __init__(self, closer: str, opener: str) -> None:
        """Takes the closing mark, and the opening one, which says that the closing one is missing."""
        self._closer = closer
        self._opener = opener
        self.progress = Progress.MORE

    def read(self, text: str, position: int) -> int:
        """Returns the place behind the mark, or `position` where there is none (yet)."""
        found = text.find(self._closer, position, position + MOST_GARBAGE + len(self._closer))
        if found >= 0 and text.find(self._opener, position, found) < 0:
            self.progress = Progress.DONE
            return found + len(self._closer)
        if found >= 0 or len(text) - position >= MOST_GARBAGE + len(self._closer):
            self.progress = Progress.DONE
        return position


class TaggedObject:
    """Reads one object between two marks, such as `<tool_call>{…}</tool_call>`."""

    def __init__(self, opener: str, closer: str) -> None:
        """Begins behind the opening mark."""
        self.progress = Progress.MORE
        self._object = CallObject()
        self._complete = False
        self._closing = Closing(closer, opener)

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position`; see `Reader.read`."""
        if not self._complete:
            position = self._object.read(text, position, sink)
            self.progress = Progress.FAILED if self._object.progress is Progress.FAILED else Progress.MORE
            self._complete = self._object.progress is Progress.DONE
        if self._complete:
            position = self._closing.read(text, position)
            self.progress = self._closing.progress
        return position

    def may_end(self) -> bool:
        """Whether the object is complete."""
        return self._complete


class ObjectList:
    """Reads objects one after the other, in brackets or without."""

    def __init__(self, *, bare: bool = False, offered: frozenset[str] = frozenset()) -> None:
        """Begins before the first object or the bracket; see `CallObject` for the arguments."""
        self.progress = Progress.MORE
        self._bare = bare
        self._offered = offered
        self._bracket: bool | None = None
        self._object: CallObject | None = None
        self._read_any = False

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position`; see `Reader.read`."""
        while self.progress is Progress.MORE:
            if self._object is not None:
                position = self._object.read(text, position, sink)
                if self._object.progress is Progress.MORE:
                    return position
                if self._object.progress is Progress.FAILED:
                    self.progress = Progress.FAILED
                else:
                    self._read_any, self._object = True, None
                continue
            start = position
            while position < len(text) and (text[position].isspace() or (self._read_any and text[position] in ",;")):
                position += 1
            if position - start > MOST_BETWEEN:
                self.progress = Progress.DONE if self._read_any else Progress.FAILED
                return start
            if position == len(text):
                # Kept: should no object follow, the separators are text.
                return start
            position = self._next(text, position, start)
        return position

    def may_end(self) -> bool:
        """Whether all objects so far are complete."""
        return self._read_any and self._object is None

    def _next(self, text: str, position: int, before: int) -> int:
        character = text[position]
        if character == "{":
            self._bracket = bool(self._bracket)
            self._object = CallObject(bare=self._bare, offered=self._offered)
            return position
        if character == "[" and self._bracket is None:
            self._bracket = True
            return position + 1
        if self._bracket and character == "]" and self._read_any:
            self.progress = Progress.DONE
            return position + 1
        self.progress = Progress.DONE if self._read_any else Progress.FAILED
        return before


class NamedArguments:
    """Reads a name, a separator, and a JSON object of arguments, such as `name[ARGS]{…}`."""

    def __init__(self, header: re.Pattern[str], closing: Closing | None = None) -> None:
        """Takes the pattern of all that stands before the brace, with the group `name` and perhaps `id`."""
        self.progress = Progress.MORE
        self._pattern = header
        self._closing = closing
        self._value: JsonValue | None = None
        self._complete = False

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position`; see `Reader.read`."""
        if self._value is None:
            position = self._read_header(text, position, sink)
        if self._value is not None and not self._complete:
            end = self._value.scan(text, position)
            stop = len(text) if end < 0 else end
            if stop > position:
                sink.arguments(text[position:stop], position, stop)
            position = stop
            if end >= 0:
                sink.end()
                self._complete = True
        if self._complete:
            if self._closing is None:
                self.progress = Progress.DONE
            else:
                position = self._closing.read(text, position)
                self.progress = self._closing.progress
        return position

    def may_end(self) -> bool:
        """Whether the arguments are complete."""
        return self._complete

    def _read_header(self, text: str, position: int, sink: CallSink) -> int:
        brace = text.find("{", position, position + LONGEST_HEADER)
        if brace < 0:
            if len(text) - position >= LONGEST_HEADER:
                self.progress = Progress.FAILED
            return position
        header = self._pattern.fullmatch(text, position, brace)
        if header is None or not sink.start(header["name"], brace, header.groupdict().get("id") or ""):
            self.progress = Progress.FAILED
            return position
        self._value = JsonValue()
        return brace


class ListOrNamed:
    """Reads what Mistral models write behind `[TOOL_CALLS]`: lists of objects, or in newer ones names and arguments."""

    def __init__(self, header: re.Pattern[str]) -> None:
        """Takes the pattern of a header of the newer kind."""
        self.progress = Progress.MORE
        self._header = header
        self._reader: ObjectList | NamedArguments | None = None

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position`; see `Reader.read`."""
        if self._reader is None:
            while position < len(text) and text[position].isspace():
                position += 1
            if position == len(text):
                return position
            self._reader = ObjectList() if text[position] in "[{" else NamedArguments(self._header)
        position = self._reader.read(text, position, sink)
        self.progress = self._reader.progress
        return position

    def may_end(self) -> bool:
        """Whether all calls so far are complete."""
        return self._reader is not None and self._reader.may_end()
