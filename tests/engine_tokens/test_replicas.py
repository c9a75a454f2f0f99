"""Several engines of one model: chains stay where their cache is, and move only when they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from turnwire.server.engine.tokens.port import (
    EngineFacts,
    EngineStartError,
    TokenDelta,
    TokenEnd,
    TokenEngine,
    TokenRequest,
    TokenSink,
)
from turnwire.server.engine.tokens.replicas import LOST_FOR, Replicas
from turnwire.server.prompt.parsing import TokenTable
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
        self.calls: list[str] = []

    async def facts(self) -> EngineFacts:
        return self.said

    async def disagreement(self, table: TokenTable) -> str:
        return ""

    def start(self, request: TokenRequest, sink: TokenSink) -> Replica:
        self.sinks.append(sink)
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


def fleet(count: int = 3) -> tuple[list[Replica], Replicas, Clock]:
    replicas = [Replica(f"10.0.0.{n}:1") for n in range(count)]
    clock = Clock()
    engines: list[TokenEngine] = [*replicas]
    return replicas, Replicas(engines, clock), clock


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


def test_a_lost_replica_moves_its_chains_for_a_while_and_no_others(sink: Any, sinks: Make, request_of: Make) -> None:
    replicas, together, clock = fleet(2)
    request = request_of(routing_key="resp_1")
    running = together.start(request, sink)
    (home,) = [each for each in replicas if each.sinks]
    (other,) = [each for each in replicas if not each.sinks]
    running.pause()
    home.sinks[0].ended(LOST)
    assert other.calls == ["pause"]
    running.resume()
    other.sinks[0].output(TokenDelta((7,)))
    other.sinks[0].ended(END)
    assert (sink.ids, sink.outcome) == ([7], END)
    together.start(request, sinks())
    assert (len(home.sinks), len(other.sinks)) == (1, 2)
    clock.now = LOST_FOR + 1
    together.start(request, sinks())
    assert (len(home.sinks), len(other.sinks)) == (2, 2)


def test_what_has_begun_is_not_begun_again(sink: Any, request_of: Make) -> None:
    replicas, together, _ = fleet(2)
    together.start(request_of(routing_key="resp_1"), sink)
    (home,) = [each for each in replicas if each.sinks]
    home.sinks[0].output(TokenDelta((7,)))
    home.sinks[0].ended(LOST)
    assert sink.outcome == LOST
    assert sum(len(each.sinks) for each in replicas) == 1


def test_all_lost_is_lost_and_other_trouble_does_not_move(sinks: Make, request_of: Make) -> None:
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
    (home,) = [each for each in replicas if each.sinks]
    running.abort()
    home.sinks[0].ended(LOST)
    assert home.calls == ["abort"]
    assert sum(len(each.sinks) for each in replicas) == 1
    assert sink.outcome is None


async def test_replicas_must_serve_one_model_and_the_shortest_context_counts() -> None:
    together = Replicas([Replica("a:1", context=100), Replica("b:1", context=50)])
    assert (await together.facts()).context_length == 50
    with pytest.raises(EngineStartError, match="at a:1 serves tiny, at b:1 other"):
        await Replicas([Replica("a:1"), Replica("b:1", model="other")]).facts()
    await together.aclose()
