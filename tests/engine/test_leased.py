"""An engine that is closed when nothing runs on it, whatever it was that ran."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnwire.server.engine.leased import LeasedEngine
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.session.chunks import Channel, Chunk, EngineFailure, Finish, FinishReason, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.server.session.transcript import EMPTY
from turnwire.v1.response_pb2 import ResponseCreate

PROMPT = Prompt(1, "resp_1", "stepped", ResponseCreate(), NO_TOOLS, EMPTY, 0, 1, 0)


class Kept:
    def __init__(self) -> None:
        self.got: list[Chunk | Finish | EngineFailure] = []

    def output(self, chunks: Sequence[Chunk], /) -> None:
        self.got += chunks

    def ended(self, outcome: Finish | EngineFailure, /) -> None:
        self.got.append(outcome)


class Counting(StepEngine):
    def __init__(self) -> None:
        super().__init__()
        self.counted: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def count(self, prompt: Prompt) -> int | None:
        return await self.counted


async def test_passes_counts_and_aborts_are_all_that_runs() -> None:
    engine = Counting()
    leased, kept = LeasedEngine(engine), Kept()
    first, second = leased.start(PROMPT, kept), leased.start(PROMPT, kept)
    counting = asyncio.create_task(leased.count(PROMPT))
    await asyncio.sleep(0)
    assert leased.running == 3
    retiring = asyncio.create_task(leased.retire())
    chunk = TextChunk(Channel.TEXT, "Hi")
    first.pause()
    first.resume()
    engine.emit(0, [chunk])
    engine.finish(0)
    assert engine.passes[0].calls == ["pause", "resume"]
    assert kept.got == [chunk, Finish(FinishReason.STOP)]
    # Once over, an abort changes nothing.
    first.abort()
    second.abort()
    second.abort()
    assert leased.running == 1
    engine.counted.set_result(7)
    assert await counting == 7
    async with asyncio.timeout(10):
        await retiring
    assert engine.closed


async def test_what_could_not_be_started_does_not_run() -> None:
    class Broken(StepEngine):
        def start(self, prompt: Prompt, sink: Any) -> Any:
            msg = "a bug"
            raise RuntimeError(msg)

    leased = LeasedEngine(Broken())
    with pytest.raises(RuntimeError, match="a bug"):
        leased.start(PROMPT, Kept())
    assert leased.running == 0
    assert await leased.count(PROMPT) is None
