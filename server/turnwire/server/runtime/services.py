"""What all sessions of a server share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.ledger.port import Ledger, NoLedger
from turnwire.server.policy.port import RequestPolicy
from turnwire.server.runtime.clock import Clock
from turnwire.server.runtime.guard import Guard
from turnwire.server.runtime.media import MediaRoom
from turnwire.server.sealing import Purpose, Seals
from turnwire.server.session.accounts import Keep
from turnwire.server.session.budget import Budget
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.effects import PassEnded, ResponseEnded
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.session import Session
from turnwire.server.session.switches import ALL_ON, Switches
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.visits import Visits
from turnwire.server.store.port import Store
from turnwire.server.tools.port import HostedTools
from turnwire.v1.ids import IdSource

FEATURES = (
    "append",
    "background",
    "cancel",
    "credit",
    "echo",
    "fork",
    "hosted_tools",
    "inherit",
    "lanes",
    "request_id",
    "rules",
    "steer_held",
    "verbosity",
    "warm_up",
)
"""Features that can be negotiated, each built and tested."""


class Observer(Protocol):
    """Hears what sessions do, for metrics. Every call must be cheap."""

    def session_opened(self, door: str) -> None:
        """A session began."""

    def session_closed(self, door: str) -> None:
        """A session ended."""

    def response_ended(self, ended: ResponseEnded) -> None:
        """A response ended."""

    def pass_ended(self, ended: PassEnded) -> None:
        """A pass ended."""

    def observe_gap(self, gap: float, tokens: int) -> None:
        """Tokens came, `gap` seconds after the ones before them in the same pass."""

    def rejected(self, code: str) -> None:
        """A request was refused."""

    def engine_error(self, code: str) -> None:
        """An engine failed."""

    def credit_stall(self) -> None:
        """An engine was paused because its client did not take the output."""

    def received(self, door: str, size: int) -> None:
        """A message came."""

    def sent(self, door: str, size: int, events: int) -> None:
        """A batch went out."""


class Unobserved:
    """Hears everything and keeps nothing. Spelt out: checkers take a protocol's empty methods for abstract ones."""

    def session_opened(self, door: str) -> None:
        """Ignores it."""

    def session_closed(self, door: str) -> None:
        """Ignores it."""

    def response_ended(self, ended: ResponseEnded) -> None:
        """Ignores it."""

    def pass_ended(self, ended: PassEnded) -> None:
        """Ignores it."""

    def observe_gap(self, gap: float, tokens: int) -> None:
        """Ignores it."""

    def rejected(self, code: str) -> None:
        """Ignores it."""

    def engine_error(self, code: str) -> None:
        """Ignores it."""

    def credit_stall(self) -> None:
        """Ignores it."""

    def received(self, door: str, size: int) -> None:
        """Ignores it."""

    def sent(self, door: str, size: int, events: int) -> None:
        """Ignores it."""


@dataclass(slots=True)
class Services:
    """The ports and settings that every session of a server uses."""

    engines: EngineRegistry
    policy: RequestPolicy
    store: Store
    tools: HostedTools
    clock: Clock
    count_tokens: Callable[[str], int]
    limits: SessionLimits = field(default_factory=SessionLimits)
    observer: Observer = field(default_factory=Unobserved)
    ids: IdSource = field(default_factory=lambda: IdSource(os.urandom))
    tool_sets: ToolSets = field(default_factory=ToolSets)
    seals: Seals = field(default_factory=Seals.fresh)
    """Seals what clients keep for the server; the policy opens it with the same ones."""
    media: MediaRoom = field(default_factory=MediaRoom)
    """Brings images and files that come by URL; by default none."""
    ledger: Ledger = field(default_factory=NoLedger)
    """Records what responses cost, and what those stand for that are stored."""
    server: str = "turnwire"
    batch_window: float | None = None
    """Seconds that tokens after the first wait for company, where a client does not say; None leaves it to the door."""
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    """Live sessions by id, for look-ups of responses that are not stored."""
    visits: Visits = field(default_factory=Visits)
    """What the stages of all sessions' turns looked at so far."""
    conversations: Conversations | None = field(default_factory=lambda: Conversations(os.urandom(32)))
    """What requests are matched against that send their history once more; None matches nothing."""
    guard: Guard = field(default_factory=Guard)
    """Guards responses; by default nothing is looked at."""
    switches: Switches = ALL_ON
    """What is kept from turn to turn."""
    anew: Callable[[Prompt], None] = lambda prompt: None
    """Does before each pass what its switches say is to be done about the whole conversation."""
    budget: Budget = field(default_factory=Budget)
    """What all sessions may keep together; by default each session's own limit is all there is."""
    seal: Callable[[str, bytes], str] = field(init=False)
    """Seals reasoning; one for all sessions, as is what `keep` returns."""
    _keeps: dict[str, Keep] = field(init=False, default_factory=dict[str, Keep])
    started: float = field(init=False)
    """When the server began to serve, in seconds since 1970-01-01 UTC."""

    def __post_init__(self) -> None:
        """Notes the time, and where look-ups of models are noted."""
        self.started = self.clock.wall()
        self.seal = partial(self.seals.seal, Purpose.REASONING)
        self.engines.visits = self.visits

    def keep(self, door: str) -> Keep:
        """Returns what records the responses of sessions behind a door."""
        if door not in self._keeps:
            self._keeps[door] = partial(self.ledger.keep, door)
        return self._keeps[door]
