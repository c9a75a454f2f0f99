"""A llama.cpp that says what it is told, a sink that records, and prompts without a session behind them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwire.server.engine.local.llama import Loaded
from turnwire.server.session.chunks import CallDelta, CallStart, Chunk, EngineFailure, Finish, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS, Tools, ToolSets
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import ToolSet

PATIENCE = 10.0

OnEvent = Callable[[bytes], bool]


def grown(transcript: Transcript, text: str, *, role: str = "user", origin: Origin = Origin.INPUT) -> Transcript:
    item = from_json(Item, json.dumps({"type": "message", "role": role, "content": text}))
    return transcript.extend([Entry(item.SerializeToString(), origin, 1)], frozenset())


def answered(transcript: Transcript, text: str = "Yes.") -> Transcript:
    return grown(transcript, text, role="assistant", origin=Origin.MODEL)


def tool_set(*tools: dict[str, Any]) -> Tools:
    return ToolSets().intern(from_json(ToolSet, json.dumps(tools)))


def prompt(transcript: Transcript = EMPTY, *, tools: Tools = NO_TOOLS, **settings: Any) -> Prompt:
    return Prompt(
        pass_id=1,
        response_id="resp_1",
        model="m",
        settings=from_json(ResponseCreate, json.dumps(settings)),
        tools=tools,
        transcript=transcript,
        turn=0,
        input_tokens=1,
        cached_tokens=0,
    )


def text_event(text: str | None = None, finish: str | None = None) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}).encode()


def usage_event(prompt_tokens: int = 7, cached: int = 3, output: int = 2) -> bytes:
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return json.dumps({"choices": [], "usage": usage}).encode()


def hello(body: dict[str, Any], on_event: OnEvent) -> None:
    del body
    for event in (text_event(), text_event("Hel"), text_event("lo."), text_event(finish="stop"), usage_event()):
        if on_event(event):
            return


class FakeLlama:
    """Plays `script` on the engine's thread, and keeps what it was asked."""

    def __init__(self, script: Callable[[dict[str, Any], OnEvent], None] = hello) -> None:
        self.loaded = Loaded(context=100, tools=True)
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.stopped = 0
        """Answers that were stopped."""
        self.closed = False
        self.running = 0
        self.most_running = 0
        self.same_slot = False
        """Whether two passes ever ran on one slot at once."""
        self._slots: set[int] = set()
        self._lock = threading.Lock()

    def complete(self, body: bytes, on_event: OnEvent) -> None:
        request: dict[str, Any] = json.loads(body)
        slot = request.get("id_slot")
        with self._lock:
            self.bodies.append(request)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.same_slot = self.same_slot or slot in self._slots
            if slot is not None:
                self._slots.add(slot)

        def counted(event: bytes) -> bool:
            stop = on_event(event)
            if stop:
                self.stopped += 1
            return stop

        try:
            self.script(request, counted)
        finally:
            with self._lock:
                self.running -= 1
                self._slots.discard(slot or 0)

    def generate(self, body: bytes, on_event: OnEvent) -> None:
        self.complete(body, on_event)

    def tokenize(
        self, content: Sequence[str | int], *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        raise NotImplementedError

    def close(self) -> None:
        assert not self.running
        self.closed = True

    def slots(self) -> list[int]:
        return [body["id_slot"] for body in self.bodies]


class Gate:
    """Holds a script until the test lets it go on."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        self._reached.set()
        assert self._open.wait(PATIENCE)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE)


@dataclass
class RecordingSink:
    """Keeps what a pass delivers."""

    chunks: list[Chunk] = field(default_factory=list[Chunk])
    outcomes: list[Finish | EngineFailure] = field(default_factory=list[Finish | EngineFailure])
    fails: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def output(self, chunks: Sequence[Chunk]) -> None:
        assert chunks
        assert not self.outcomes
        if self.fails:
            msg = "told to fail"
            raise RuntimeError(msg)
        self.chunks += chunks
        self._notify()

    def ended(self, outcome: Finish | EngineFailure) -> None:
        assert not self.outcomes
        self.outcomes.append(outcome)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await self._changed.wait()

    async def finish(self) -> Finish:
        await self.until(lambda: bool(self.outcomes))
        outcome = self.outcomes[0]
        assert isinstance(outcome, Finish), outcome
        return outcome

    async def failure(self) -> EngineFailure:
        await self.until(lambda: bool(self.outcomes))
        outcome = self.outcomes[0]
        assert isinstance(outcome, EngineFailure), outcome
        return outcome

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, TextChunk))

    @property
    def calls(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for chunk in self.chunks:
            match chunk:
                case CallStart():
                    found.append((chunk.name, ""))
                case CallDelta():
                    name, arguments = found[-1]
                    found[-1] = (name, arguments + chunk.text)
                case _:
                    pass
        return found
