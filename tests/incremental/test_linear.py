"""A turn looks at what is new: proved by counting what each stage visits, never by a clock."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import pytest

from turnwire.server.engine.port import Engine
from turnwire.server.runtime.services import Services
from turnwire.server.session.transcript import Entry, Transcript
from turnwire.server.testing import make_services
from turnwire.v1.response_pb2 import DoneReason

from .fakes import LOOP, LoopingTokens, Upstream, chat_engine, scripted_engine, token_engine
from .talk import Resender, Talk, calls_of, output_for

TURNS = 200


class Walks:
    """Counts what the instrumentation does not: steps through segments and items parsed from bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.parsed = 0
        segments, item = Transcript.segments, Entry.item

        def counted_segments(transcript: Transcript) -> Iterator[Transcript]:
            for segment in segments(transcript):
                self.steps += 1
                yield segment

        def counted_item(entry: Entry) -> Any:
            self.parsed += 1
            return item(entry)

        monkeypatch.setattr(Transcript, "segments", counted_segments)
        monkeypatch.setattr(Entry, "item", counted_item)

    def take(self) -> tuple[int, int]:
        taken = self.steps, self.parsed
        self.steps = self.parsed = 0
        return taken


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    return Walks(monkeypatch)


@pytest.fixture(params=["scripted", "tokens", "chat"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    match request.param:
        case "scripted":
            yield scripted_engine(LOOP)
        case "tokens":
            made = token_engine(LoopingTokens())
            yield made
            await made.aclose()
        case _:
            async with chat_engine(Upstream()) as over_http:
                yield over_http


Turns = list[tuple[dict[str, int], tuple[int, int]]]


def check_flat(turns: Turns, *, of_history: frozenset[str] = frozenset(), steps: int = 40) -> None:
    """Checks that no turn but the first visits more than the one after it, in any stage but some."""
    first, *rest = turns
    del first
    usual = {stage: count for stage, count in rest[0][0].items() if stage not in of_history}
    for visited, (walked, parsed) in rest:
        assert {stage: count for stage, count in visited.items() if stage not in of_history} == usual
        assert walked <= steps
        assert parsed <= 4


async def test_a_chained_turn_visits_what_is_new(engine: Engine, walks: Walks) -> None:
    services = make_services([engine])
    talk = Talk(services)
    turns: Turns = []
    done = await talk.create(input="begin")
    for _ in range(TURNS):
        before = dict(services.visits.items)
        walks.take()
        (call,) = calls_of(done)
        done = await talk.create(input=[output_for(call)])
        turns.append((services.visits.since(before), walks.take()))
    check_flat(turns)
    assert turns[-1][0]["validate"] == turns[-1][0]["pair"] == turns[-1][0]["count"] == 1
    talk.leave()


async def test_a_held_turn_visits_what_is_new(engine: Engine, walks: Walks) -> None:
    services = make_services([engine])
    talk = Talk(services)
    turns: Turns = []
    done = await talk.create(input="begin", hold=True)
    for _ in range(TURNS):
        assert done.reason == DoneReason.DONE_REASON_TOOL_CALLS
        before = dict(services.visits.items)
        walks.take()
        (call,) = calls_of(done)
        done = await talk.append(call)
        turns.append((services.visits.since(before), walks.take()))
    check_flat(turns)
    talk.leave()


async def test_a_resent_turn_visits_what_is_new_but_for_looking_at_what_was_sent(engine: Engine, walks: Walks) -> None:
    services = make_services([engine])
    client = Resender(services)
    turns: Turns = []
    done = await client.turn({"role": "user", "content": "begin"})
    for _ in range(TURNS):
        before = dict(services.visits.items)
        walks.take()
        (call,) = calls_of(done)
        done = await client.turn(output_for(call))
        turns.append((services.visits.since(before), walks.take()))
        sent = turns[-1][0].pop("match")
        assert sent == len(client.history) - len(done.output)
    # A session of its own holds what it goes on from; that much and no more.
    check_flat(turns, steps=400)
    assert turns[-1][0]["validate"] == 1


async def test_a_stored_turn_finds_its_history_and_walks_none_of_it(engine: Engine, walks: Walks) -> None:
    services = make_services([engine])
    done, previous = await _apart(services, None, "begin")
    turns: Turns = []
    for number in range(TURNS):
        before = dict(services.visits.items)
        walks.take()
        (call,) = calls_of(done)
        done, previous = await _apart(services, previous, [output_for(call)])
        turns.append((services.visits.since(before), walks.take()))
        assert turns[-1][0].pop("hydrate") >= number
    check_flat(turns, steps=400)


@contextmanager
def counted_lines(counts: list[int]) -> Generator[None, None, None]:
    """Counts the lines of the server's code that run within the block: loops over anything at all show."""
    counts.append(0)

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if "/turnwire/server/" not in frame.f_code.co_filename:
            return None
        counts[-1] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("kind", ["scripted", "tokens"])
@pytest.mark.parametrize("held", [False, True])
async def test_a_late_turn_runs_as_many_lines_as_an_early_one(kind: str, held: bool) -> None:
    tokens = token_engine(LoopingTokens())
    services = make_services([scripted_engine(LOOP) if kind == "scripted" else tokens])
    talk = Talk(services)
    done = await talk.create(input="begin", hold=held)
    counts: list[int] = []
    for number in range(1_000):
        (call,) = calls_of(done)
        with counted_lines(counts) if number in (10, 999) else nullcontext():
            done = await (talk.append(call) if held else talk.create(input=[output_for(call)]))
    early, late = counts
    assert late <= 1.05 * early
    talk.leave()
    await tokens.aclose()


async def _apart(services: Services, previous: str | None, given: Any) -> tuple[Any, str]:
    talk = Talk(services)
    done = await talk.create(input=given, previous_response_id=previous)
    talk.leave()
    return done, talk.response_id


async def test_after_a_final_answer_the_turn_before_is_gone_through_once_more_and_nothing_else(walks: Walks) -> None:
    tokens = LoopingTokens(final_every=4)
    engine = token_engine(tokens)
    services = make_services([engine])
    talk = Talk(services)
    done = await talk.create(input="begin")
    rendered: list[int] = []
    for _ in range(TURNS):
        before = services.visits.items["render"], services.visits.sizes["tokenize"]
        walks.take()
        calls = calls_of(done)
        given: Any = [output_for(calls[0])] if calls else "go on"
        done = await talk.create(input=given)
        rendered.append(services.visits.items["render"] - before[0])
        assert services.visits.sizes["tokenize"] - before[1] < 400
        assert walks.take()[0] <= 24
    assert max(rendered) <= 2 * 4
    talk.leave()
    await engine.aclose()


async def test_a_changed_prefix_costs_one_rendering_and_then_nothing() -> None:
    engine = token_engine(LoopingTokens())
    services = make_services([engine])
    talk = Talk(services)
    done = await talk.create(input="begin", instructions="one")
    rendered: list[int] = []
    for number in range(40):
        before = services.visits.items["render"]
        (call,) = calls_of(done)
        done = await talk.create(input=[output_for(call)], instructions="one" if number < 20 else "two")
        rendered.append(services.visits.items["render"] - before)
    usual = rendered[0]
    assert [count for number, count in enumerate(rendered) if number != 20] == [usual] * 39
    assert rendered[20] > usual
    talk.leave()
    await engine.aclose()


async def test_what_is_visited_is_told_of_a_session_and_of_all(engine: Engine) -> None:
    services = make_services([engine])
    one, other = Talk(services), Talk(services)
    await one.create(input="begin")
    await other.create(input=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    assert one.runner.session.visits.items["validate"] == 1
    assert other.runner.session.visits.items["validate"] == 2
    assert services.visits.items["validate"] == 3
    with pytest.raises(KeyError):
        services.visits.note("nonsense", 1)
    one.leave()
    other.leave()
