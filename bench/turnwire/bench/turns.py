"""What a continued turn costs the server before inference: from the decoded event to the prompt in the engine's hands.

Runs the real core, policy and runtime in this process, with an engine that answers nothing, so that only the server's
own work is measured.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Final

from turnwire.server.engine.port import Generation, ModelInfo, Sink
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.policy.prepare import Preparer
from turnwire.server.prompt.vocabulary import count
from turnwire.server.runtime.clock import LoopClock
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.server.session.chunks import Channel, Finish, TextChunk
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.prompt import Prompt
from turnwire.server.store.memory import MemoryStore
from turnwire.server.tools.port import NoHostedTools
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.response_pb2 import Input, InputItems, ResponseCreate

HISTORIES: Final = (1, 100, 1024)
"""History at the start of a turn, in KB."""

_WORDS: Final = "the quick brown fox jumps over the lazy dog and reads one more line of the log "


class _Held(Generation):
    """A pass that does nothing."""

    def pause(self) -> None:
        """Does nothing."""

    def resume(self) -> None:
        """Does nothing."""

    def abort(self) -> None:
        """Does nothing."""


class _NullEngine:
    """Takes prompts and lets the caller end them."""

    name = "null"

    def __init__(self) -> None:
        self.sinks: asyncio.Queue[Sink] = asyncio.Queue()
        self.handed_over = 0.0
        self.response_id = ""

    def models(self) -> Sequence[ModelInfo]:
        return (ModelInfo("null"),)

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        self.handed_over = time.perf_counter()
        self.sinks.put_nowait(sink)
        self.response_id = prompt.response_id
        return _Held()

    async def aclose(self) -> None:
        """Has nothing to close. Safe to cancel."""


def _history(kilobytes: int) -> Input:
    """Builds a conversation of about that size, in messages of 1 KB, as an agent's tool outputs would be."""
    text = (_WORDS * (1024 // len(_WORDS) + 1))[:1024]
    roles = (Role.ROLE_USER, Role.ROLE_ASSISTANT)
    items = [
        Item(message=Message(role=roles[n % 2], content=MessageContent(text=text))) for n in range(max(1, kilobytes))
    ]
    return Input(items=InputItems(items=items))


class _Conversation:
    """One session whose turns are timed."""

    def __init__(self, kilobytes: int) -> None:
        self.kilobytes = kilobytes
        self.samples: list[float] = []
        self._engine = _NullEngine()
        registry = EngineRegistry((self._engine,))
        limits = SessionLimits()
        services = Services(
            engines=registry,
            policy=Preparer(registry.resolve, limits, count=count),
            store=MemoryStore(),
            tools=NoHostedTools(),
            clock=LoopClock(),
            count_tokens=count,
            limits=limits,
        )
        self._runner = SessionRunner(services, "", "bench")
        self._drained = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        while await self._runner.next_batch() is not None:
            pass

    async def begin(self) -> None:
        await self._turn(ConnectRequest(create=ResponseCreate(model="null", input=_history(self.kilobytes))))

    async def go_on(self) -> None:
        create = ResponseCreate(model="null", input=Input(text=_WORDS), previous_response_id=self._engine.response_id)
        self.samples.append(await self._turn(ConnectRequest(create=create)))

    async def _turn(self, request: ConnectRequest) -> float:
        data = request.SerializeToString()
        began = time.perf_counter()
        self._runner.receive(ConnectRequest.FromString(data), len(data))
        sink = await self._engine.sinks.get()
        took = self._engine.handed_over - began
        sink.output((TextChunk(Channel.TEXT, "ok"),))
        sink.ended(Finish())
        await asyncio.sleep(0)
        return took

    async def end(self) -> None:
        self._runner.abandon()
        await self._drained


async def _measure(turns: int) -> dict[int, float]:
    conversations = [_Conversation(kilobytes) for kilobytes in HISTORIES]
    for conversation in conversations:
        await conversation.begin()
    # Interleaved, so that whatever else the machine does falls on all sizes alike.
    for _ in range(turns):
        for conversation in conversations:
            await conversation.go_on()
    for conversation in conversations:
        await conversation.end()
    return {each.kilobytes: statistics.median(each.samples) * 1e6 for each in conversations}


def measure(turns: int = 200) -> dict[int, float]:
    """Measures the median work of a continued turn.

    Args:
        turns: Turns per history.

    Returns:
        Microseconds by size of history in KB.
    """
    count(_WORDS)  # loads the vocabulary outside the measurement
    return asyncio.run(_measure(turns))
