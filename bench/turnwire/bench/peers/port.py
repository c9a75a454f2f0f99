"""What a gateway is to the measurement: what to install, how to start it, and what it can be asked.

Above it: everything else in this room. Below it: the gateways, one small file for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

Mode = Literal["direct", "unseen", "full", "chained"]
"""`full`: the whole conversation in each request, all but the new item known from the turn before; `chained`: one new
item, behind a stored response; `unseen`: a whole conversation that nobody has heard of; `direct`: the whole
conversation at the upstream itself, with no gateway in between."""
Transport = Literal["sse", "ws", "grpc"]

DIRECT: Final[Mapping[str, str]] = {"chat": "upstream (chat)", "responses": "upstream (responses)"}
"""Names of the upstream without a gateway, by the form in which it is asked."""


class Unavailable(RuntimeError):
    """A gateway cannot be had, does not start, or does not answer as it should; the reason is in the text."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gateway is to run."""

    python: Path
    """Of its environment; its commands are beside it."""
    upstream: str
    """Base URL, without a path."""
    http: int
    """Port to listen at, on the loopback."""
    spare: int
    """One more port, for what else it has."""
    folder: Path
    """Empty, its own, and gone with it."""
    key: str
    """What clients will show, for gateways that insist on one; made for this run alone."""

    def tool(self, name: str) -> str:
        """Returns a command of its environment."""
        return str(self.python.parent / name)


@dataclass(frozen=True, slots=True)
class Launch:
    """How a gateway is started."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beside PATH and HOME, which are all that it gets."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Something that serves the Responses API in front of an inference server."""

    name: str
    launch: Callable[[Place], Launch]
    """May write files into the folder."""
    requirements: tuple[str, ...] = ()
    """What pip is to install, pinned, the gateway itself first; none where it runs in our own environment."""
    chained: tuple[Transport, ...] = ("sse",)
    """How its chained turns can be asked for."""
    model: str = ""
    """Its name for the model; empty for the upstream's own."""
    patience: float = 60.0
    """Seconds that it may take to answer for the first time."""
    stores: str = "memory"
    """Where it keeps responses, as it is run here."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One thing that is measured."""

    gateway: str
    """Or the upstream itself; see `DIRECT`."""
    mode: Mode
    transport: Transport
    history: int
    """Bytes of text in the conversation before the new item."""
