"""One ticker that releases the tokens of every running generation at its own pace.

Above it: the engine, which starts generations. Below it: a clock; the event loop's, or one that a test moves by hand.

A timer or task per token, or even per generation, would cost more than all else in the server, so there is one timer.
Each tick hands every due generation all of its due tokens in one call. What is due follows from the generation's start
and the time, never from earlier ticks: a late tick catches up and no error adds up. Token `k`, counted from 0, is due
at `start + ttft + floor(k / burst) * burst / tokens_per_second`.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnwire.server.engine.port import Sink
    from turnwire.server.engine.scripted.script import Script
    from turnwire.server.engine.scripted.turns import Speed

logger = logging.getLogger(__name__)

RESOLUTION = 0.001
"""Seconds between ticks at least. Event loops round timers to milliseconds anyway, and a floor keeps a busy server's
tokens together: what comes due within it leaves in the same tick."""

SLICE = 256
"""Chunks that a generation without a set rate delivers per tick, so that others, and a pause, get their turn."""

# Seconds. A due time computed from a rate may lie a rounding error after the tick that was set for it.
_ROUNDING = 1e-7


class TimerHandle(Protocol):
    """A timer that was set."""

    def cancel(self) -> None:
        """Unsets it. Idempotent."""


class Clock(Protocol):
    """Time, in seconds from an arbitrary start."""

    def now(self) -> float:
        """Returns the time."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Calls back at `when`, or as soon as possible if that is past; never before this call has returned."""
        ...


class LoopClock:
    """The running event loop's clock."""

    def now(self) -> float:
        """Returns the loop's time."""
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Sets a timer of the loop."""
        return asyncio.get_running_loop().call_at(when, callback)


class PacedGeneration:
    """One script being released; made by `Ticker.start`."""

    __slots__ = (
        "_burst",
        "_due",
        "_interval",
        "_origin",
        "_paused_at",
        "_script",
        "_sent",
        "_sink",
        "_ticker",
        "entry",
    )

    def __init__(self, ticker: Ticker, script: Script, speed: Speed, sink: Sink, now: float) -> None:
        self._ticker = ticker
        self._script: Script | None = script
        self._sink = sink
        self._burst = speed.burst
        # Seconds per burst; 0 stands for no set rate.
        self._interval = 0.0 if math.isinf(speed.tokens_per_second) else speed.burst / speed.tokens_per_second
        # When the first token is due.
        self._origin = now + speed.ttft
        self._due = self._origin
        self._sent = 0
        self._paused_at: float | None = None
        self.entry: Entry | None = None
        """What stands for this generation in the ticker's schedule; None while it is not scheduled."""

    @property
    def due(self) -> float:
        """When the next tokens are."""
        return self._due

    @property
    def running(self) -> bool:
        """Whether it is neither over, nor aborted, nor paused."""
        return self._script is not None and self._paused_at is None

    def pause(self) -> None:
        """Stops the clock of this generation; tokens due by now but not yet handed over wait too."""
        if self.running:
            self._paused_at = self._ticker.now()
            self._ticker.unschedule(self)

    def resume(self) -> None:
        """Lets the clock go on, shifted by the time it stood still."""
        if self._script is not None and self._paused_at is not None:
            stood_still = self._ticker.now() - self._paused_at
            self._origin += stood_still
            self._due += stood_still
            self._paused_at = None
            self._ticker.schedule(self)

    def abort(self) -> None:
        """Ends at once and without a word to the sink."""
        if self._script is not None:
            self._script = None
            self._ticker.unschedule(self)
            self._ticker.forget(self)

    def release(self, now: float) -> None:
        """Hands the sink everything due at `now`, in one call; for the ticker."""
        script = self._script
        if script is None:
            return
        released = script.released
        if self._interval:
            bursts = int((now - self._origin) / self._interval) + 1
            tokens = bursts * self._burst
            last = tokens >= len(released) - 1
            end = released[-1 if last else tokens]
            self._due = self._origin + bursts * self._interval
        else:
            # Stays due since its first token was.
            end = min(self._sent + SLICE, released[-1])
            last = end == released[-1]
        sent = self._sent
        if end > sent:
            self._sent = end
            self._sink.output(script.chunks[sent:end])
        # The sink may have aborted this generation meanwhile, and is then not to be called again.
        if last and self._script is not None:
            self.abort()
            self._sink.ended(script.outcome)


