"""When bytes that enter a link leave it: pure, no clock and no I/O.

Above it: `proxy`. Below it: nothing. A link is one direction of one connection. Bytes wait for the sender's window
(slow start, where it is modelled), then for those before them to be sent (bandwidth), then travel (delay). They never
overtake.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

SEGMENT: Final = 1460
"""Bytes of a full TCP segment over Ethernet."""
INITIAL_WINDOW: Final = 10 * SEGMENT
"""RFC 6928."""
LEAST_VARIANCE: Final = 0.2
"""Seconds that Linux's retransmission time-out is above the round trip at least."""


@dataclass(frozen=True, slots=True)
class Path:
    """What a network is set to."""

    rtt: float = 0.0
    """Seconds; half of it each way."""
    bandwidth: float = 0.0
    """Bits per second, each way; 0 for no limit."""
    slow_start: bool = False


class SlowStart:
    """The sender's congestion window while nothing is lost, by the habits of Linux.

    It grows by what is acknowledged (RFC 5681, section 3.1), but only where the sender makes use of it: while it is
    less than twice what was under way. After quiet it is halved for each retransmission time-out that passed (RFC
    2861). The receiver is taken to acknowledge at once, one round trip after the sending, and its own window to be
    endless.
    """

    def __init__(self, rtt: float) -> None:
        """Takes the round trip in seconds."""
        self._rtt = rtt
        self._timeout = rtt + LEAST_VARIANCE
        self._flying: deque[tuple[float, int, int]] = deque()
        """When what was sent is acknowledged, its bytes, and all that were under way with it."""
        self._in_flight = 0
        self._last_sent = 0.0
        self.window = INITIAL_WINDOW
        """Bytes that may be under way."""

    def admit(self, at: float, size: int) -> list[tuple[float, int]]:
        """Returns the moments at which pieces of so many bytes may be sent, from a moment on that never goes back."""
        self._acknowledged(at)
        if not self._flying:
            # Beyond a few halvings all windows are as they were at the beginning.
            quiet = min(64, int((at - self._last_sent) / self._timeout))
            self.window = max(INITIAL_WINDOW, self.window >> quiet)
        pieces: list[tuple[float, int]] = []
        while size:
            room = self.window - self._in_flight
            # Senders wait for room for a whole segment rather than send crumbs.
            if room >= min(size, SEGMENT):
                piece = min(size, room)
                pieces.append((at, piece))
                self._in_flight += piece
                self._flying.append((at + self._rtt, piece, self._in_flight))
                self._last_sent = at
                size -= piece
            else:
                at = self._flying[0][0]
                self._acknowledged(at)
        return pieces

    def _acknowledged(self, now: float) -> None:
        while self._flying and self._flying[0][0] <= now:
            _, size, together = self._flying.popleft()
            self._in_flight -= size
            if self.window < 2 * together:
                self.window += size


class Link:
    """One direction of one connection."""

    def __init__(self, path: Path, opened: float) -> None:
        """Takes the network, and when the connection was opened: bytes wait until its handshake is over."""
        self._delay = path.rtt / 2
        self._bandwidth = path.bandwidth
        self._slow_start = SlowStart(path.rtt) if path.slow_start else None
        self._free = opened + path.rtt
        """When what was sent last has left the sender."""
        self._last = 0.0
        """When the last byte arrives."""

    @property
    def transparent(self) -> bool:
        """Whether bytes pass as they come."""
        return not (self._delay or self._bandwidth or self._slow_start)

    def enter(self, now: float, size: int) -> list[tuple[float, int]]:
        """Returns when so many bytes, entering now, leave at the other end, in pieces."""
        begin = max(now, self._free)
        pieces = self._slow_start.admit(begin, size) if self._slow_start else [(begin, size)]
        leaving: list[tuple[float, int]] = []
        for at, piece in pieces:
            sent = max(at, self._free)
            if self._bandwidth:
                sent += piece * 8 / self._bandwidth
            self._free = sent
            self._last = sent + self._delay
            leaving.append((self._last, piece))
        return leaving

    def end(self, now: float) -> float:
        """Returns when the end of the stream, entering now, leaves: after all bytes."""
        return max(max(now, self._free) + self._delay, self._last)
