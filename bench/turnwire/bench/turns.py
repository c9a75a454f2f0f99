"""What a continued turn costs the server before inference: from the event's bytes to the prompt in the engine's hands.

Runs the real core, policy, safety rules and runtime in this process, with engines that answer nothing, so that only the
server's own work is measured: in front of an engine that takes prompts as they are, and of a token engine, for which
they are rendered. What each stage looks at in a turn is counted too. Run with `python -m turnwire.bench.turns --out F`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from turnwire.bench.command import apart, bar, screen, stoppable, typed
from turnwire.bench.measured import measuring
from turnwire.bench.turns_figures import behind, figures, table
from turnwire.server.engine.port import Engine, Generation, ModelInfo, Sink
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.tokens.port import EngineFacts, TokenDelta, TokenEnd, TokenRequest, TokenSink
from turnwire.server.engine.tokens.rendered import RenderedEngine
from turnwire.server.engine.tokens.rendering import ChainRenderer
from turnwire.server.policy.port import RequestPolicy
from turnwire.server.policy.prepare import Preparer
from turnwire.server.policy.safety.matcher import Terms
from turnwire.server.policy.safety.opening import open_safety
from turnwire.server.policy.safety.patterns import read_pattern
from turnwire.server.policy.safety.rules import Category, SafetyConfig
from turnwire.server.policy.safety.screening import ScreeningPolicy
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.runtime.clock import LoopClock
from turnwire.server.runtime.guard import Guard
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.server.session.chunks import Channel, Finish, FinishReason, TextChunk
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.prompt import Prompt
from turnwire.server.store.memory import MemoryStore
from turnwire.server.tools.port import NoHostedTools
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import FunctionCall, FunctionCallOutput, Item, Message, MessageContent, Role, ToolOutput
from turnwire.v1.response_pb2 import Input, InputItems, ResponseCreate

HISTORIES: Final = (1, 100, 1024)
"""History at the start of a turn, in KB."""
LONG: Final = (*HISTORIES, 10 * 1024)
"""The same, with one that few models could read."""

_MODEL: Final = "null"
_PIECE: Final = 1024
_WORDS: Final = "the quick brown fox jumps over the lazy dog and reads one more line of the log "
_ANSWER: Final = "<|channel|>analysis<|message|>Go on.<|end|><|start|>assistant<|channel|>final<|message|>ok<|return|>"
_PER_CREATE: Final = 512
"""Messages that one request brings while the history is built."""


class _Held(Generation):
    """A pass that does nothing."""

    def pause(self) -> None:
        """Does nothing."""

    def resume(self) -> None:
        """Does nothing."""

    def abort(self) -> None:
        """Does nothing."""


class _Hands:
    """Where an engine takes prompts, and how the caller ends its passes."""

    def __init__(self) -> None:
        self.handed_over = 0.0
        self.taken = asyncio.Event()
        self.model = ""

    def take(self) -> None:
        """Notes that a prompt is in the engine's hands."""
        self.handed_over = time.perf_counter()
        self.taken.set()

    def answer(self) -> None:
        """Ends the pass that was begun last."""


