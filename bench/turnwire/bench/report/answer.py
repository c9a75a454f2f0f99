"""The short answer: sentences computed from the figures, those where gRPC loses in the same form as the others.

Above it: the report. Below it: rollouts and doors. Pure; no sentence is there whose figures are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from turnwire.bench.doors_cost import Cost
from turnwire.bench.intervals import known
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.playing import OTHERS, Played
from turnwire.bench.report.wording import number, percent

MATTERS: Final = 0.05
"""A smaller share of the end-to-end time is called no difference that matters."""
GRPC: Final = "gRPC, one stream"
WEBSOCKETS: Final = ("WebSocket, 16 lanes a socket", "WebSocket, a socket each")
NATIVE: Final = "WebSocket `turnwire.v1`, one socket"
COSTS: Final[Sequence[tuple[str, Callable[[Cost], float]]]] = (
    ("server CPU", lambda cost: cost.server_us),
    ("client CPU", lambda cost: cost.client_us),
    ("bytes", lambda cost: cost.bytes_down),
)
"""For each token."""


def verdict(figure: Interval) -> str:
    """Returns `wins`, `loses`, `even` where it is within noise or below `MATTERS`, or `unsure` with one run alone."""
    if not known(figure):
        return "unsure"
    if figure.low <= 0 <= figure.high or abs(figure.value) < MATTERS:
        return "even"
    return "wins" if figure.value > 0 else "loses"


def losses(rollouts: Sequence[Played]) -> list[str]:
    """Returns a sentence for each of those compared with that names the settings in which gRPC loses."""
    said: list[str] = []
    for driver, name in OTHERS:
        lost = [
            f"{played.setting} by {percent(figure.value)}"
            for played in rollouts
            if (figure := played.gains.get(driver)) is not None and verdict(figure) == "loses"
        ]
        if lost:
            said.append(f"Append over gRPC loses against {name} in: {'; '.join(lost)}.")
    return said


def tally(rollouts: Sequence[Played]) -> list[str]:
    """Returns, for each of those compared with, in how many settings gRPC wins, loses and makes no difference."""
    said: list[str] = []
    for driver, name in OTHERS:
        figures = [figure for played in rollouts if (figure := played.gains.get(driver)) is not None]
        if not figures:
            continue
        counts = {kind: sum(1 for each in figures if verdict(each) == kind) for kind in ("wins", "even", "loses")}
        unsure = len(figures) - sum(counts.values())
        span = f"{_signed(min(each.value for each in figures))} to {_signed(max(each.value for each in figures))}"
        said.append(
            f"Append over gRPC against {name}, end to end: wins in **{counts['wins']}**, makes no difference that "
            f"matters (5%) in **{counts['even']}**, loses in **{counts['loses']}** of {_many(len(figures), 'setting')}"
            + (f" ({unsure} with one run only, not judged)" if unsure else "")
            + f"; time saved from {span}."
        )
    return said


def _signed(share: float) -> str:
    return ("\u2212" if share < 0 else "") + percent(share)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def shape(rollouts: Sequence[Played]) -> list[str]:
    """Says whether the gain is gRPC's, or that of one connection with held state, by the same messages on WebSocket."""
    figures = [each for played in rollouts if (each := played.gains.get("native-append")) is not None]
    judged = [verdict(each) for each in figures if verdict(each) != "unsure"]
    if not judged:
        return []
    even = judged.count("even")
    if even < len(judged):
        return [
            "The same messages over one WebSocket (`turnwire.v1`) make no difference that matters to gRPC in "
            f"{even} of {_many(len(judged), 'setting')}; gRPC wins in {judged.count('wins')} and loses in "
            f"{judged.count('loses')}."
        ]
    said = (
        "The same messages over one WebSocket (`turnwire.v1`) make no difference to gRPC that matters or is beyond "
        f"noise in any of {_many(len(judged), 'setting')}"
    )
    gains = [verdict(figure) for played in rollouts if (figure := played.gains.get("http-full")) is not None]
    if "wins" not in gains:
        return [f"{said}."]
    return [f"{said}: what gains is one connection with batched typed events and held state, not gRPC as such."]


def played_as_shipped(rollouts: Sequence[Played]) -> list[str]:
    """Returns a sentence for each scenario that was played with no value set differently."""
    said: list[str] = []
    for played in rollouts:
        if played.results.options.overrides or played.scenario.idle is not None:
            continue
        pairs = [(name, played.gains.get(driver)) for driver, name in OTHERS]
        words = [compared(name, figure) for name, figure in pairs if figure is not None]
        if words:
            said.append(f"{played.setting}: append over gRPC is {'; '.join(words)}.")
    return said


def compared(name: str, figure: Interval) -> str:
    """Returns how gRPC compares with one other, such as "**42% faster** (40% to 44%) than HTTP chained"."""
    word = "faster" if figure.value >= 0 else "slower"
    if not known(figure):
        return f"{percent(figure.value)} {word} than {name} in one run, which gives no interval"
    # In the direction of the word, so that a minus says the opposite of it.
    ends = (figure.low, figure.high) if figure.value >= 0 else (-figure.high, -figure.low)
    span = " to ".join(map(_signed, ends))
    if verdict(figure) == "even":
        return f"no different from {name} in a way that matters ({percent(figure.value)} {word}, {span})"
    return f"**{percent(figure.value)} {word}** ({span}) than {name}"


def per_token(costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    """Returns rows of gRPC's cost for each token as a multiple of others', by number of responses at once.

    Args:
        costs: One for each door and number of responses.

    Returns:
        The head, then the rows; nothing where gRPC or all others are missing.
    """
    found = {(cost.door, cost.lanes): cost for cost in costs}
    lanes = sorted(count for door, count in found if door == GRPC)
    rows: list[tuple[str, ...]] = []
    for what, figure in COSTS:
        for other in (*WEBSOCKETS, NATIVE):
            pairs = [(found[GRPC, count], found.get((other, count))) for count in lanes]
            cells = ["" if theirs is None else multiple(figure(ours), figure(theirs)) for ours, theirs in pairs]
            if any(cells):
                rows.append((f"{what}, against {other}", *cells))
    return [("gRPC in one stream; responses at once:", *(f"{count:,}" for count in lanes)), *rows] if rows else []


def multiple(ours: float, theirs: float) -> str:
    """Returns our cost as a multiple of theirs, and who wins: the smaller."""
    if theirs <= 0:
        return ""
    share = ours / theirs
    word = "even" if abs(share - 1) < MATTERS else "wins" if share < 1 else "loses"
    return f"{word}: {number(share, 2)}\u00d7"
