"""Server-sent events from bytes, wherever the bytes are cut.

Above it: `stream`. Below it: nothing. Sans-I/O, and lenient as clients of the chat API have to be: all three line
endings, comments, missing blanks, a last event without an end, and llama.cpp's older `error:` lines.
"""

from __future__ import annotations


class EventTooLarge(Exception):
    """An event is larger than the parser was told to take."""


class SseParser:
    """Splits a stream into the data of its events."""

    __slots__ = ("_after_return", "_begun", "_data", "_line", "_max", "_size")

    def __init__(self, max_event_bytes: int) -> None:
        """Takes the size above which an event is refused."""
        self._max = max_event_bytes
        self._line = bytearray()
        """The line whose end has not come."""
        self._data: list[bytes] = []
        """The data lines of the event whose end has not come."""
        self._size = 0
        self._after_return = False
        self._begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the data of the events that are complete with these bytes.

        Raises:
            EventTooLarge: An event passed the limit; the parser cannot go on.
        """
        if b"\r" in data or self._after_return:
            data = self._normalized(data)
        newline = data.rfind(b"\n")
        if newline < 0:
            self._line += data
            self._check()
            return []
        if self._line:
            whole = bytes(self._line) + data[:newline]
            self._line.clear()
        else:
            whole = data[:newline]
        self._line += data[newline + 1 :]
        if not self._begun:
            self._begun = True
            whole = whole.removeprefix(b"\xef\xbb\xbf")
        events: list[bytes] = []
        for line in whole.split(b"\n"):
            if line:
                self._take(line)
            elif self._data:
                events.append(self._event())
        self._check()
        return events

    def close(self) -> bytes | None:
        """Returns the data of an event whose end never came; None where there is none."""
        if self._line:
            self._take(bytes(self._line))
            self._line.clear()
        return self._event() if self._data else None

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
        elif line.startswith(b"error:"):
            value = b'{"error":%b}' % line[6:]
        else:
            return
        self._data.append(value)
        self._size += len(value)

    def _event(self) -> bytes:
        event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        return event

    def _check(self) -> None:
        if self._size + len(self._line) > self._max:
            msg = f"an event is larger than {self._max} bytes"
            raise EventTooLarge(msg)

    def _normalized(self, data: bytes) -> bytes:
        """Returns the bytes with every line ending as a newline; a pair may be cut in two."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
