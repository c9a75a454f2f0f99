"""Several chat upstreams as one: conversations stay, and move as long as nothing has been said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.routing.health import RoutingPolicy
from turnwire.server.routing.pool import Pool, Routing
from turnwire.server.routing.revision import Revision
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import Channel, Chunk, EngineFailure, Finish, FinishReason, PassUsage, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.server.session.transcript import EMPTY, Transcript
from turnwire.v1.response_pb2 import ResponseCreate

WORDS = [TextChunk(Channel.TEXT, "Hello.")]
END = Finish(FinishReason.STOP, PassUsage(input_tokens=3, output_tokens=1))
LOST = EngineFailure("engine_unavailable", "gone", 1.0)


class Kept:
    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.outcomes: list[Finish | EngineFailure] = []

    def output(self, chunks: Sequence[Chunk], /) -> None:
        self.chunks += chunks

    def ended(self, outcome: Finish | EngineFailure, /) -> None:
        self.outcomes.append(outcome)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def spread(*engines: Engine, clock: Clock | None = None, **policy: Any) -> SpreadEngine:
    members = [(f"http://{number}", engine, 1.0) for number, engine in enumerate(engines)]
    return SpreadEngine(Pool(members, RoutingPolicy(**policy), Routing(clock=clock or Clock())))


def begun(key: str) -> Transcript:
    return EMPTY.extend((), frozenset(), chain=Chain(key))


def prompt_of(transcript: Transcript, model: str = "m") -> Prompt:
    return Prompt(1, "resp_x", model, ResponseCreate(), NO_TOOLS, transcript, 0, 1, 0)


def at_work(engines: Sequence[StepEngine]) -> StepEngine:
    (found,) = [each for each in engines if each.passes and not (each.passes[-1].ended or each.passes[-1].aborted)]
    return found


def three(model: str = "m") -> list[StepEngine]:
    return [StepEngine([ModelInfo(model)]) for _ in range(3)]


def test_a_conversation_and_its_forks_stay_and_conversations_spread() -> None:
    engines = three()
    together = spread(*engines)
    used: set[int] = set()
    for number in range(30):
        root = begun(f"resp_{number}")
        counts = [len(engine.passes) for engine in engines]
        for transcript in (root, root.extend((), frozenset()), root.extend((), frozenset()).extend((), frozenset())):
            together.start(prompt_of(transcript), Kept())
        [home] = [at for at, engine in enumerate(engines) if len(engine.passes) > counts[at]]
        assert len(engines[home].passes) == counts[home] + 3
        used.add(home)
    assert used == {0, 1, 2}


@pytest.mark.parametrize(
    "code",
    ["engine_unavailable", "server_is_overloaded", "server_error", "rate_limit_exceeded", "insufficient_quota"],
)
def test_a_pass_of_which_nothing_came_moves_on(code: str) -> None:
    engines, kept = three(), Kept()
    spread(*engines).start(prompt_of(begun("resp_1")), kept)
    at_work(engines).fail(-1, code)
    at_work(engines).emit(-1, WORDS)
    at_work(engines).passes[-1].end(END)
    assert (kept.chunks, kept.outcomes) == (WORDS, [END])


@pytest.mark.parametrize("code", ["invalid_request_error", "context_length_exceeded", "model_not_found"])
def test_what_is_wrong_with_a_request_is_wrong_everywhere(code: str) -> None:
    engines, kept = three(), Kept()
    spread(*engines).start(prompt_of(begun("resp_1")), kept)
    at_work(engines).fail(-1, code)
    assert [outcome.code for outcome in kept.outcomes if isinstance(outcome, EngineFailure)] == [code]
    assert sum(len(each.passes) for each in engines) == 1


def test_what_was_said_is_not_said_again() -> None:
    engines, kept = three(), Kept()
    spread(*engines).start(prompt_of(begun("resp_1")), kept)
    at_work(engines).emit(-1, WORDS)
    at_work(engines).passes[-1].end(LOST)
    assert (kept.chunks, kept.outcomes) == (WORDS, [LOST])
    assert sum(len(each.passes) for each in engines) == 1


def test_a_pass_is_tried_so_often_and_no_more() -> None:
    engines, kept = [*three(), *three()], Kept()
    spread(*engines, max_tries=4).start(prompt_of(begun("resp_1")), kept)
    for _ in range(4):
        assert kept.outcomes == []
        at_work(engines).passes[-1].end(LOST)
    assert kept.outcomes == [LOST]
    assert sum(len(each.passes) for each in engines) == 4


def test_an_abort_ends_the_search() -> None:
    engines, kept = three(), Kept()
    running = spread(*engines).start(prompt_of(begun("resp_1")), kept)
    at_work(engines).passes[-1].end(LOST)
    second = at_work(engines)
    running.abort()
    assert second.passes[-1].aborted
    assert kept.outcomes == []


def test_an_engine_that_cannot_even_start_ends_a_moved_pass_in_order() -> None:
    class Broken(StepEngine):
        def start(self, prompt: Prompt, sink: Any) -> Any:
            msg = "a bug"
            raise RuntimeError(msg)

    well = StepEngine([ModelInfo("m")])
    for number in range(20):
        kept = Kept()
        together = spread(well, Broken([ModelInfo("m")]))
        try:
            together.start(prompt_of(begun(f"resp_{number}")), kept)
        except RuntimeError:
            continue
        well.passes[-1].end(LOST)
        assert [outcome.code for outcome in kept.outcomes if isinstance(outcome, EngineFailure)] == ["server_error"]


def test_a_trial_that_is_aborted_leaves_room_for_the_next() -> None:
    engines, clock = three(), Clock()
    together = spread(*engines[:1], clock=clock, max_failures=1)
    together.start(prompt_of(begun("resp_1")), Kept())
    engines[0].passes[-1].end(LOST)
    clock.now = 1.0
    together.start(prompt_of(begun("resp_1")), Kept()).abort()
    assert together.pool.members[0].health.due(clock.now)
    together.start(prompt_of(begun("resp_1")), Kept())
    engines[0].emit(-1, WORDS)
    assert together.pool.members[0].health.well


async def test_models_go_to_the_upstreams_that_serve_them_as_they_change() -> None:
    class Changing(StepEngine):
        def become(self, *models: ModelInfo) -> None:
            self._models = models

    first, second = Changing([ModelInfo("a"), ModelInfo("m")]), Changing([ModelInfo("b")])
    revision = Revision()
    together = SpreadEngine(Pool([("x", first, 1.0), ("y", second, 1.0)]), revision)
    assert [model.id for model in together.models()] == ["a", "m", "b"]
    for number in range(10):
        for model in ("a", "b"):
            together.start(prompt_of(begun(f"resp_{number}"), model), Kept())
    assert {each.prompt.model for each in first.passes} == {"a"}
    assert {each.prompt.model for each in second.passes} == {"b"}
    second.become(ModelInfo("a"))
    revision.bump()
    for number in range(10):
        together.start(prompt_of(begun(f"resp_new_{number}"), "a"), Kept())
    assert "a" in {each.prompt.model for each in second.passes}
    await together.aclose()
    assert first.closed
    assert second.closed
