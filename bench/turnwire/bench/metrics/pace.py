"""How evenly the tokens of one response arrive, against the pace that was set. Pure.

Above it: `turnwire.bench.pace`. Below it: `statistics`. All times are seconds.

Token `k`, counted from 0, is promised `floor(k / burst) * burst / tokens_per_second` after the first one, by the
formula of docs/scenarios.md. Arrivals are set against that by the token that came least late, which then has a delay of
0: were it the first one always, a first token that came late would make all others look early. So what is the same for
every token, such as the time that the request took, is no part of the delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwire.bench.metrics.statistics import percentile


@dataclass(frozen=True, slots=True)
class Pace:
    """How one response arrived."""

    rate: float
    """Achieved, as a share of the rate that was set."""
    delay_p50: float
    delay_p99: float


def token_arrivals(pieces: Sequence[tuple[float, int]], ends: Sequence[int]) -> list[float]:
    """Returns when each token was there: with the piece that had its last character, however tokens were put together.

    Args:
        pieces: Of each piece of text, in order, when it came and how many characters it has.
        ends: Of each token, how many characters the text has up to its end.

    Raises:
        ValueError: The pieces have another number of characters.
    """
    found = sum(size for _, size in pieces)
    if not ends or found != ends[-1]:
        msg = f"expected {ends[-1] if ends else 'some'} characters, found {found}"
        raise ValueError(msg)
    arrivals: list[float] = []
    there = 0
    for moment, size in pieces:
        there += size
        while len(arrivals) < len(ends) and ends[len(arrivals)] <= there:
            arrivals.append(moment)
    return arrivals


def promised(tokens: int, tokens_per_second: float, burst: int) -> list[float]:
    """Returns when each token is due after the first one."""
    return [token // burst * burst / tokens_per_second for token in range(tokens)]


def pace(arrivals: Sequence[float], due: Sequence[float]) -> Pace:
    """Returns how tokens arrived that were due at the moments of `promised`.

    Raises:
        ValueError: There are not as many of both, or all are due at once, so that there is no rate.
    """
    if len(arrivals) != len(due) or not due or due[-1] <= due[0]:
        msg = f"expected tokens due one after the other, found {len(due)} due and {len(arrivals)} that came"
        raise ValueError(msg)
    late = [came - moment for came, moment in zip(arrivals, due, strict=True)]
    least = min(late)
    delays = [each - least for each in late]
    return Pace(
        rate=(due[-1] - due[0]) / (arrivals[-1] - arrivals[0]),
        delay_p50=percentile(delays, 0.5),
        delay_p99=percentile(delays, 0.99),
    )
