"""Whether an upstream is used: out after failures in a row, for a time that grows, and back after one trial. Pure.

Above it: `pool`. The same idea as the outlier ejection of Envoy: traffic itself tells who is well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """How passes move between upstreams. Times are in seconds."""

    max_tries: int = 3
    """Upstreams asked for one pass at most."""
    max_failures: int = 3
    """Failures in a row after which an upstream is out."""
    ejection_time: float = 1.0
    """How long it is out at first; twice as long each time that it fails its trial."""
    max_ejection_time: float = 60.0
    """The longest that it is out before it is tried again."""
    check_interval: float = 0.0
    """Time between questions whether it is well; 0 asks nothing, and leaves it to passes to find out."""


POLICY: Final = RoutingPolicy()
"""What holds where nothing else is said."""


class Health:
    """The health of one upstream."""

    __slots__ = ("_ejections", "_failures", "_out_until", "_policy", "_trying")

    def __init__(self, policy: RoutingPolicy) -> None:
        """Begins as well."""
        self._policy: Final = policy
        self._failures = 0
        self._ejections = 0
        self._out_until: float | None = None
        self._trying = False

    @property
    def well(self) -> bool:
        """Whether it is in use without reserve."""
        return self._out_until is None

    def due(self, now: float) -> bool:
        """Whether it is out, its time is over, and nobody tries it yet."""
        return self._out_until is not None and now >= self._out_until and not self._trying

    def usable(self, now: float) -> bool:
        """Whether a pass may be sent there: it is well, or it is time for a trial."""
        return self.well or self.due(now)

    def begin(self, now: float) -> bool:
        """Notes that a pass goes there; returns whether it is the trial, which others wait for."""
        if not self.due(now):
            return False
        self._trying = True
        return True

    def abandoned(self) -> None:
        """Notes that the trial ended without telling anything."""
        self._trying = False

    def succeeded(self) -> bool:
        """Notes an answer; returns whether that brought it back."""
        back = not self.well
        self._failures = self._ejections = 0
        self._out_until = None
        self._trying = False
        return back

    def failed(self, now: float, *, trial: bool = False, pause: float = 0.0) -> bool:
        """Notes a failure.

        Args:
            now: The moment.
            trial: Whether it was that of the trial. Others that fail while it is out tell nothing new.
            pause: Seconds for which the upstream asked to be left alone.

        Returns:
            Whether that took it out, or left it out for longer.
        """
        if self.well:
            self._failures += 1
            if self._failures < self._policy.max_failures:
                return False
        elif not trial:
            return False
        policy = self._policy
        # Beyond some thirty times the power means nothing any more.
        grown = policy.ejection_time * 2.0 ** min(self._ejections, 30)
        self._out_until = now + min(max(grown, pause), policy.max_ejection_time)
        self._ejections += 1
        self._trying = False
        return True
