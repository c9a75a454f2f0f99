"""Fake engines in processes of their own, and a sink to look into."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from turnwire.bench.fakes.core import Command, Script
from turnwire.server.engine.tokens.port import Sampling, TokenDelta, TokenEnd, TokenRequest
from turnwire.server.prompt.segments import EMPTY, Rendered, Segment
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import EngineFailure

BOUND = 15.0


class FakeEngine:
    """A fake engine's process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.address = f"127.0.0.1:{port}"
        self._seen: list[dict[str, Any]] = []

    async def event(self, name: str) -> dict[str, Any]:
        """Waits for the next event of a name; others stay for later."""
        async with asyncio.timeout(BOUND):
            while True:
                for at, seen in enumerate(self._seen):
                    if seen["event"] == name:
                        return self._seen.pop(at)
                self._seen.append(await read_event(self.process))

    async def script(self, **fields: Any) -> None:
        """Says what to do with the next request that has no script."""
        self._tell(Command(script=msgspec.convert(fields, Script)))
        await self.event("scripted")

    async def clear(self) -> None:
        """Makes it as good as new."""
        self._tell(Command(clear=True))
        await self.event("cleared")
        self._seen.clear()

    async def release(self) -> None:
        self._tell(Command(release=True))
        await self.event("released")

    async def crash(self) -> None:
        self._tell(Command(crash=True))
        await self.process.wait()

    def _tell(self, command: Command) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(command) + b"\n")


async def read_event(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, "the fake engine has ended"
    event: dict[str, Any] = msgspec.json.decode(line)
    return event


StartFake = Callable[..., Awaitable[FakeEngine]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fake() -> AsyncIterator[StartFake]:
    """Starts fake engines: `await fake("vllm_grpc", "--context", "100")`. They take half a second each."""
    processes: list[asyncio.subprocess.Process] = []

    async def start(kind: str, *options: str) -> FakeEngine:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"turnwire.bench.fakes.{kind}",
            *options,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=64 * 1024 * 1024,
        )
        processes.append(process)
        async with asyncio.timeout(BOUND):
            listening = await read_event(process)
        return FakeEngine(process, listening["port"])

    yield start
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_fake(fake: StartFake) -> StartFake:
    """Gives the module's one fake engine of a kind, as good as new."""
    started: dict[str, FakeEngine] = {}

    async def get(kind: str) -> FakeEngine:
        if kind not in started or started[kind].process.returncode is not None:
            started[kind] = await fake(kind)
        await started[kind].clear()
        return started[kind]

    return get


class Sink:
    """Keeps what a pass delivers."""

    def __init__(self) -> None:
        self.deltas: list[TokenDelta] = []
        self.outcome: TokenEnd | EngineFailure | None = None
        self._changed = asyncio.Event()

    def output(self, delta: TokenDelta) -> None:
        assert self.outcome is None
        self.deltas.append(delta)
        self._changed.set()

    def ended(self, outcome: TokenEnd | EngineFailure) -> None:
        assert self.outcome is None
        self.outcome = outcome
        self._changed.set()

    @property
    def ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.ids]

    @property
    def logprobs(self) -> list[float]:
        return [value for delta in self.deltas for value in delta.logprobs]

    async def until_ids(self, count: int) -> None:
        async with asyncio.timeout(BOUND):
            while len(self.ids) < count:
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> TokenEnd:
        outcome = await self.over()
        assert isinstance(outcome, TokenEnd), outcome
        return outcome

    async def failure(self) -> EngineFailure:
        outcome = await self.over()
        assert isinstance(outcome, EngineFailure), outcome
        return outcome

    async def over(self) -> TokenEnd | EngineFailure:
        async with asyncio.timeout(BOUND):
            while self.outcome is None:
                self._changed.clear()
                await self._changed.wait()
        return self.outcome


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def sinks() -> type[Sink]:
    return Sink


def prompt_of(*segments: Sequence[int]) -> Rendered:
    rendered = EMPTY
    for ids in segments:
        rendered = rendered.extend(Segment(ids))
    return rendered


@pytest.fixture
def request_of() -> Callable[..., TokenRequest]:
    """Makes a request: segments of ids, and sampling by name."""

    def make(
        *segments: Sequence[int], request_id: str = "r1", routing_key: str = "", weights: bool = False, **sampling: Any
    ) -> TokenRequest:
        prompt = prompt_of(*(segments or ([1, 2, 3],)))
        return TokenRequest(request_id, prompt, Sampling(**sampling), Chain(routing_key), weights)

    return make
