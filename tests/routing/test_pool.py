"""Who serves a chain: the one that served it last, else who wants it most of those that are well."""

from __future__ import annotations

from typing import Any

from turnwire.server.routing.health import RoutingPolicy
from turnwire.server.routing.pool import Pool, Routing
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import EngineFailure

LOST = EngineFailure("engine_unavailable", "gone", 1.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Heard:
    """Keeps what a pool tells."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def joined(self, upstream: str, /) -> None:
        self.events.append(("joined", upstream))

    def left(self, upstream: str, /) -> None:
        self.events.append(("left", upstream))

    def picked(self, upstream: str, /) -> None:
        self.events.append(("picked", upstream))

    def failed(self, upstream: str, code: str, /) -> None:
        self.events.append(("failed", upstream, code))

    def moved(self, upstream: str, begun: bool, /) -> None:
        self.events.append(("moved", upstream, begun))

    def health(self, upstream: str, well: bool, /) -> None:
        self.events.append(("health", upstream, well))


def pool_of(*weights: float, cached: bool = True, **policy: Any) -> tuple[Pool[str], Clock, Routing, Heard]:
    clock, heard = Clock(), Heard()
    routing = Routing(cached=cached, clock=clock, observer=heard)
    members = [(f"{name}:1", name, weight) for name, weight in zip("abcdef", weights, strict=False)]
    return Pool(members, RoutingPolicy(**policy), routing), clock, routing, heard


def place(pool: Pool[str], chain: Chain) -> str:
    member = pool.pick(chain, pool.members)
    assert member is not None
    pool.begin(member)
    pool.served(member, chain)
    return member.engine


def take_out(pool: Pool[str], name: str) -> None:
    (member,) = [each for each in pool.members if each.engine == name]
    while member.health.well:
        pool.failed(member, LOST, trial=False)


def test_a_chain_that_was_served_is_not_chosen_for_again() -> None:
    pool, *_ = pool_of(1, 1, 1)
    chain = Chain("resp_1")
    home = place(pool, chain)
    looked = pool.scored
    assert looked == 3
    assert {place(pool, chain) for _ in range(200)} == {home}
    assert pool.scored == looked


def test_without_the_cache_every_pass_is_chosen_for_with_the_same_outcome() -> None:
    pool, *_ = pool_of(1, 1, 1, cached=False)
    cached, *_ = pool_of(1, 1, 1)
    chain = Chain("resp_1")
    assert {place(pool, chain) for _ in range(200)} == {place(cached, Chain("resp_1"))}
    assert pool.scored == 600


def test_an_upstream_that_went_out_gets_nothing_while_others_are_well() -> None:
    pool, clock, routing, heard = pool_of(1, 1, max_failures=3)
    take_out(pool, "a")
    assert {place(pool, Chain(f"resp_{n}")) for n in range(50)} == {"b"}
    assert ("health", "a:1", False) in heard.events
    assert routing.revision.number == 1
    clock.now = 1.0
    # One chain tries it, as the first that wants it.
    tried = 0
    for number in range(50):
        member = pool.pick(Chain(f"resp_{number}"), pool.members)
        assert member is not None
        tried += member.engine == "a"
        pool.begin(member)
    assert tried == 1


def test_where_all_are_out_any_is_better_than_none() -> None:
    pool, *_ = pool_of(1, 1)
    take_out(pool, "a")
    take_out(pool, "b")
    wanted = [pool.pick(Chain(f"resp_{n}"), pool.members) for n in range(50)]
    assert {member.engine for member in wanted if member} == {"a", "b"}
    # And what answers is back at once.
    assert place(pool, Chain("resp_1")) == place(pool, Chain("resp_2"))


def test_an_upstream_without_weight_keeps_its_chains_and_gets_no_more() -> None:
    pool, *_ = pool_of(1, 1)
    chains = [Chain(f"resp_{n}") for n in range(50)]
    before = [place(pool, chain) for chain in chains]
    pool.reweigh([("a:1", 0.0), ("b:1", 1.0)])
    assert [place(pool, chain) for chain in chains] == before
    assert {place(pool, Chain(f"resp_new_{n}")) for n in range(50)} == {"b"}


def test_a_refused_request_says_nothing_about_its_upstream() -> None:
    pool, *_ = pool_of(1, max_failures=1)
    for code in ("invalid_request_error", "context_length_exceeded", "rate_limit_exceeded"):
        pool.failed(pool.members[0], EngineFailure(code, "no"), trial=False)
        assert pool.members[0].health.well


def test_questions_bring_an_upstream_back_only_when_its_time_is_over() -> None:
    pool, clock, *_ = pool_of(1, max_failures=2)
    (member,) = pool.members
    pool.checked(member, LOST)
    pool.checked(member, LOST)
    assert not member.health.well
    pool.checked(member, None)
    assert not member.health.well
    clock.now = 1.0
    pool.checked(member, None)
    assert member.health.well


def test_a_good_answer_to_a_question_does_not_excuse_failed_passes() -> None:
    pool, *_ = pool_of(1, max_failures=2)
    (member,) = pool.members
    pool.failed(member, LOST, trial=False)
    pool.checked(member, None)
    pool.failed(member, LOST, trial=False)
    assert not member.health.well


def test_a_pool_that_leaves_says_so_once() -> None:
    pool, _, _, heard = pool_of(1, 1)
    pool.leave()
    pool.leave()
    assert heard.events == [("joined", "a:1"), ("joined", "b:1"), ("left", "a:1"), ("left", "b:1")]
