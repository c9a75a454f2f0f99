"""What a driver sends of a rollout: found from the bytes that the proxy counted, not taken from its name.

Above it: `model`. Below it: `workload` and numpy. Pure. What goes up is frames around content, and the content is one
of three: what is new; the settings again with it; the whole conversation again. What comes down is frames, tokens, and
the settings as often as they are repeated.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnwire.bench.map.crossing import Crossing
from turnwire.bench.map.workload import Step


class Content(enum.Enum):
    """What a turn sends."""

    NEW = "what is new"
    SETTINGS = "instructions and tools, and what is new"
    WHOLE = "everything"


_SIZES: Final[dict[Content, Callable[[int, Step], int]]] = {
    Content.NEW: lambda turn, step: step.new + (0 if turn else step.settings),
    Content.SETTINGS: lambda _, step: step.settings + step.new,
    Content.WHOLE: lambda _, step: step.settings + step.whole,
}


@dataclass(frozen=True, slots=True)
class Counted:
    """What passed during a rollout."""

    steps: Sequence[Step]
    up: float
    down: float


@dataclass(frozen=True, slots=True)
class Sent:
    """How a driver's bytes follow from its turns."""

    content: Content
    up: tuple[float, float, float]
    """Bytes for each turn, for each byte of content, and, where everything is sent again, for each turn before it."""
    down: tuple[float, float, float]
    """Bytes for each turn, each token, and each byte of settings."""

    def crossings(self, steps: Sequence[Step]) -> list[Crossing]:
        """Returns what each turn of a rollout sends."""
        crossings: list[Crossing] = []
        for turn, step in enumerate(steps):
            up = _dot(self.up, _rising(self.content, turn, step))
            echoed = max(0.0, self.down[2]) * step.settings
            crossings.append(Crossing(up, echoed, max(0.0, _dot(self.down, _falling(step)) - echoed)))
        return crossings


def sent(counted: Sequence[Counted]) -> Sent:
    """Returns what a driver sends, from what was counted of it.

    Rollouts of one scenario alone do not tell frames from settings; two of different settings do.

    Raises:
        ValueError: Nothing was counted.
    """
    if not counted:
        msg = "expected bytes of one rollout at least, found none"
        raise ValueError(msg)
    content = min(Content, key=lambda kind: sum(abs(each.up - _size(kind, each.steps)) for each in counted))
    rising = [_sum([_rising(content, turn, step) for turn, step in enumerate(each.steps)]) for each in counted]
    falling = [_sum([_falling(step) for step in each.steps]) for each in counted]
    up = _solved(rising, [each.up for each in counted])
    return Sent(content, up, _solved(falling, [each.down for each in counted]))


def _size(content: Content, steps: Sequence[Step]) -> int:
    return sum(_SIZES[content](turn, step) for turn, step in enumerate(steps))


def _rising(content: Content, turn: int, step: Step) -> tuple[float, float, float]:
    return 1.0, float(_SIZES[content](turn, step)), float(turn) if content is Content.WHOLE else 0.0


def _falling(step: Step) -> tuple[float, float, float]:
    return 1.0, float(step.tokens), float(step.settings)


def _sum(rows: Sequence[tuple[float, float, float]]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.asarray(rows, dtype=np.float64).sum(axis=0)
    return total


def _dot(weights: tuple[float, float, float], values: tuple[float, float, float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _solved(rows: Sequence[NDArray[np.float64]], counted: Sequence[float]) -> tuple[float, float, float]:
    """Returns the least squares of shares, so that a short rollout counts as much as a long one."""
    shares: NDArray[np.float64] = np.asarray(rows) / np.asarray(counted)[:, None]
    # Columns of like size, so that none is taken for rounding error; one that is empty stays so.
    scale: NDArray[np.float64] = np.maximum(np.abs(shares).max(axis=0), 1e-12)
    found = np.linalg.lstsq(shares / scale, np.ones(len(counted), dtype=np.float64), rcond=1e-6)[0] / scale
    first, second, third = (float(each) for each in found)
    return first, second, third
