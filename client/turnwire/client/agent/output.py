"""Keeps what a tool has to say within a limit: the beginning and the end stay, the middle is left out.

Used by `tools` for finished texts and by `process` for bytes as they come, so that no output fills the memory.
"""

from __future__ import annotations

DEFAULT_LIMIT = 64 * 1024


class BoundedOutput:
    """Collects bytes and keeps the first and the last half of a limit.

    The memory used stays within about twice the limit however much is fed.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        if limit < 2:
            msg = f"limit must be at least 2 bytes, not {limit}"
            raise ValueError(msg)
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """All bytes fed so far, kept or not."""

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        self.total += len(data)
        missing = self._head_limit - len(self._head)
        if missing > 0:
            self._head += data[:missing]
            data = data[missing:]
        # Only the last bytes of a big piece can survive, so the rest is never copied.
        self._tail += data[-self._tail_limit :]
        if len(self._tail) > self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    def text(self) -> str:
        """Returns what was kept as valid Unicode, with a note where bytes were left out."""
        if self.total == len(self._head) + len(self._tail):
            return bytes(self._head + self._tail).decode(errors="replace")
        head = bytes(self._head[: _whole_characters(self._head)])
        tail = bytes(self._tail[_next_character(self._tail) :])
        left_out = self.total - len(head) - len(tail)
        note = f"\n[... {left_out} bytes left out ...]\n"
        return head.decode(errors="replace") + note + tail.decode(errors="replace")


def bound_text(text: str, limit: int = DEFAULT_LIMIT) -> str:
    """Returns `text` with its middle left out if it is longer than `limit` bytes of UTF-8.

    Lone surrogates (file names that are not UTF-8) become question marks, since the wire carries valid Unicode only.
    """
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    bounded = BoundedOutput(limit)
    bounded.feed(data)
    return bounded.text()


def _whole_characters(data: bytearray) -> int:
    """Returns the length of `data` without a last character whose bytes are cut off."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            width = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if width > back else len(data)
    return len(data)


def _next_character(data: bytearray) -> int:
    """Returns the index of the first byte that starts a character, within the width of one."""
    for index in range(min(4, len(data))):
        if data[index] & 0xC0 != 0x80:
            return index
    return 0
