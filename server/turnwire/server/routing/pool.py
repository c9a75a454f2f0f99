"""The upstreams of one model, with their weights and their health: who serves a chain.

Above it: `attempt` and the engines made of several upstreams. Below it: `choice` and `health`. Everything happens on
the event loop's thread; time comes from a clock that is handed in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from turnwire.server.routing.choice import score
from turnwire.server.routing.health import POLICY, Health, RoutingPolicy
from turnwire.server.routing.revision import Revision
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import EngineFailure

_log: Final = logging.getLogger(__name__)

E = TypeVar("E")

FAILURES: Final = frozenset({"engine_unavailable", "server_is_overloaded", "server_error"})
"""Codes that say something about the upstream, and count against its health."""

ELSEWHERE: Final = FAILURES | {"rate_limit_exceeded", "insufficient_quota"}
"""Codes after which another upstream may do better."""

MAX_WEIGHT: Final = 1_000_000.0


class RoutingObserver(Protocol):
    """Hears where passes go. Upstreams are named by their configured addresses."""

    def joined(self, upstream: str, /) -> None:
        """An upstream is in use from now on, and counts as well."""

    def left(self, upstream: str, /) -> None:
        """An upstream is not in use any more."""

    def picked(self, upstream: str, /) -> None:
        """A pass goes to an upstream."""

    def failed(self, upstream: str, code: str, /) -> None:
        """An upstream failed a pass."""

    def moved(self, upstream: str, begun: bool, /) -> None:
        """A pass leaves an upstream that failed it for another one, after some of its output where it had begun."""

    def health(self, upstream: str, well: bool, /) -> None:
        """An upstream goes out, or comes back."""


class Unobserved:
    """Hears everything and keeps nothing. Spelt out: checkers take a protocol's empty methods for abstract ones."""

    def joined(self, upstream: str, /) -> None:
        """Ignores it."""

    def left(self, upstream: str, /) -> None:
        """Ignores it."""

    def picked(self, upstream: str, /) -> None:
        """Ignores it."""

    def failed(self, upstream: str, code: str, /) -> None:
        """Ignores it."""

    def moved(self, upstream: str, begun: bool, /) -> None:
        """Ignores it."""

    def health(self, upstream: str, well: bool, /) -> None:
        """Ignores it."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What all pools of a server have in common."""

    cached: bool = True
    """Whether chains go where they were served last, without a choice; else each pass is a choice by its key."""
    observer: RoutingObserver = field(default_factory=Unobserved)
    revision: Revision = field(default_factory=Revision)
    """Grows when an upstream goes out or comes back."""
    clock: Callable[[], float] = time.monotonic
    """Seconds of a clock that never goes back."""


class Member(Generic[E]):
    """One upstream of a pool."""

    __slots__ = ("address", "engine", "health", "weight")

    def __init__(self, address: str, engine: E, weight: float, health: Health) -> None:
        """Takes its address, who speaks with it, its weight and its health."""
        self.address: Final = address
        self.engine: Final = engine
        self.weight = weight
        self.health = health


class Pool(Generic[E]):
    """Equal upstreams."""

    def __init__(
        self,
        upstreams: Iterable[tuple[str, E, float]],
        policy: RoutingPolicy = POLICY,
        routing: Routing | None = None,
    ) -> None:
        """Takes the upstreams.

        Args:
            upstreams: Address, engine and weight of each; at least one.
            policy: When passes move.
            routing: What all pools have in common.
        """
        self._routing: Final = routing or Routing()
        self.policy: Final = policy
        self.members: Final = tuple(
            Member(address, engine, weight, Health(policy)) for address, engine, weight in upstreams
        )
        self._by_address = {member.address: member for member in self.members}
        self._left = False
        self.scored = 0
        """Upstreams looked at so far to make choices: what a chain that stays does not add to."""
        for member in self.members:
            self._routing.observer.joined(member.address)

    def now(self) -> float:
        """The moment."""
        return self._routing.clock()

    def pick(self, chain: Chain, among: Sequence[Member[E]], tried: Collection[Member[E]] = ()) -> Member[E] | None:
        """Chooses for a chain: where it was served last, else who wants it most of those that are well.

        Where none is well, those that are out are better than nothing.

        Args:
            chain: Whose pass it is.
            among: Who may serve it.
            tried: Who failed the pass already.

        Returns:
            None where all were tried.
        """
        now = self.now()
        if self._routing.cached and chain.upstream:
            home = self._by_address.get(chain.upstream)
            if home is not None and home not in tried and home in among and home.health.usable(now):
                return home
        left = [member for member in among if member not in tried]
        self.scored += len(left)
        # The address last, so that those without a weight have an order too.
        return max(
            left,
            key=lambda member: (
                member.health.usable(now),
                score(chain.key, member.address, member.weight),
                member.address,
            ),
            default=None,
        )

    def begin(self, member: Member[E]) -> bool:
        """Notes that a pass goes to a member; returns whether it is a trial."""
        self._routing.observer.picked(member.address)
        return member.health.begin(self.now())

    def served(self, member: Member[E], chain: Chain) -> None:
        """Notes that a member answers a chain, whose prefix it has from now on."""
        chain.upstream = member.address
        self.well(member)

    def well(self, member: Member[E]) -> None:
        """Notes that a member answers."""
        if member.health.succeeded():
            _log.info("the upstream %s is back", member.address)
            self._changed(member, True)

    def failed(self, member: Member[E], failure: EngineFailure, *, trial: bool) -> None:
        """Notes that a member failed a pass."""
        self._routing.observer.failed(member.address, failure.code)
        if failure.code in FAILURES:
            self._count(member, failure, trial=trial)
        elif failure.code in ELSEWHERE:
            if trial:
                member.health.abandoned()
        else:
            # It is the request that is refused, by an upstream that answers.
            self.well(member)

    def checked(self, member: Member[E], failure: EngineFailure | None) -> None:
        """Takes how a member answered when it was asked how it is; None for well."""
        health = member.health
        if failure is None:
            # An upstream may answer questions and fail passes: what passes told of it is not forgotten for that.
            if health.due(self.now()):
                self.well(member)
        else:
            self._count(member, failure, trial=health.due(self.now()))

    def moved(self, member: Member[E], *, begun: bool) -> None:
        """Notes that a pass leaves a member for another."""
        self._routing.observer.moved(member.address, begun)

    def reweigh(self, weights: Sequence[tuple[str, float]]) -> None:
        """Changes the weights of members by their addresses; chains stay where they are."""
        for address, weight in weights:
            self._by_address[address].weight = weight

    def leave(self) -> None:
        """Notes that the pool is not used any more. Idempotent."""
        if self._left:
            return
        self._left = True
        for member in self.members:
            self._routing.observer.left(member.address)

    def _count(self, member: Member[E], failure: EngineFailure, *, trial: bool) -> None:
        was_well = member.health.well
        if not member.health.failed(self.now(), trial=trial, pause=failure.retry_after or 0.0):
            return
        _log.warning("the upstream %s is out: %s", member.address, failure.message)
        if was_well:
            self._changed(member, False)

    def _changed(self, member: Member[E], well: bool) -> None:
        self._routing.revision.bump()
        self._routing.observer.health(member.address, well)
