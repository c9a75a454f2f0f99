"""A clock moved by hand, a sink that records, and prompts without a session behind them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.pacing import PacedGeneration
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Chunk, EngineFailure, Finish, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.server.session.transcript import Entry, Origin, Transcript
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.response_pb2 import ResponseCreate


class ManualTimer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Time stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._numbers = 0
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def now(self) -> float:
        return self.time

    def call_at(self, when: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(when, callback)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        return timer

    @property
    def pending(self) -> int:
        """How many timers are set."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def run_to(self, when: float) -> None:
        """Moves on from timer to timer; each is called exactly on time."""
        while self._timers and self._timers[0][0] <= when:
            at, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self.time = max(self.time, at)
                timer.callback()
        self.time = max(self.time, when)

    def run(self, seconds: float) -> None:
        self.run_to(self.time + seconds)

    def oversleep(self, seconds: float) -> None:
        """Moves on at once, as a loop does that was kept busy; then calls whoever was to be called in between."""
        self.time += seconds
        self.run_to(self.time)


@dataclass
class RecordingSink:
    """Keeps what a generation delivers."""

    chunks: list[Chunk] = field(default_factory=list[Chunk])
    deliveries: list[int] = field(default_factory=list[int])
    outcomes: list[Finish | EngineFailure] = field(default_factory=list[Finish | EngineFailure])
    on_output: Callable[[], None] | None = None

    def output(self, chunks: Sequence[Chunk]) -> None:
        assert chunks
        assert not self.outcomes
        self.chunks += chunks
        self.deliveries.append(len(chunks))
        if self.on_output is not None:
            self.on_output()

    def ended(self, outcome: Finish | EngineFailure) -> None:
        self.outcomes.append(outcome)

    @property
    def tokens(self) -> int:
        return sum(0 if isinstance(chunk, CallEnd) else chunk.tokens for chunk in self.chunks)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, TextChunk | CallDelta))

    @property
    def call_ids(self) -> list[str]:
        return [chunk.call_id for chunk in self.chunks if isinstance(chunk, CallStart)]


def make_entry(text: str, origin: Origin = Origin.INPUT) -> Entry:
    message = Message(role=Role.ROLE_USER, content=MessageContent(text=text))
    return Entry(Item(message=message).SerializeToString(), origin, 1)


def make_prompt(
    *, turn: int = 0, newest: str = "", response_id: str = "resp_1", max_output_tokens: int | None = None
) -> Prompt:
    settings = ResponseCreate(max_output_tokens=max_output_tokens)
    transcript = Transcript(None, (make_entry("older"), make_entry(newest)), frozenset(), 0)
    return Prompt(
        pass_id=turn + 1,
        response_id=response_id,
        model="scripted",
        settings=settings,
        transcript=transcript,
        tools=NO_TOOLS,
        turn=turn,
        input_tokens=120,
        cached_tokens=100,
    )


class Stage:
    """A scripted engine on a manual clock."""

    def __init__(self, toml: str, speed: SpeedChange | None = None) -> None:
        self.clock = ManualClock()
        self.engine = ScriptedEngine(load_scenario(toml), clock=self.clock, speed=speed)

    def start(
        self, *, turn: int = 0, newest: str = "", response_id: str = "resp_1", max_output_tokens: int | None = None
    ) -> tuple[RecordingSink, PacedGeneration]:
        sink = RecordingSink()
        prompt = make_prompt(turn=turn, newest=newest, response_id=response_id, max_output_tokens=max_output_tokens)
        return sink, self.engine.start(prompt, sink)

    def play(
        self, *, turn: int = 0, newest: str = "", response_id: str = "resp_1", max_output_tokens: int | None = None
    ) -> RecordingSink:
        sink, _ = self.start(turn=turn, newest=newest, response_id=response_id, max_output_tokens=max_output_tokens)
        self.clock.run(3600)
        assert len(sink.outcomes) == 1
        return sink


MakeStage = Callable[..., Stage]
MakePrompt = Callable[..., Prompt]


@pytest.fixture
def make_stage() -> type[Stage]:
    return Stage


@pytest.fixture
def new_prompt() -> MakePrompt:
    return make_prompt


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()