class NullEngine(_Hands):
    """Takes prompts as they are."""

    name = "null"

    def models(self) -> Sequence[ModelInfo]:
        """Lists its one model."""
        return (ModelInfo(_MODEL),)

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Takes a prompt."""
        del prompt
        self.take()
        self._sink = sink
        return _Held()

    def answer(self) -> None:
        """Ends the pass that was begun last."""
        self._sink.output((TextChunk(Channel.TEXT, "ok"),))
        self._sink.ended(Finish())

    async def aclose(self) -> None:
        """Has nothing to close. Safe to cancel."""


class _NullTokens(_Hands):
    """Takes prompts as tokens."""

    name = "null"
    address = "nowhere"

    def __init__(self) -> None:
        super().__init__()
        self._ids = array("I", vocabulary.encoding().encode(_ANSWER, allowed_special="all"))

    async def facts(self) -> EngineFacts:
        """Says what there is to say. Safe to cancel."""
        return EngineFacts(model=_MODEL)

    async def disagreement(self, table: TokenTable) -> str:
        """Agrees. Safe to cancel."""
        del table
        return ""

    def start(self, request: TokenRequest, sink: TokenSink) -> _Held:
        del request
        self.take()
        self._sink = sink
        return _Held()

    def answer(self) -> None:
        self._sink.output(TokenDelta(self._ids))
        self._sink.ended(TokenEnd(FinishReason.STOP, stop_id=self._ids[-1]))

    async def aclose(self) -> None:
        """Has nothing to close. Safe to cancel."""


def _rendered(tokens: _NullTokens) -> Engine:
    table = TokenTable.from_tiktoken(vocabulary.encoding())
    return RenderedEngine(tokens, EngineFacts(model=_MODEL), ChainRenderer(HarmonyRenderer()), "harmony", table)


def _guarded(checks: RequestPolicy) -> tuple[RequestPolicy, Guard]:
    """Returns checks and a guard that look for a thousand words and some patterns."""
    words = tuple(f"forbidden{number}" for number in range(1_000))
    patterns = tuple(map(read_pattern, ("AKIA[0-9A-Z]{16}", "ghp_[0-9A-Za-z]{36}")))
    opened = open_safety(SafetyConfig(True, (Category("secrets", Terms(words, patterns, waits=True)),)))
    assert opened.screener is not None
    return ScreeningPolicy(checks, opened.screener), Guard(opened.safety)


def make_services(engine: Engine) -> Services:
    """Returns what sessions share, as a server has it: with safety rules, without a data directory."""
    registry = EngineRegistry((engine,))
    limits = SessionLimits()
    policy, guard = _guarded(Preparer(registry.resolve, limits, count=vocabulary.count))
    return Services(
        engines=registry,
        policy=policy,
        guard=guard,
        store=MemoryStore(),
        tools=NoHostedTools(),
        clock=LoopClock(),
        count_tokens=vocabulary.count,
        limits=limits,
    )


def pieces(kilobytes: int) -> list[Input]:
    """Returns a conversation of about that size in messages of 1 KB, as an agent's tool outputs would be, in requests
    of at most half a megabyte."""
    text = (_WORDS * (_PIECE // len(_WORDS) + 1))[:_PIECE]
    items: list[Item] = [Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=text)))]
    for number in range(1, kilobytes):
        call = FunctionCall(call_id=f"call_{number}", name="look", arguments="{}")
        output = FunctionCallOutput(call_id=f"call_{number}", output=ToolOutput(text=text))
        items += (Item(function_call=call), Item(function_call_output=output))
    count = 2 * _PER_CREATE
    # A call stands in one request with its output.
    cuts = [0, *range(count + 1, len(items), count), len(items)]
    return [Input(items=InputItems(items=items[a:b])) for a, b in pairwise(cuts) if a < b]


@dataclass(slots=True)
class Turns:
    """What continued turns cost behind one history."""

    kilobytes: int
    microseconds: list[float] = field(default_factory=list[float])
    """Each turn's time."""
    visited: Mapping[str, int] = field(default_factory=dict[str, int])
    """Items that each stage looked at in the last turn."""

    @property
    def median(self) -> float:
        """Median in microseconds."""
        return statistics.median(self.microseconds)


