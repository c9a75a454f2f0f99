"""What each suite measures: data, and nothing else.

Above it: the command. Below it: nothing. A step is a measuring module with its options; its file's name is its own. A
file of one suite serves the others, so steps of one name differ in no more than drivers and repetitions of rollouts.
The times are what a step takes on two cores, and only there for the estimate of what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement."""

    name: str
    """Also that of its file, without the ending."""
    module: str
    """Of `turnwire.bench`; it takes `--out FILE`."""
    arguments: tuple[str, ...]
    seconds: float
    """About what it takes."""

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.json"


@dataclass(frozen=True, slots=True)
class Suite:
    """Steps in order."""

    about: str
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """About what all of it takes."""
        return sum(step.seconds for step in self.steps)


_START: Final = 3.0
"""Seconds that processes take to start: once for verification, and once for each repetition."""
_VERIFY: Final = 1.5
"""Seconds that it takes to verify a driver."""


def rollouts(name: str, scenario: str, drivers: Sequence[str], repeat: int, each: float, *options: str) -> Step:
    """Returns a step of rollouts, of which one run takes about `each` seconds."""
    names = ",".join(drivers)
    seconds = _START + _VERIFY * len(drivers) + repeat * (_START + len(drivers) * (each + 1.0))
    return Step(name, "run", (scenario, "--drivers", names, "--repeat", str(repeat), *options), seconds)


def _doors(name: str, doors: Sequence[str], seconds: float, *options: str) -> Step:
    only = [word for door in doors for word in ("--only", door)]
    return Step(name, "doors", (*options, *only), seconds)


HEADLINE: Final = ("grpc-append", "native-append", "ws-append", "http-full", "http-full-new")
"""Encoding, transport and shape told apart by as few drivers as can be, and both kinds of stateless HTTP."""
FEW: Final = ("grpc-append", "ws-append", "http-chained", "http-full")
_FEWEST: Final = ("grpc-append", "ws-append", "http-full")
MAPPED: Final = (*HEADLINE, "ws-create", "http-chained")
"""Whom the map of what matters compares."""
_BUDGET_DOORS: Final = (
    "gRPC, one stream",
    "WebSocket, 16 lanes a socket",
    "WebSocket, a socket each",
    "WebSocket, one socket",
    "WebSocket, 16 lanes, deflate",
    "WebSocket turnwire.v1, one socket",
)
_DOORS_OPTIONS: Final = ("--lanes", "1,200", "--speed", "100", "--tokens", "100", "--clients", "parsing")

_BENCH: Final = Suite(
    "budgets P1 to P7 and the headline comparison, at a reduced size",
    (
        Step("turns", "turns", ("--runs", "5", "--turns", "30"), 30),
        Step("memory", "memory", (), 25),
        Step("ablation", "ablation", ("--together", "--turns", "20"), 25),
        Step("pace", "pace", ("--drivers", "null,grpc-append,ws-append", "--tokens", "2000"), 45),
        _doors("doors", _BUDGET_DOORS, 75, *_DOORS_OPTIONS, "--runs", "3"),
        rollouts("codex-fix", "codex-fix", HEADLINE, 3, 6.6),
    ),
)

_SPEEDS: Final = {"65": ("--turns", "5"), "1000": (), "4000": ()}
"""Tokens a second, and how the rollout is shortened."""
_TRIPS: Final = ("0ms", "20ms", "50ms", "100ms")
_TOOK: Final = {"65": 7.0, "1000": 5.0, "4000": 3.5}
"""Seconds of a run of codex-fix without a network, by speed."""
_TURNS: Final = {"65": 5, "1000": 29, "4000": 29}
_HISTORIES: Final = {"1KiB": 1.0, "100KiB": 1.0, "1MiB": 1.5, "10MiB": 4.0}
"""History at the start, and seconds of a run without a network."""
_CORNERS: Final = (("1KiB", "20ms"), ("1KiB", "100ms"), ("1MiB", "100ms"))
"""Where turns are measured over a way with TLS and TCP's window: what a fit needs at least."""


