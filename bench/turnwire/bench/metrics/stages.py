"""Where the time of turns went: inference, the API service, the client, and what lies between them. Pure.

Above it: the summary and the report. Below it: `turns` and `statistics`. All times are seconds.

A turn, and what the client waits after it, is the sum of six parts:

- inference, as the engine's format promises it at the set speed;
- late: by how much the engine took longer than that, as the server measured it; in a simulation its timer's error;
- API: the server's work before inference (the lane's queue included) and after it, as the server measured it;
- network: what nothing can avoid, a round trip;
- client: what tools or the user take, by the scenario;
- rest: encoding, doors, connections, the network beyond a round trip, the client's library, and the machine's noise.

Where a transport does not tell what the server measured (the public JSON does not), `api` and `late` are not known and
part of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwire.bench.metrics.statistics import median
from turnwire.bench.metrics.turns import TurnFigures


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a turn, or of each their median over turns, which need not add up to the median turn."""

    inference: float
    network: float
    client: float
    api: float | None
    late: float | None
    rest: float


def split(turn: TurnFigures) -> Split:
    """Returns the parts of one turn; their sum is the turn with what the client waits after it."""
    api = late = None
    if turn.pre_inference is not None and turn.post_inference is not None:
        api = turn.pre_inference + turn.post_inference
    if turn.inference_measured is not None:
        late = turn.inference_measured - turn.inference
    rest = turn.overhead - (api or 0.0) - (late or 0.0)
    return Split(turn.inference, turn.network, turn.client, api, late, rest)


def typical(turns: Sequence[TurnFigures]) -> Split:
    """Returns the median of each part; of what only some turns tell, over those.

    Raises:
        ValueError: There are no turns.
    """
    parts = [split(turn) for turn in turns]

    def middle(part: Callable[[Split], float]) -> float:
        return median([part(each) for each in parts])

    def told(part: Callable[[Split], float | None]) -> float | None:
        values = [value for each in parts if (value := part(each)) is not None]
        return median(values) if values else None

    return Split(
        inference=middle(lambda each: each.inference),
        network=middle(lambda each: each.network),
        client=middle(lambda each: each.client),
        api=told(lambda each: each.api),
        late=told(lambda each: each.late),
        rest=middle(lambda each: each.rest),
    )
