"""What a driver is: it opens connections and plays turns of conversations over them.

Above it: `play`, which knows rollouts but no transport. Below it: the drivers.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from turnwire.bench.metrics.turns import Stages


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a user says."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool says."""

    call_id: str
    output: str


New = UserMessage | ToolResult
"""What is new in a turn."""


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call of the model's."""

    call_id: str
    name: str
    arguments: str


IDS: Final = "token ids"
"""Of all that was sampled."""
LOGPROBS: Final = "log-probabilities"
"""Of all that was sampled."""
TEXT_LOGPROBS: Final = "log-probabilities of text"
"""Of visible text alone."""


@dataclass(slots=True)
class Turn:
    """One turn as it is played: drivers fill it."""

    sent: float = 0.0
    """When the client began to write the request; a moment of `time.perf_counter`, as all are."""
    arrivals: list[float] = field(default_factory=list[float])
    """When each delta arrived."""
    done: float = 0.0
    """When the terminal event, or the pause, arrived."""
    text: list[str] = field(default_factory=list[str])
    """Pieces of visible text."""
    calls: list[Called] = field(default_factory=list[Called])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """How many token ids and log-probabilities came, by what they are: `IDS`, `LOGPROBS`, `TEXT_LOGPROBS`; none where
    they were not asked for, or the transport has none."""
    told: Stages | None = None
    """What the server told of its own stages; None where the transport does not."""

    def send(self) -> None:
        """Notes that the request is begun: what it costs to build and serialize it is part of the turn."""
        self.sent = time.perf_counter()


class Failed(RuntimeError):
    """A turn did not end well; the server's own words are in the text."""


class Conversation(Protocol):
    """One chain of turns."""

    async def turn(self, new: Sequence[New]) -> Turn:
        """Plays one turn. Once cancelled or failed, the conversation is over.

        Raises:
            Failed: The server refused it, or it did not complete.
            OSError: The connection broke; so do the errors of aiohttp and gRPC.
        """
        ...

    def fork(self, name: str) -> Conversation:
        """Returns another conversation, in a lane of that name, that goes on from here."""
        ...


class Driver(Protocol):
    """Plays conversations over one transport in one shape."""

    async def open(self, conversations: int) -> None:
        """Connects for so many conversations at the same time. When cancelled, `close` has to follow."""
        ...

    def conversation(self, name: str) -> Conversation:
        """Begins a conversation in a lane of that name: 1 to 64 letters, digits, '_' and '-', unique."""
        ...

    async def close(self) -> None:
        """Disconnects. Cancelling it leaves connections to the garbage collector."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server is reached."""

    grpc: str
    """HOST:PORT."""
    http: str
    """Base URL, without a path."""
    bridge: str
    """Base URL of a bridge beside the client; empty where there is none."""
    ca: str
    """File of the certificate to trust, PEM; empty for plaintext."""

    def tls(self) -> ssl.SSLContext | bool:
        """Returns what aiohttp takes to verify a server by."""
        return ssl.create_default_context(cafile=self.ca) if self.ca else True