def _grid() -> list[Step]:
    steps: list[Step] = []
    for speed, shortened in _SPEEDS.items():
        for trip in _TRIPS:
            if (speed, trip) == ("1000", "50ms"):
                # That is the scenario as it is shipped, and a step of its own.
                continue
            each = _TOOK[speed] + _TURNS[speed] * float(trip.removesuffix("ms")) / 1000
            options = ("--tps", speed, "--rtt", trip, *shortened)
            steps.append(rollouts(f"codex-{speed}tps-{trip}", "codex-fix", _FEWEST, 3, each, *options))
    return steps


def _histories() -> list[Step]:
    """Returns what turns cost by history and round trip, to which the map is fitted."""
    return [
        rollouts(
            f"history-{size}-{trip}",
            "long-history",
            FEW if size == "10MiB" else MAPPED,
            3 if size == "10MiB" else 5,
            each + 11 * float(trip.removesuffix("ms")) / 1000,
            *("--history", size, "--rtt", trip),
        )
        for size, each in _HISTORIES.items()
        for trip in ("0ms", "100ms")
        # One history between the shortest and a long one tells whether the cost is a straight line.
        if (size, trip) != ("100KiB", "100ms")
    ]


def _held_out() -> list[Step]:
    """Returns what the map's prediction is held against beside other steps: long and fast, between what was fitted."""
    far = ("--rtt", "50ms", "--tps", "4000")
    return [
        rollouts("map-1MiB", "long-history", MAPPED, 3, 2.0, "--history", "1MiB", *far),
        rollouts("map-300KiB", "long-history", MAPPED, 3, 1.5, "--history", "300KiB", *far),
    ]


def _secure() -> list[Step]:
    """Returns the same over a way with TLS and TCP's window, where bytes and connections cost most."""
    way = ("--tls", "--slow-start")
    return [
        *(
            rollouts(f"tls-{size}-{trip}", "long-history", MAPPED, 3, 3.0, "--history", size, "--rtt", trip, *way)
            for size, trip in _CORNERS
        ),
        rollouts("codex-tls", "codex-fix", MAPPED, 3, 8.0, *way),
        # Neither encrypted nor far: the line of a home, on which bytes cost time.
        rollouts("codex-20mbit", "codex-fix", FEW, 3, 8.5, "--bandwidth-mbit", "20"),
        # Slow enough for the window to close while the model speaks.
        rollouts("codex-tls-250tps", "codex-fix", MAPPED, 2, 6.0, "--tps", "250", "--turns", "8", *way),
    ]


_FULL: Final = Suite(
    "budgets P1 to P7 at full size, speeds, round trips, histories, TLS, lanes and bursts",
    (
        Step("turns-full", "turns", (), 60),
        Step("memory", "memory", (), 25),
        Step("ablation-full", "ablation", (), 120),
        Step("pace-full", "pace", (), 110),
        Step("doors-full", "doors", (*_DOORS_OPTIONS[2:], "--lanes", "1,16,64,200"), 320),
        rollouts("codex-fix", "codex-fix", (*HEADLINE, "grpc-create", "ws-create", "http-chained"), 5, 6.6),
        *_grid(),
        *_histories(),
        *_held_out(),
        *_secure(),
        rollouts("chat-short", "chat-short", FEW, 3, 6.0),
        rollouts("subagents", "subagents", FEW, 3, 3.5),
        rollouts("burst", "burst", FEW, 3, 1.5),
    ),
)

_FLEET: Final = Suite(
    "200 agents of one client process, and 512 of a trainer's",
    (
        rollouts("fleet", "fleet", (*FEW, "ws-each", "native-append"), 3, 12.0),
        rollouts("rl", "rl", ("grpc-append", "native-append", "http-full"), 2, 75.0, "--turns", "12"),
    ),
)
_IDLE: Final = Suite(
    "thousands of sessions that are open and quiet",
    (rollouts("idle", "idle", ("grpc-append", "ws-append", "native-append"), 1, 40.0),),
)
_SOAK: Final = Suite(
    "rollouts for minutes, while memory has to stay flat", (Step("soak", "soak", ("--seconds", "600"), 620),)
)

SUITES: Final[Mapping[str, Suite]] = {
    "bench": _BENCH,
    "full": _FULL,
    "fleet": _FLEET,
    "idle": _IDLE,
    "soak": _SOAK,
}
"""By name."""
