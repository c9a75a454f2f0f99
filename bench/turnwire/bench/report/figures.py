"""The figures of each kind of measurement as values, by the words of the modules that measure.

Above it: the report's sections. Below it: the folder. A file whose figures have another shape is told as broken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, cast

import msgspec

from turnwire.bench.ablation import Figure
from turnwire.bench.doors_cost import Cost
from turnwire.bench.folder import Broken, Folder, Found
from turnwire.bench.measured import Measured

T = TypeVar("T")

Spread = list[float]
"""A figure, or a figure and the ends of its interval of 95%; see `intervals.taken`."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Server work of a continued turn after some history; microseconds."""

    median_us: float
    low_us: float = -math.inf
    high_us: float = math.inf
    visited: dict[str, float] = field(default_factory=dict[str, float])
    """What each stage looked at."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Of kind `turns`, by KB of history."""

    items: dict[int, Turn]
    harmony: dict[int, Turn]


@dataclass(frozen=True, slots=True)
class Doors:
    """Of kind `doors`."""

    costs: list[Cost]


@dataclass(frozen=True, slots=True)
class PaceLine:
    """One driver at one speed."""

    driver: str
    tokens_per_second: float
    burst: int
    tokens: int
    rate: float
    """Achieved, as a share of what was set."""
    delay_p50_ms: float
    delay_p99_ms: float
    engine_p99_ms: float
    net_p99_ms: float
    """The delay net of the engine's own."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Of kind `pace`."""

    lines: list[PaceLine]


@dataclass(frozen=True, slots=True)
class Idle:
    """Bytes of one idle session."""

    shared_connection: float
    own_connection: float
    objects: float
    """Of it, the session's own objects."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of one long conversation."""

    items: float
    """One copy of its items."""
    counted: float
    beside: float
    """What is kept beside that copy."""
    process: float
    """What the process grows by."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of kind `memory`."""

    idle: Idle
    conversations: dict[str, Kept]


@dataclass(frozen=True, slots=True)
class Ablation:
    """Of kind `ablation`."""

    order: list[str]
    figures: list[Figure]


@dataclass(frozen=True, slots=True)
class PeerLine:
    """One gateway, asked in one way over one transport after some history."""

    gateway: str
    version: str
    mode: str
    """`full` or `chained`."""
    transport: str
    history: float
    """Bytes."""
    requests: int
    failed: int
    ttft_ms: Spread
    total_ms: Spread
    added_ttft_ms: Spread
    memory_mb: float
    cpu_ms: float | None = None
    """Of a request; None where it could not be told."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A long chain of stored turns behind one gateway."""

    gateway: str
    turns: int
    """Played."""
    messages: int = 0
    """That the upstream got in the last turn."""
    expected: int = 0
    """That it had to get."""
    wrong_from: int | None = None
    """The first turn in which it got something else."""
    refused: str = ""
    """Why there was no more answer."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Of kind `peers`."""

    lines: list[PeerLine]
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Why, by gateway."""
    chains: list[Chain] = field(default_factory=list[Chain])


@dataclass(frozen=True, slots=True)
class Soak:
    """Of kind `soak`."""

    samples: list[tuple[float, float, float]]
    """Seconds, rollouts, resident bytes."""
    growth_bytes_per_rollout: Spread
    flat: bool


SHAPES: Final[dict[str, type[object]]] = {
    "turns": Turns,
    "doors": Doors,
    "pace": Pace,
    "memory": Memory,
    "ablation": Ablation,
    "peers": Peers,
    "soak": Soak,
}


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A measurement with its figures."""

    found: Found[Measured]
    figures: T


@dataclass(slots=True)
class Measurements:
    """The latest whole measurement of each kind."""

    by_kind: dict[str, Read[object]] = field(default_factory=dict[str, Read[object]])
    broken: list[Broken] = field(default_factory=list[Broken])
    left_out: list[Broken] = field(default_factory=list[Broken])
    """Older ones, and those that did not come to their end."""

    def of(self, shape: type[T]) -> Read[T] | None:
        """Returns the measurement of a kind, by its shape."""
        kind = next(kind for kind, known in SHAPES.items() if known is shape)
        return cast("Read[T] | None", self.by_kind.get(kind))


def measurements(folder: Folder) -> Measurements:
    """Reads the figures of a folder's measurements."""
    made = Measurements()
    for kind, shape in SHAPES.items():
        for found in folder.of(kind):
            if kind in made.by_kind:
                made.left_out.append(
                    Broken(found.name, f"older than {made.by_kind[kind].found.name}, of the same kind")
                )
                continue
            try:
                figures = msgspec.convert(found.content.figures, type=shape, strict=False)
            except msgspec.ValidationError as error:
                made.broken.append(Broken(found.name, f"figures of kind {kind}: {error}"))
            else:
                made.by_kind[kind] = Read(found, figures)
    made.left_out += [
        Broken(found.name, f"it did not come to its end: {found.content.ended}")
        for found in folder.measured
        if found.content.ended != "complete"
    ]
    return made
