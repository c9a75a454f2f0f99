"""What a limited way adds to turns beyond one round trip each: bytes that wait for bandwidth or for TCP's window.

Above it: `model`. Below it: `network.link`, the same arithmetic that the proxy lets bytes through by, so that the map
and a measurement can differ only in what is sent and when. Pure. It is worked out and not fitted, since it does depend
on the model's speed: the window of a client that waits for a slow model is halved for each time-out of quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.bench.map.workload import Step
from turnwire.bench.network.link import Link, Path

_PIECES: Final = 16
"""In how many pieces, evenly over its inference, a turn's deltas are taken to come."""
_ECHOED_FIRST: Final = 2 / 3
"""Share of the settings' echo that comes before the first token: the public form has them in `response.created` and
`response.in_progress`, and again in `response.completed`."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """What one turn sends, in bytes on the wire."""

    up: float
    echoed: float
    """Down: settings that are repeated."""
    paced: float
    """Down: the rest, which comes with the tokens."""


def extras(path: Path, steps: Sequence[Step], crossings: Sequence[Crossing], *, anew: bool) -> list[float]:
    """Returns what each turn of a rollout takes beyond inference and one round trip, in seconds.

    A connection that is kept has carried one turn like the first before, as every driver's has when it is measured, and
    as a running client's.

    Args:
        path: The way.
        steps: The turns.
        crossings: What each sends.
        anew: Whether each turn has a connection of its own. Its handshake is not in the result; its window is.
    """
    if not (path.bandwidth or path.slow_start):
        return [0.0] * len(steps)
    now = path.rtt
    up, down = Link(path, 0.0), Link(path, 0.0)
    added: list[float] = []
    turns = list(zip(steps, crossings, strict=True))
    for step, crossing in (*turns[:1], *turns):
        if anew:
            up, down = Link(path, now - path.rtt), Link(path, now - path.rtt)
        begun = _passed(up, now, crossing.up)
        _passed(down, begun, crossing.echoed * _ECHOED_FIRST)
        for piece in range(1, _PIECES + 1):
            _passed(down, begun + step.inference * piece / _PIECES, crossing.paced / _PIECES)
        ended = _passed(down, begun + step.inference, crossing.echoed * (1 - _ECHOED_FIRST))
        added.append(ended - now - step.inference - path.rtt)
        now = ended + step.pause
    return added[1:]


def _passed(link: Link, now: float, size: float) -> float:
    """Returns when the last of so many bytes, of one at least, has left the link."""
    return link.enter(now, max(1, round(size)))[-1][0]
