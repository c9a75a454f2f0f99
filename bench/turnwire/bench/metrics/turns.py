"""Figures of turns and rollouts, from moments that a driver noted and from what the scenario promises.

Above it: the runner. Below it: `statistics`. All times are seconds; a moment is of the client's monotonic clock.

Definitions (`docs/benchmarks.md` has them in words):

- TTFT: from the moment the client begins to write the request (building and serializing it is work, and more of it for
  a long one) to the first token in the client's hands.
- ITL: the gaps between the arrivals of tokens; tokens that arrive in one piece have no gap between them.
- TPOT: from the first token to the last one, over the tokens without the first.
- Turn: from the request to its terminal event (or the pause of a held response).
- Inference: what the engine's format promises for the turn's tokens at the set speed, not what was measured.
- Unavoidable network time of a turn: one round trip. Not the time that bytes take where bandwidth is limited, nor
  connecting: whoever sends more, or connects more often, pays for it in what is over.
- Turn overhead: the turn less inference and unavoidable network time. Server work, client work, the engine's timer
  error, the network's lateness and the machine's noise are in it.
- Floor of a rollout: the sum of inference, tools and unavoidable network time, tools beginning after the turn's end.
- Distance: how far the end-to-end time lies above the floor, as a share of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from turnwire.bench.metrics.statistics import percentile


@dataclass(frozen=True, slots=True)
class Stages:
    """What a server told of a turn, by its own clock, in seconds."""

    pre_inference: float
    """From the request, the lane's queue included, to the prompt in the engine's hands."""
    inference: float
    """From there to the end of sampling, without the time that a slow client stopped it for."""
    post_inference: float
    """From there until the terminal event, or the pause, was ready to be sent."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What a driver noted of one turn."""

    sent: float
    """The client begins to write the request."""
    arrivals: Sequence[float]
    """Of the tokens' deltas, in order."""
    done: float
    """The terminal event, or the pause, is in the client's hands."""
    told: Stages | None = None
    """None where the transport does not tell."""


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Figures of one turn, in seconds."""

    ttft: float
    """To `done` where nothing was said."""
    tpot: float
    """0 where there are fewer than two tokens."""
    itl_p50: float
    itl_p99: float
    itl_max: float
    took: float
    overhead: float
    inference: float = 0.0
    """As promised; see above."""
    network: float = 0.0
    """Unavoidable; see above."""
    client: float = 0.0
    """What tools or the user take before the next turn, by the scenario."""
    pre_inference: float | None = None
    """This and the next two as `Stages` has them; None where the transport does not tell."""
    inference_measured: float | None = None
    post_inference: float | None = None


def turn_figures(
    moments: Moments, tokens: int, inference: float, round_trip: float, client: float = 0.0
) -> TurnFigures:
    """Returns the figures of a turn of so many tokens, whose inference takes so long, and what the client waits."""
    arrivals = moments.arrivals
    first = arrivals[0] if arrivals else moments.done
    last = arrivals[-1] if arrivals else moments.done
    gaps = gaps_between(arrivals)
    took = moments.done - moments.sent
    told = moments.told
    return TurnFigures(
        ttft=first - moments.sent,
        tpot=(last - first) / (tokens - 1) if tokens > 1 else 0.0,
        itl_p50=percentile(gaps, 0.5) if gaps else 0.0,
        itl_p99=percentile(gaps, 0.99) if gaps else 0.0,
        itl_max=max(gaps, default=0.0),
        took=took,
        overhead=took - inference - round_trip,
        inference=inference,
        network=round_trip,
        client=client,
        pre_inference=None if told is None else told.pre_inference,
        inference_measured=None if told is None else told.inference,
        post_inference=None if told is None else told.post_inference,
    )


def gaps_between(moments: Sequence[float]) -> list[float]:
    """Returns the differences of neighbours."""
    return [later - earlier for earlier, later in pairwise(moments)]


def floor(inference: Sequence[float], pauses: Sequence[float], round_trip: float) -> float:
    """Returns the least time of a rollout: of each turn its inference, what the client waits after it, a round trip."""
    return sum(inference) + sum(pauses) + len(inference) * round_trip


def distance(took: float, least: float) -> float:
    """Returns how far a time lies above its floor, as a share of the floor.

    Raises:
        ValueError: The floor is 0, as with an endlessly fast model on no network.
    """
    if least <= 0:
        msg = "there is no distance from a floor of 0"
        raise ValueError(msg)
    return took / least - 1


def faster_by(took: float, other: float) -> float:
    """Returns by which share of `other`'s time this one is shorter: 0.4 is "40% faster" by the budget's words."""
    return 1 - took / other
