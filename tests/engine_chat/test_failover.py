"""Two chat upstreams in processes of their own, one of which is killed before it has said anything."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.engine.port import Engine
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.routing.pool import Member, Pool
from turnwire.server.session.chain import Chain
from turnwire.server.session.transcript import EMPTY

from .scene import FakeUpstream, RecordingSink, grown, prompt
from .upstream import PLAIN, delta, event

SCRIPT = Path(__file__).with_name("upstream.py")
CHAIN = "resp_1"
QUESTION = grown(
    EMPTY.extend((), frozenset(), chain=Chain(CHAIN)), {"type": "message", "role": "user", "content": "Hi"}
)


class Two:
    """Two upstreams; the chain is at home at the first."""

    def __init__(self, fakes: list[FakeUpstream], processes: list[asyncio.subprocess.Process]) -> None:
        engines = [
            ChatEngine(ChatEngineConfig(base_url=fake.url, models=(ChatModel("m"),), routing_headers=("X-Session-ID",)))
            for fake in fakes
        ]
        members: list[tuple[str, Engine, float]] = [
            (fake.url, engine, 1.0) for fake, engine in zip(fakes, engines, strict=True)
        ]
        self.pool = Pool(members)
        self.spread = SpreadEngine(self.pool)
        home: Member[Engine] | None = self.pool.pick(Chain(CHAIN), self.pool.members)
        at = self.pool.members.index(home) if home else 0
        self.home, self.other = fakes[at], fakes[1 - at]
        self._process = processes[at]

    async def kill_home(self) -> None:
        self._process.kill()
        await self._process.wait()


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        fakes: list[FakeUpstream] = []
        processes: list[asyncio.subprocess.Process] = []

        async def stop(process: asyncio.subprocess.Process) -> None:
            if process.returncode is None:
                process.kill()
            await process.wait()

        for _ in range(2):
            process = await asyncio.create_subprocess_exec(sys.executable, str(SCRIPT), stdout=asyncio.subprocess.PIPE)
            stack.push_async_callback(stop, process)
            assert process.stdout is not None
            async with asyncio.timeout(15):
                fakes.append(FakeUpstream(int(await process.stdout.readline()), session))
            processes.append(process)
        made = Two(fakes, processes)
        stack.push_async_callback(made.spread.aclose)
        yield made


async def test_an_upstream_that_is_killed_before_it_says_anything_is_not_noticed(two: Two) -> None:
    await two.home.script({"head": 200}, {"gate": "never"})
    sink = RecordingSink()
    two.spread.start(prompt(QUESTION), sink)
    await two.home.happened("request 0")
    [asked] = await two.home.requests()
    await two.kill_home()
    await sink.finish()
    assert sink.said == [("text", "Hello.")]
    [again] = await two.other.requests()
    assert again["json"] == asked["json"]
    # A router in front of either would have seen the same key.
    assert again["headers"]["x-session-id"] == asked["headers"]["x-session-id"] == CHAIN


async def test_an_upstream_that_is_not_there_or_fails_or_is_overloaded_is_not_noticed(two: Two) -> None:
    for status in (500, 503, 429):
        await two.home.refuse(status, b"no")
        sink = RecordingSink()
        two.spread.start(prompt(grown(EMPTY.extend((), frozenset(), chain=Chain(CHAIN)))), sink)
        await sink.finish()
        assert sink.said == [("text", "Hello.")]
    await two.kill_home()
    sink = RecordingSink()
    two.spread.start(prompt(grown(EMPTY.extend((), frozenset(), chain=Chain(CHAIN)))), sink)
    await sink.finish()
    assert sink.said == [("text", "Hello.")]


async def test_an_upstream_that_is_killed_in_the_middle_is_told_since_text_does_not_say_how_to_go_on(two: Two) -> None:
    await two.home.script({"head": 200}, {"send": event(delta(content="Hel"))}, {"gate": "never"})
    sink = RecordingSink()
    two.spread.start(prompt(QUESTION), sink)
    await sink.until(lambda: bool(sink.chunks))
    await two.kill_home()
    failure = await sink.failure()
    assert failure.code == "server_error"
    assert sink.said == [("text", "Hel")]
    assert await two.other.requests() == []


async def test_an_upstream_says_how_it_is_by_its_models(two: Two) -> None:
    engine = next(member.engine for member in two.pool.members if member.address == two.home.url)
    assert isinstance(engine, ChatEngine)
    assert await engine.check() is None
    await two.home.control("models", 503)
    overloaded = await engine.check()
    assert overloaded is not None
    assert overloaded.code == "server_is_overloaded"
    await two.kill_home()
    gone = await engine.check()
    assert gone is not None
    assert gone.code == "engine_unavailable"


async def test_a_header_is_sent_only_where_it_is_asked_for(two: Two) -> None:
    engine = ChatEngine(ChatEngineConfig(base_url=two.home.url, models=(ChatModel("m"),)))
    await two.home.stream(PLAIN)
    sink = RecordingSink()
    engine.start(prompt(QUESTION), sink)
    await sink.finish()
    [request] = await two.home.requests()
    assert "x-session-id" not in request["headers"]
    await engine.aclose()
