"""Calls whose arguments stand between marks as bare text, such as `<parameter=city>Paris</parameter>`.

Above it: the dialects, which say how the marks are spelt. Below it: forms of marks, and what schemas say of arguments.
Arguments become a JSON object: strings as they are sampled, everything else when its end has come. A mark ends a value
only where something follows that may follow it, so that texts about such marks can be arguments.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from turnwire.server.prompt.parsing.argument_types import ANY, STRING, as_json, held, quoted, types_by_name
from turnwire.server.prompt.parsing.calls import CallSink, Offered, Progress
from turnwire.server.prompt.parsing.forms import BLANKS, Form, Part
from turnwire.server.prompt.parsing.readers import MOST_GARBAGE, Closing

_CANDIDATE: Final = re.compile(r"[\n<]")


@dataclass(frozen=True, slots=True)
class CallMarks:
    """How calls are spelt."""

    header: Form
    """All that stands before the arguments, with the group `name`, and perhaps `rest`: a slash there means none."""
    argument: Form
    """What opens an argument, with the group `name`, and perhaps `rest`, in which `string="…"` tells the type."""
    value_mark: str
    """What closes an argument."""
    value_ends: Form
    """The same with what may follow it; and, where it is missing, what else ends an argument."""
    end: Form
    """What ends the arguments."""
    tail: tuple[str, ...]
    """Marks that are enough to end an argument where the output ends with one of them."""
    closing: tuple[str, str] = ("", "")
    """The mark behind the end, and the one that says that it is missing; empty for none."""
    lines: bool = False
    """Whether values stand on lines of their own."""


def value_ends(mark: str, followers: Iterable[str], others: Iterable[tuple[Part, ...]], *, lines: bool = False) -> Form:
    """Returns the form of what ends an argument.

    Args:
        mark: Closes it.
        followers: What may stand behind the mark.
        others: What ends it without the mark.
        lines: Whether a line break before any of them belongs to them.
    """
    rows: list[tuple[Part, ...]] = [*((mark, BLANKS, follower) for follower in followers), *others]
    return Form(*((("\n", *row) for row in rows) if lines else ()), *rows)


class _At(enum.IntEnum):
    HEADER = 0
    BETWEEN = 1
    VALUE = 2
    CLOSED = 3


class MarkedCall:
    """Reads one call, from behind its opening mark on."""

    def __init__(self, marks: CallMarks, offered: Offered, *, bare: bool = False) -> None:
        """Begins before the header.

        Args:
            marks: How the call is spelt.
            offered: The tools; their schemas tell the types of arguments.
            bare: The mark may be anything's, so that only tools on offer, where they are known, are called.
        """
        self.progress = Progress.MORE
        self._marks = marks
        self._offered = offered
        self._bare = bare
        self._at = _At.HEADER
        self._schema = ""
        self._any = False
        self._pending = ""
        self._types = ANY
        self._fresh = False
        self._as_text = False
        self._scanned = 0
        self._closing = Closing(*marks.closing) if marks.closing[0] else None

    def read(self, text: str, position: int, sink: CallSink) -> int:
        """Goes on at `position`; see `Reader.read`."""
        while self.progress is Progress.MORE:
            before, at = position, self._at
            if at is _At.HEADER:
                position = self._read_header(text, position, sink)
            elif at is _At.BETWEEN:
                position = self._read_between(text, position, sink)
            elif at is _At.VALUE:
                position = self._read_value(text, position, sink)
            else:
                position = self._read_closing(text, position)
            if position == before and at is self._at:
                break
        self._flush(position, sink)
        return position

    def may_end(self) -> bool:
        """Whether the call is complete."""
        return self._at is _At.CLOSED

    def finish(self, text: str, position: int, sink: CallSink) -> None:
        """Ends the call where the output ended with it; see `Completing`."""
        marks = self._marks
        if self._at is _At.VALUE:
            stop = self._held_from(text, position + self._scanned)
            if not any(mark in text[stop:] for mark in marks.tail):
                return
            self._end_value(text, position, stop, sink)
            self._end(stop, sink)
        elif self._at is _At.BETWEEN and marks.end.begun(text, position):
            self._end(position, sink)

    def _read_header(self, text: str, position: int, sink: CallSink) -> int:
        found = self._marks.header.match(text, position)
        if found is None:
            if not self._marks.header.begun(text, position):
                self.progress = Progress.FAILED
            return position
        name, end = found["name"].strip(), found.end()
        known = not self._bare or not self._offered.names or name in self._offered.names
        if not name or not known or not sink.start(name, end):
            self.progress = Progress.FAILED
            return position
        self._schema = self._offered.schemas.get(name, "")
        self._at = _At.BETWEEN
        if _rest(found).endswith("/"):
            self._end(end, sink)
        return end

    def _read_between(self, text: str, position: int, sink: CallSink) -> int:
        marks = self._marks
        for at in range(position, min(position + MOST_GARBAGE, len(text)) + 1):
            argument = marks.argument.match(text, at)
            if argument:
                self._begin_value(argument)
                return argument.end()
            end = marks.end.match(text, at)
            if end:
                self._end(end.end(), sink)
                return end.end()
            if marks.argument.begun(text, at) or marks.end.begun(text, at):
                return position
        self._end(position, sink)
        self.progress = Progress.DONE
        return position

    def _begin_value(self, argument: re.Match[str]) -> None:
        name, rest = argument["name"].strip(), _rest(argument)
        if 'string="true"' in rest:
            self._types = STRING
        elif 'string="false"' in rest:
            self._types = ANY
        else:
            self._types = types_by_name(self._schema).get(name, ANY)
        self._pending += f"{', ' if self._any else '{'}{quoted(name)}: "
        self._any = self._fresh = True
        self._as_text, self._scanned = False, 0
        self._at = _At.VALUE

    def _read_value(self, text: str, position: int, sink: CallSink) -> int:
        marks = self._marks
        if self._fresh:
            if position == len(text):
                return position
            self._fresh = False
            if marks.lines and text[position] == "\n":
                position += 1
        end = marks.value_ends.search(text, position + self._scanned)
        stop = end.start() if end else self._held_from(text, position + self._scanned)
        if not self._as_text and not held(text, position, stop, self._types):
            self._as_text = True
            self._pending += '"'
        if end:
            self._end_value(text, position, stop, sink)
            self._at = _At.BETWEEN
            mark = stop + (marks.lines and text[stop] == "\n")
            return mark + len(marks.value_mark) if text.startswith(marks.value_mark, mark) else mark
        if self._as_text:
            self._say_text(text, position, stop, sink)
            position = stop
        self._scanned = stop - position
        return position

    def _held_from(self, text: str, position: int) -> int:
        """Returns from where on the text may be what ends the value; its length where nothing may."""
        for candidate in _CANDIDATE.finditer(text, position):
            if self._marks.value_ends.begun(text, candidate.start()):
                return candidate.start()
        return len(text)

    def _say_text(self, text: str, start: int, stop: int, sink: CallSink) -> None:
        if start < stop:
            said, self._pending = self._pending + quoted(text[start:stop])[1:-1], ""
            sink.arguments(said, start, stop)

    def _end_value(self, text: str, start: int, stop: int, sink: CallSink) -> None:
        if self._as_text:
            self._say_text(text, start, stop, sink)
            self._pending += '"'
        else:
            said, self._pending = self._pending + as_json(text[start:stop], self._types), ""
            sink.arguments(said, start, stop)

    def _end(self, position: int, sink: CallSink) -> None:
        self._pending += "}" if self._any else "{}"
        self._flush(position, sink)
        sink.end()
        self._at = _At.CLOSED
        if self._closing is None:
            self.progress = Progress.DONE

    def _flush(self, position: int, sink: CallSink) -> None:
        if self._pending:
            said, self._pending = self._pending, ""
            sink.arguments(said, position, position)

    def _read_closing(self, text: str, position: int) -> int:
        if self._closing is None:
            return position
        position = self._closing.read(text, position)
        self.progress = self._closing.progress
        return position


def _rest(found: re.Match[str]) -> str:
    return found.groupdict().get("rest") or ""
