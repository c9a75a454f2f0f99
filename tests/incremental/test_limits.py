"""Conversations that outgrow their model: refused, or left without their beginning, by the running count."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnwire.server.engine.port import ModelInfo, Sink
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.runtime.services import Services
from turnwire.server.session.chunks import Channel, Finish, PassUsage, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.store.memory import MemoryStore
from turnwire.server.testing import make_services

from .fakes import scripted_engine
from .talk import Resender, Talk

SAYS = """
[model]
name = "m"
context_length = 200
[[turn]]
text = "one two three four"
"""
WORDS = "word " * 20


@pytest.fixture
async def services() -> Services:
    return make_services([small()])


def small() -> ScriptedEngine:
    return scripted_engine(SAYS)


async def turns(services: Services, count: int, **body: Any) -> list[int]:
    talk = Talk(services)
    sizes: list[int] = []
    for _ in range(count):
        done = await talk.create(input=WORDS, **body)
        sizes.append(done.usage.input_tokens)
    talk.leave()
    return sizes


async def test_a_conversation_over_its_model_is_refused_and_never_cut_silently(services: Services) -> None:
    talk = Talk(services)

    async def go_on() -> None:
        for _ in range(12):
            await talk.create(input=WORDS, truncation="disabled")

    with pytest.raises(AssertionError, match="context_length_exceeded"):
        await go_on()
    state = talk.runner.session.find(talk.response_id)
    assert state is not None
    assert state.transcript.tokens > 150
    # The chain goes on where there is room: in a shorter question, or with truncation.
    assert (await talk.create(input=WORDS, truncation="auto")).usage.input_tokens < 200
    talk.leave()


async def test_truncation_keeps_a_chain_going_without_end(services: Services) -> None:
    sizes = await turns(services, 40, truncation="auto")
    assert max(sizes) < 200
    assert sizes[-1] > 90
    # It is not cut in every turn: each time leaves room for others.
    cuts = services.visits.items["truncate"]
    assert 0 < cuts < 40 * 12


async def test_room_is_left_for_the_output_that_is_asked_for(services: Services) -> None:
    assert max(await turns(services, 20, truncation="auto", max_output_tokens=80)) < 120


async def test_a_truncated_chain_is_known_when_it_is_resent(services: Services) -> None:
    client = Resender(services)
    cached: list[int] = []
    for _ in range(20):
        done = await client.turn({"role": "user", "content": WORDS}, truncation="auto")
        cached.append(done.usage.input_tokens_details.cached_tokens)
        assert done.usage.input_tokens < 200
    # Only the turn that cuts begins anew.
    assert 0 < cached[1:].count(0) < 8
    with pytest.raises(AssertionError, match="context_length_exceeded"):
        await client.turn({"role": "user", "content": WORDS}, truncation="disabled")


async def test_the_newest_input_alone_can_be_too_much(services: Services) -> None:
    talk = Talk(services)
    with pytest.raises(AssertionError, match="context_length_exceeded"):
        await talk.create(input="word " * 300, truncation="auto")
    talk.leave()


async def test_what_is_listed_of_a_truncated_response_is_what_was_sent(services: Services) -> None:
    talk = Talk(services)
    for _ in range(12):
        await talk.create(input=WORDS, truncation="auto")
    state = talk.runner.session.find(talk.response_id)
    assert state is not None
    assert len(state.input_items()) == 1
    assert len(state.output) == 1
    assert state.transcript.truncated
    talk.leave()


@pytest.mark.parametrize("shortened", ["truncation", "compaction"])
async def test_what_was_sent_and_left_out_counts_as_kept_for_who_lists_it(shortened: str) -> None:
    store = MemoryStore(max_bytes=500_000 if shortened == "truncation" else 250_000)
    services = make_services([scripted_engine(SAYS.replace("200", "20000"))], store=store)
    talk = Talk(services)
    said = [{"role": "assistant", "content": f"{number} " + "word " * 2_000} for number in range(60)]
    if shortened == "truncation":
        body: dict[str, Any] = {"truncation": "auto"}
    else:
        body = {"context_management": [{"type": "compaction", "compact_threshold": 1_000}]}
        said = said[:9]
    ids: list[str] = []
    for number in range(4):
        items = [*said, {"role": "user", "content": f"go {number}"}]
        await talk.create(input=items, previous_response_id=None, **body)
        ids.append(talk.response_id)
    state = await store.get("", ids[-1])
    assert state is not None
    assert len(state.input_items()) == len(said) + 1
    sent = sum(len(entry.data) for entry in state.brought())

    assert await store.get("", ids[0]) is None
    assert services.budget.shared.total > sent > state.transcript.bytes
    talk.leave()


class Counted(StepEngine):
    """An engine that tells what its model counted, which is not what the server counts."""

    def __init__(self, times: float) -> None:
        super().__init__([ModelInfo("m", context_length=200)])
        self._times = times

    def start(self, prompt: Prompt, sink: Sink) -> SteppedPass:
        started = super().start(prompt, sink)
        counted = int(prompt.input_tokens * self._times)

        def say() -> None:
            sink.output([TextChunk(Channel.TEXT, "one two three four", 4)])
            sink.ended(Finish(usage=PassUsage(input_tokens=counted, output_tokens=4)))

        asyncio.get_running_loop().call_soon(say)
        return started


async def test_what_the_engine_counted_makes_refusals_needless_and_truncations_longer() -> None:
    # A model that counts half as much takes nearly twice as much.
    assert sum(1 for _ in await turns(make_services([Counted(0.5)]), 9)) == 9
    # One that counts half again as much is given less.
    assert max(await turns(make_services([Counted(1.5)]), 30, truncation="auto")) < 240