Entry = tuple[float, int, PacedGeneration]
"""Due time, a running number that breaks ties, and the generation."""


class Ticker:
    """Runs any number of generations on one timer; all calls belong on the clock's thread."""

    def __init__(self, clock: Clock | None = None, *, resolution: float = RESOLUTION) -> None:
        """Makes an idle ticker.

        Args:
            clock: Where time comes from; by default the event loop that is running when it is used.
            resolution: Seconds between ticks at least.
        """
        self._clock: Clock = clock or LoopClock()
        self._resolution = resolution
        # Entries of generations that were paused or aborted stay until they are due or too many.
        self._heap: list[Entry] = []
        self._stale = 0
        self._numbers = 0
        self._generations: set[PacedGeneration] = set()
        self._timer: TimerHandle | None = None
        self._timer_at = math.inf
        self._last_tick = -math.inf
        self._ticking = False

    @property
    def running(self) -> int:
        """How many generations are neither over nor aborted."""
        return len(self._generations)

    @property
    def scheduled(self) -> int:
        """How many entries the schedule holds, those of paused and aborted generations included."""
        return len(self._heap)

    def now(self) -> float:
        """Returns the clock's time."""
        return self._clock.now()

    def start(self, script: Script, speed: Speed, sink: Sink) -> PacedGeneration:
        """Begins to release a script; the sink is first called in a later tick."""
        generation = PacedGeneration(self, script, speed, sink, self._clock.now())
        self._generations.add(generation)
        self.schedule(generation)
        return generation

    def abort_all(self) -> None:
        """Aborts every generation, so that no timer is left."""
        for generation in tuple(self._generations):
            generation.abort()

    def schedule(self, generation: PacedGeneration) -> None:
        """Lets a generation take part in the ticks from its due time on; for the generation."""
        self._push(generation)
        self._arm()

    def unschedule(self, generation: PacedGeneration) -> None:
        """Takes a generation out of the ticks; for the generation."""
        if generation.entry is not None:
            generation.entry = None
            self._stale += 1
            if self._stale > 64 and self._stale * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].entry is entry]
                heapq.heapify(self._heap)
                self._stale = 0
            self._arm()

    def forget(self, generation: PacedGeneration) -> None:
        """Drops a generation that is over; for the generation."""
        self._generations.discard(generation)

    def _push(self, generation: PacedGeneration) -> None:
        self._numbers += 1
        entry = (generation.due, self._numbers, generation)
        generation.entry = entry
        heapq.heappush(self._heap, entry)

    def _arm(self) -> None:
        """Sets the timer for the earliest entry, or unsets it if there is none."""
        if self._ticking:
            return
        heap = self._heap
        while heap and heap[0][2].entry is not heap[0]:
            heapq.heappop(heap)
            self._stale -= 1
        if not heap:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._timer_at = math.inf
            return
        due = heap[0][0]
        # Whoever has no set rate is still due after a tick, and goes on as soon as the loop has seen to others.
        at = due if due <= self._last_tick + _ROUNDING else max(due, self._last_tick + self._resolution)
        if at != self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._clock.call_at(at, self._tick)
            self._timer_at = at

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        self._ticking = True
        self._last_tick = self._clock.now()
        now = self._last_tick + _ROUNDING
        heap = self._heap
        ready: list[PacedGeneration] = []
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            generation = entry[2]
            if generation.entry is entry:
                generation.entry = None
                ready.append(generation)
            else:
                self._stale -= 1
        for generation in ready:
            # A sink called earlier in this tick may have paused this one, and even resumed it.
            if generation.running and generation.entry is None:
                try:
                    generation.release(now)
                except Exception:
                    # One broken sink must not stop the clock of all others.
                    logger.exception("a generation is dropped because its sink failed")
                    generation.abort()
                if generation.running and generation.entry is None:
                    self._push(generation)
        self._ticking = False
        self._arm()