class Conversation:
    """One session whose turns are timed."""

    def __init__(self, kilobytes: int, *, tokens: bool) -> None:
        """Takes the size of its history, and whether its engine takes tokens; needs a running event loop."""
        self.turns = Turns(kilobytes)
        self._hands: _Hands
        if tokens:
            self._hands = null_tokens = _NullTokens()
            engine = _rendered(null_tokens)
        else:
            self._hands = engine = NullEngine()
        self._services = make_services(engine)
        self._runner = SessionRunner(self._services, "", "bench")
        self._done = asyncio.Event()
        self._response_id = ""
        self._drained = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        while (batch := await self._runner.next_batch()) is not None:
            for event in batch.events:
                assert not event.HasField("rejected"), event
                if event.HasField("created"):
                    self._response_id = event.created.response.id
                if event.HasField("done"):
                    self._done.set()

    async def begin(self) -> None:
        """Builds the history. Cancelling it leaves the conversation unusable, as with all that follows."""
        for given in pieces(self.turns.kilobytes):
            await self._turn(given)

    async def go_on(self) -> None:
        """Makes a turn, and notes what it cost."""
        before = dict(self._services.visits.items)
        self.turns.microseconds.append(await self._turn(Input(text=_WORDS)) * 1e6)
        self.turns.visited = self._services.visits.since(before)

    async def take(self, text: str) -> None:
        """Makes a turn with a text of any length."""
        await self._turn(Input(text=text))

    async def _turn(self, given: Input) -> float:
        create = ResponseCreate(model=_MODEL, input=given, previous_response_id=self._response_id)
        data = ConnectRequest(create=create).SerializeToString()
        hands = self._hands
        hands.taken.clear()
        self._done.clear()
        began = time.perf_counter()
        self._runner.receive(ConnectRequest.FromString(data), len(data))
        await hands.taken.wait()
        took = hands.handed_over - began
        hands.answer()
        await self._done.wait()
        return took

    def item_bytes(self) -> int:
        """Returns the bytes of its items, each serialized once."""
        state = self._runner.session.find(self._response_id)
        assert state is not None
        return sum(len(entry.data) for entry in state.transcript.walk())

    async def end(self) -> None:
        """Lets it go."""
        self._runner.abandon()
        await self._drained


async def _measure(turns: int, histories: Sequence[int], *, tokens: bool) -> list[Turns]:
    conversations = [Conversation(kilobytes, tokens=tokens) for kilobytes in histories]
    for conversation in conversations:
        await conversation.begin()
    # Interleaved, so that whatever else the machine does falls on all sizes alike.
    for _ in range(turns):
        for conversation in conversations:
            await conversation.go_on()
    for conversation in conversations:
        await conversation.end()
    return [each.turns for each in conversations]


def measure_turns(turns: int = 200, histories: Sequence[int] = LONG, *, tokens: bool = False) -> list[Turns]:
    """Measures the work of continued turns.

    Args:
        turns: Turns per history.
        histories: Their sizes in KB.
        tokens: Whether the engine takes tokens, so that prompts are rendered.
    """
    vocabulary.count(_WORDS)  # loads the vocabulary outside the measurement
    return asyncio.run(_measure(turns, histories, tokens=tokens))


def measure(turns: int = 200) -> dict[int, float]:
    """Measures the median work of a continued turn, in microseconds by size of history in KB.

    Args:
        turns: Turns per history.
    """
    return {each.kilobytes: each.median for each in measure_turns(turns, HISTORIES)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.turns",
        description="Measures what a continued turn costs the server before inference, with 1 KB to 10 MB behind it. "
        "Engines that answer nothing stand in for the model.",
    )
    parser.add_argument("--runs", type=int, default=5, help="repetitions, each in a process of its own [5]")
    parser.add_argument("--turns", type=int, default=60, help="turns of each history in a run [60]")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    given = parser.parse_args()
    if not 1 <= given.runs <= 1000 or not 1 <= given.turns <= 100_000:
        parser.error("expected --runs from 1 to 1000 and --turns from 1 to 100000")
    return given


def main() -> int:
    """Measures in front of both kinds of engines, prints tables, and writes the file that is named."""
    given = _arguments()
    stoppable()
    console = screen()
    kinds = {"items": ("an engine that takes items", False), "harmony": ("rendered as harmony", True)}
    with measuring("turns", typed("turns"), given.out) as measured:
        runs: dict[str, list[list[Turns]]] = {name: [] for name in kinds}
        with bar(given.runs * len(kinds), "continued turns") as done:
            for _ in range(given.runs):
                for name, (words, tokens) in kinds.items():
                    runs[name].append(apart(measure_turns, given.turns, tokens=tokens))
                    done(f"continued turns, {words}")
        for name, (words, _) in kinds.items():
            lines = behind([[(t.kilobytes, t.microseconds, t.visited) for t in run] for run in runs[name]])
            measured.figures[name] = figures(lines)
            console.print(table(words, lines))
    console.print(f"load {measured.load_before:.1f} before, {measured.load_after:.1f} after, on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
