"""A scenario as values, as it stands in its file.

Above it: `reading`, which fills them, `compiling` and the runner. Below it: nothing. All durations are seconds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    """What a text is shaped like."""

    PROSE = "prose"
    FILE = "file"
    """A source file of a repository."""
    TEST_LOG = "test-log"
    """The output of a test run."""
    SEARCH = "search"
    """Lines that a search found, with file and line."""


@dataclass(frozen=True, slots=True)
class Material:
    """A text to be made."""

    kind: Kind
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a turn; those of one turn run side by side."""

    name: str
    arguments_tokens: int
    """About the tokens of its arguments."""
    time: float
    """What the tool takes."""
    output: Material


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says, and what follows it."""

    reasoning: int
    """Tokens."""
    text: int
    """Tokens."""
    calls: tuple[Call, ...]
    reply: Material
    """What the user says next, where nothing was called and it is not the last turn."""
    think: float
    """How long that takes the user."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the simulated model is."""

    ttft: float
    tokens_per_second: float
    """Infinite for as fast as the machine."""
    burst: int
    """Tokens at once; the rate on average stays."""


@dataclass(frozen=True, slots=True)
class Network:
    """What lies between client and server."""

    rtt: float
    bandwidth: float
    """Bits per second, each way and for each connection; 0 for no limit."""
    slow_start: bool
    """Whether connections begin with a small window and go back to it when they were quiet, as TCP does."""
    tls: bool


@dataclass(frozen=True, slots=True)
class Load:
    """How many rollouts, and when."""

    rollouts: int
    agents: int
    """Closed loop: how many are played at once, each beginning when another has ended."""
    rate: float
    """Open loop: rollouts begun per second on average, at random (Poisson); 0 for a closed loop."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a conversation begins with. Sizes in bytes."""

    instructions: int
    tools: int
    history: int
    message: int


@dataclass(frozen=True, slots=True)
class Output:
    """How much of what the model says is sent, and as what. Transports that cannot do it send more, or leave it out."""

    done_only: bool = False
    """Whether nothing is streamed: what was said comes whole with its end."""
    token_ids: bool = False
    """Whether the ids of all tokens come with it; the public JSON has none."""
    logprobs: bool = False
    """Whether log-probabilities do: of all that was sampled; the public JSON has those of visible text."""


STREAMED: Final = Output()
"""All of it, as text."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a rollout goes on in several lanes at once."""

    after: int
    """Turns before it; the last of them calls nothing."""
    lanes: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Sessions that are open and do nothing, while the rest is measured."""

    sessions: int
    time: float
    """How long they are left alone before memory is read."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A checked scenario."""

    name: str
    description: str
    seed: int
    speed: Speed
    network: Network
    load: Load
    request: Request
    turns: tuple[Turn, ...]
    fork: Fork | None
    idle: Idle | None
    max_seconds: float
    """For one run of one driver; longer ones are stopped."""
    output: Output = STREAMED

    @property
    def tool_calls(self) -> int:
        """Tool calls of one rollout, in one lane."""
        return sum(len(turn.calls) for turn in self.turns)
