"""Through the real core: chains stay with their upstream over turns and forks, and nothing is looked for again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from turnwire.client import Session, connect
from turnwire.server.engine.port import Engine, ModelInfo, Sink
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.policy.prepare import Preparer
from turnwire.server.routing.pool import Pool, Routing
from turnwire.server.session.chain import chain_key
from turnwire.server.session.chunks import Channel, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.testing import make_services, serving

BOUND = 20.0


class Answering(StepEngine):
    """Says a word to everything, at once."""

    def __init__(self) -> None:
        super().__init__([ModelInfo("m")])
        self.keys: list[str] = []

    def start(self, prompt: Prompt, sink: Sink) -> SteppedPass:
        begun = super().start(prompt, sink)
        self.keys.append(prompt.chain.key)

        def answer() -> None:
            begun.emit([TextChunk(Channel.TEXT, "Yes.")])
            self.finish(len(self.passes) - 1)

        asyncio.get_running_loop().call_soon(answer)
        return begun


class Fleet:
    def __init__(self, *, cached: bool = True) -> None:
        self.engines = [Answering() for _ in range(3)]
        members: list[tuple[str, Engine, float]] = [
            (f"http://{at}", engine, 1.0) for at, engine in enumerate(self.engines)
        ]
        self.pool = Pool(members, routing=Routing(cached=cached))
        self.services = make_services([])
        self.services.engines = EngineRegistry([SpreadEngine(self.pool)], cached=cached)
        self.services.engines.visits = self.services.visits
        self.services.policy = Preparer(self.services.engines.resolve, self.services.limits, count=len)

    @property
    def passes(self) -> list[int]:
        return [len(engine.passes) for engine in self.engines]


async def turn(session: Session, previous: str | None = None, **more: Any) -> str:
    async with asyncio.timeout(BOUND):
        stream = await session.create(model="m", input="Go on.", previous_response_id=previous, **more)
        await stream.until_done()
    return stream.id


async def test_a_chain_of_two_hundred_turns_is_placed_once_and_its_model_is_resolved_once() -> None:
    fleet = Fleet()
    async with serving(fleet.services) as address, connect(address) as session:
        last = await turn(session)
        placed, resolved = fleet.pool.scored, fleet.services.engines.looked
        assert placed == 3
        for _ in range(199):
            last = await turn(session, last)
        assert sorted(fleet.passes) == [0, 0, 200]
        assert (fleet.pool.scored, fleet.services.engines.looked) == (placed, resolved)
        visited = fleet.services.visits.items
        assert (visited["route"], visited["resolve"]) == (placed, resolved)


async def test_without_the_cache_every_turn_looks_again_and_finds_the_same() -> None:
    fleet, other = Fleet(cached=False), Fleet()
    for each in (fleet, other):
        async with serving(each.services) as address, connect(address) as session:
            last = await turn(session, prompt_cache_key="thread")
            placed, resolved = each.pool.scored, each.services.engines.looked
            for _ in range(9):
                last = await turn(session, last)
        if each is fleet:
            assert each.pool.scored == 10 * placed
            assert each.services.engines.looked > 9 * resolved
    assert fleet.passes == other.passes


async def test_forks_go_where_their_parent_went_and_chains_spread() -> None:
    fleet = Fleet()
    homes: Counter[int] = Counter()
    async with serving(fleet.services) as address, connect(address) as session:
        for _ in range(24):
            before = fleet.passes
            root = await turn(session)
            middle = await turn(session, root)
            for lane, parent in (("one", root), ("two", root), ("three", middle)):
                await turn(session, parent, lane=lane)
            (home,) = [at for at, count in enumerate(fleet.passes) if count > before[at]]
            homes[home] += 1
    assert set(homes) == {0, 1, 2}


async def test_requests_that_resend_everything_stay_together_by_their_cache_key() -> None:
    fleet = Fleet()
    async with serving(fleet.services) as address, connect(address) as session:
        for _ in range(10):
            await turn(session, prompt_cache_key="thread-1")
        assert sorted(fleet.passes) == [0, 0, 10]
        keys = {key for engine in fleet.engines for key in engine.keys}
        assert keys == {chain_key("", "", "thread-1")}
        # What clients call their threads is nothing for headers, and nothing that others could guess.
        assert "thread-1" not in keys.pop()
    assert chain_key("resp_1", "alice", "t") != chain_key("resp_1", "bob", "t")
    assert chain_key("resp_1", "alice", "") == "resp_1"


async def test_requests_that_resend_a_known_conversation_go_on_with_its_chain() -> None:
    fleet = Fleet()
    async with serving(fleet.services) as address, connect(address) as session:
        said: list[dict[str, str]] = []
        for _ in range(5):
            said.append({"role": "user", "content": "Go on."})
            async with asyncio.timeout(BOUND):
                stream = await session.create(model="m", input=said)
                await stream.until_done()
            said.append({"role": "assistant", "content": "Yes."})
    assert sorted(fleet.passes) == [0, 0, 5]
    assert len({key for engine in fleet.engines for key in engine.keys}) == 1
