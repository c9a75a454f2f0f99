"""Several engines of one model: chains stay where their cache is, and move only when they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from turnwire.server.engine.tokens.port import (
    Constraint,
    EngineFacts,
    EngineStartError,
    TokenDelta,
    TokenEnd,
    TokenEngine,
    TokenRequest,
    TokenSink,
)
from turnwire.server.engine.tokens.replicas import Replicas
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.routing.health import RoutingPolicy
from turnwire.server.routing.pool import Pool, Routing
from turnwire.server.session.chunks import EngineFailure, FinishReason

Make = Callable[..., Any]
END = TokenEnd(FinishReason.STOP)
LOST = EngineFailure("engine_unavailable", "gone", 1.0)


class Replica:
    """An engine driven by hand; it is its own pass."""

    name = "vllm-grpc"

    def __init__(self, address: str, model: str = "tiny", context: int = 100) -> None:
        self.address = address
        self.said = EngineFacts(model=model, context_length=context)
        self.sinks: list[TokenSink] = []
        self.requests: list[TokenRequest] = []
        self.calls: list[str] = []

    async def facts(self) -> EngineFacts:
        return self.said

    async def disagreement(self, table: TokenTable) -> str:
        return ""

    def start(self, request: TokenRequest, sink: TokenSink) -> Replica:
        self.sinks.append(sink)
        self.requests.append(request)
        return self

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")

    async def aclose(self) -> None:
        self.calls.append("aclose")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pool_of(*replicas: Replica, clock: Clock | None = None, **policy: Any) -> Pool[TokenEngine]:
    members: list[tuple[str, TokenEngine, float]] = [(each.address, each, 1.0) for each in replicas]
    return Pool(members, RoutingPolicy(**policy), Routing(clock=clock or Clock()))


def fleet(count: int = 3, **policy: Any) -> tuple[list[Replica], Replicas, Clock]:
    replicas = [Replica(f"10.0.0.{n}:1") for n in range(count)]
    clock = Clock()
    return replicas, Replicas(pool_of(*replicas, clock=clock, **policy)), clock


def pair_of(replicas: list[Replica]) -> tuple[Replica, Replica]:
    """Returns the replica at work, and the other."""
    (home,) = [each for each in replicas if each.sinks]
    (other,) = [each for each in replicas if not each.sinks]
    return home, other


def test_a_chain_stays_on_its_replica_and_chains_spread(sinks: Make, request_of: Make) -> None:
    replicas, together, _ = fleet()
    for n in range(300):
        for _ in range(2):
            together.start(request_of(routing_key=f"resp_{n}"), sinks())
    taken = Counter({each.address: len(each.sinks) for each in replicas})
    assert all(count % 2 == 0 and count > 100 for count in taken.values())


def test_another_server_with_the_same_replicas_chooses_the_same(sinks: Make, request_of: Make) -> None:
    (first, one, _), (second, other, _) = fleet(), fleet()
    for n in range(20):
        one.start(request_of(routing_key=f"resp_{n}"), sinks())
        other.start(request_of(routing_key=f"resp_{n}"), sinks())
    assert [len(each.sinks) for each in first] == [len(each.sinks) for each in second]


def test_a_pass_that_its_replica_never_began_moves_on_as_if_nothing_had_been(sink: Any, request_of: Make) -> None:
    replicas, together, _ = fleet(2)
    running = together.start(request_of(routing_key="resp_1"), sink)
    home, other = pair_of(replicas)
    running.pause()
    home.sinks[0].ended(LOST)
    assert other.calls == ["pause"]
    running.resume()
    other.sinks[0].output(TokenDelta((7,)))
    other.sinks[0].ended(END)
    assert (sink.ids, sink.outcome) == ([7], END)


def test_a_chain_stays_where_it_moved_to_when_its_old_replica_is_back(sinks: Make, request_of: Make) -> None:
    replicas, together, clock = fleet(2, max_failures=1)
    request = request_of(routing_key="resp_1")
    together.start(request, sinks())
    home, other = pair_of(replicas)
    home.sinks[0].ended(LOST)
    other.sinks[0].output(TokenDelta((7,)))
    clock.now = 1_000.0
    together.start(request, sinks())
    assert (len(home.sinks), len(other.sinks)) == (1, 2)
    # A chain that never moved goes home.
    together.start(request_of(routing_key="resp_1"), sinks())
    assert (len(home.sinks), len(other.sinks)) == (2, 2)


def test_a_pass_that_was_lost_in_the_middle_goes_on_with_what_was_sampled(sink: Any, request_of: Make) -> None:
    replicas, together, _ = fleet(2)
    request = request_of([1, 2, 3], [4], routing_key="resp_1", max_tokens=10, stop=("x",), logprobs=0)
    running = together.start(request, sink)
    home, other = pair_of(replicas)
    home.sinks[0].output(TokenDelta((7, 8), (-0.1, -0.2)))
    running.pause()
    home.sinks[0].ended(LOST)
    (rest,) = other.requests
    assert list(rest.prompt.join()) == [1, 2, 3, 4, 7, 8]
    assert rest.sampling == replace(request.sampling, max_tokens=8)
    assert rest.request_id != request.request_id
    assert other.calls == ["pause"]
    other.sinks[0].output(TokenDelta((9,), (-0.3,)))
    other.sinks[0].ended(
        TokenEnd(FinishReason.STOP, prompt_tokens=6, cached_tokens=5, output_tokens=1, reasoning_tokens=1)
    )
    assert (sink.ids, sink.logprobs) == ([7, 8, 9], [-0.1, -0.2, -0.3])
    # Counted once, as one pass.
    assert sink.outcome == TokenEnd(FinishReason.STOP, prompt_tokens=4, cached_tokens=4, output_tokens=3)


def test_a_pass_goes_on_more_than_once_and_no_longer_than_it_may_try(sink: Any, request_of: Make) -> None:
    replicas, together, _ = fleet(4, max_tries=3)
    together.start(request_of([1], routing_key="resp_1"), sink)
    for token in (5, 6, 7):
        (at_work,) = [each for each in replicas if each.sinks]
        taker = at_work.sinks.pop()
        taker.output(TokenDelta((token,)))
        taker.ended(LOST)
    assert sink.ids == [5, 6, 7]
    assert sink.outcome == LOST
    prompts = [list(request.prompt.join()) for each in replicas for request in each.requests]
    assert sorted(prompts) == [[1], [1, 5], [1, 5, 6]]


@pytest.mark.parametrize(
    "sampling",
    [
        {"constraint": Constraint("json_object")},
        {"seed": 1},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"repetition_penalty": 1.1},
    ],
    ids=str,
)
def test_what_an_engine_knows_beyond_the_ids_is_not_gone_on_with(
    sink: Any, request_of: Make, sampling: dict[str, Any]
) -> None:
    replicas, together, _ = fleet(2)
    together.start(request_of(routing_key="resp_1", **sampling), sink)
    home, other = pair_of(replicas)
    home.sinks[0].output(TokenDelta((7,)))
    home.sinks[0].ended(LOST)
    assert sink.outcome == LOST
    assert other.sinks == []


def test_a_seed_is_no_matter_where_nothing_is_drawn(sink: Any, request_of: Make) -> None:
    replicas, together, _ = fleet(2)
    together.start(request_of(routing_key="resp_1", seed=1, temperature=0.0), sink)
    home, other = pair_of(replicas)
    home.sinks[0].output(TokenDelta((7,)))
    home.sinks[0].ended(LOST)
    assert len(other.sinks) == 1


async def test_tokens_are_not_said_to_be_of_weights_that_they_may_not_be_of(sinks: Make, request_of: Make) -> None:
    for weights, moves in (("w1", False), ("", True)):
        replicas, together, _ = fleet(2)
        for each in replicas:
            each.said = replace(each.said, weight_version=weights)
        await together.facts()
        together.start(request_of(routing_key="resp_1", weights=True), sinks())
        home, other = pair_of(replicas)
        home.sinks[0].output(TokenDelta((7,)))
        home.sinks[0].ended(LOST)
        assert bool(other.sinks) is moves


@pytest.mark.parametrize(
    ("sampling", "outcome"),
    [
        ({"max_tokens": 2}, TokenEnd(FinishReason.LENGTH, 3, output_tokens=2)),
        ({"stop_token_ids": (8,)}, TokenEnd(FinishReason.STOP, 3, output_tokens=2, stop_id=8)),
        ({}, TokenEnd(FinishReason.STOP, 3, output_tokens=2, stop_id=8)),
    ],
    ids=("length", "stop id", "end of the model"),
)
async def test_a_pass_that_was_lost_behind_its_last_token_is_complete(
    sink: Any, request_of: Make, sampling: dict[str, Any], outcome: TokenEnd
) -> None:
    replicas, together, _ = fleet(2)
    if not sampling:
        for each in replicas:
            each.said = replace(each.said, eos_ids=frozenset({8}))
        await together.facts()
    together.start(request_of(routing_key="resp_1", **sampling), sink)
    home, other = pair_of(replicas)
    home.sinks[0].output(TokenDelta((7, 8)))
    home.sinks[0].ended(LOST)
    assert (sink.ids, sink.outcome) == ([7, 8], outcome)
    assert other.sinks == []


def test_all_lost_is_lost_and_a_refusal_does_not_move(sinks: Make, request_of: Make) -> None:
    replicas, together, _ = fleet(2)
    sink = sinks()
    together.start(request_of(routing_key="resp_1"), sink)
    for _ in range(2):
        (trying,) = [each for each in replicas if each.sinks]
        trying.sinks.pop().ended(LOST)
    assert sink.outcome == LOST
    sink = sinks()
    together.start(request_of(routing_key="resp_1"), sink)
    (trying,) = [each for each in replicas if each.sinks]
    refused = EngineFailure("context_length_exceeded", "too long")
    trying.sinks[0].ended(refused)
    assert sink.outcome == refused


def test_an_abort_stops_the_replica_and_the_search(sink: Any, request_of: Make) -> None:
    replicas, together, _ = fleet(2)
    running = together.start(request_of(routing_key="resp_1"), sink)
    home, _ = pair_of(replicas)
    running.abort()
    home.sinks[0].ended(LOST)
    assert home.calls == ["abort"]
    assert sum(len(each.sinks) for each in replicas) == 1
    assert sink.outcome is None


async def test_replicas_must_serve_one_model_and_the_shortest_context_counts() -> None:
    together = Replicas(pool_of(Replica("a:1", context=100), Replica("b:1", context=50)))
    assert (await together.facts()).context_length == 50
    with pytest.raises(EngineStartError, match="at a:1 serves tiny, at b:1 other"):
        await Replicas(pool_of(Replica("a:1"), Replica("b:1", model="other"))).facts()
    await together.aclose()
