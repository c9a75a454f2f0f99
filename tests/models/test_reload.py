"""The registry file read again: what runs goes on, what is new is there at once, and mistakes change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from turnwire.client import RequestRejectedError, connect
from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.models.opening import EngineOpenError, Opening, open_registry
from turnwire.server.models.registry_file import load_registry
from turnwire.server.models.reload import APPLIED, REFUSED, Models
from turnwire.server.routing.pool import Routing
from turnwire.server.session.chunks import Channel, TextChunk
from turnwire.server.testing import make_services, serving

BOUND = 15.0
ONE = """
[engines.house]
kind = "openai"
upstream = ["http://a", "http://b"]
[models.m]
engine = "house"
aliases = ["x"]
"""


class Deaf:
    def rendered(self, stats: Any, /) -> None:
        pass

    def cached(self, report: Any, /) -> None:
        pass


class House:
    """A server's engines, opened by hand: one `StepEngine` for each upstream that is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: dict[str, list[StepEngine]] = {}
        self.trouble = ""
        self.outcomes: list[str] = []
        self.services = make_services(())
        self.models: Models

    async def open(self, text: str) -> None:
        self.path.write_text(text)
        routing = Routing()
        opened = await open_registry(load_registry(self.path, {}), {}, Deaf(), routing)
        engines = self.services.engines
        self.models = Models(engines, opened, self.path, {}, Deaf(), routing, self.outcomes.append)

    async def reload(self, text: str) -> str:
        self.path.write_text(text)
        return await self.models.reload()

    async def opener(self, opening: Opening) -> Engine:
        engines: list[Engine] = []
        for upstream in opening.spec.upstream:
            if upstream.address == self.trouble:
                msg = f"{upstream.address}: not reached"
                raise EngineOpenError(msg)
            engine = StepEngine([ModelInfo(model.id) for model in opening.models])
            self.opened.setdefault(upstream.address, []).append(engine)
            engines.append(engine)
        return SpreadEngine(opening.pool(engines), opening.routing.revision)

    @property
    def at_work(self) -> StepEngine:
        (found,) = [
            engine
            for engines in self.opened.values()
            for engine in engines
            if any(not (each.ended or each.aborted) for each in engine.passes)
        ]
        return found

    def names(self) -> list[str]:
        return [info.id for info, _ in self.services.engines.models()]


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    made = House(tmp_path / "models.toml")
    monkeypatch.setattr("turnwire.server.models.opening._OPENERS", {"openai": made.opener, "scripted": made.opener})
    yield made
    await made.models.aclose()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what tasks of this very loop do, which tell nobody."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_pass_that_runs_goes_on_while_its_engine_is_replaced_and_is_closed_after_it(house: House) -> None:
    await house.open(ONE)
    async with serving(house.services) as address, connect(address) as session:
        stream = await session.create(model="m", input="Hi.")
        async with asyncio.timeout(BOUND):
            await until(lambda: any(e.passes for each in house.opened.values() for e in each))
        old = house.at_work
        old.emit(0, [TextChunk(Channel.TEXT, "It goes ")])

        assert await house.reload(ONE.replace("http://a", "http://c").replace("[models.m]", "[models.n]")) == APPLIED

        assert [model.id for model in await session.list_models()] == ["n"]
        with pytest.raises(RequestRejectedError, match="does not exist"):
            await session.create(model="m", input="Hi.", lane="first")
        assert house.models.retiring == 1
        assert not old.closed
        old.emit(0, [TextChunk(Channel.TEXT, "on.")])
        old.finish(0)
        async with asyncio.timeout(BOUND):
            await stream.until_done()
        assert stream.output_text == "It goes on."
        await until(lambda: not house.models.retiring)
        assert old.closed
        new = await session.create(model="x", input="Hi.", lane="second")
        await until(lambda: house.at_work is not old)
        house.at_work.finish(0)
        async with asyncio.timeout(BOUND):
            await new.until_done()
    assert [engine.closed for engine in house.opened["http://a"]] == [True]
    assert [engine.closed for engine in house.opened["http://b"]] == [True, False]


async def test_an_engine_is_closed_after_the_last_of_many_passes_and_not_before(house: House) -> None:
    one = ONE.replace(', "http://b"', "")
    await house.open(one)
    async with serving(house.services) as address, connect(address) as session:
        streams = [await session.create(model="m", input="Hi.", lane=f"{n}") for n in range(20)]
        [old] = house.opened["http://a"]
        async with asyncio.timeout(BOUND):
            await old.started(20)
        for number in range(3):
            assert (
                await house.reload(one.replace("[engines.house]", f"[engines.house]\nmax_tries = {number + 4}"))
                == APPLIED
            )
            # New requests are served by the newest, while the oldest is at work.
            newest = house.opened["http://a"][-1]
            more = await session.create(model="m", input="Hi.", lane=f"new-{number}")
            async with asyncio.timeout(BOUND):
                await newest.started(1)
            newest.finish(0)
            async with asyncio.timeout(BOUND):
                await more.until_done()
        for number in range(19):
            old.finish(number)
            assert not old.closed
        await streams[19].cancel()
        await until(lambda: old.closed)
        await until(lambda: not house.models.retiring)
        for stream in streams:
            async with asyncio.timeout(BOUND):
                await stream.until_done()
    assert [engine.closed for engine in house.opened["http://a"]] == [True, True, True, False]


async def test_an_engine_that_is_asked_for_as_before_is_the_same_whatever_its_models_are_called(house: House) -> None:
    await house.open(ONE)
    again = ONE.replace('["x"]', '["y", "z"]') + "price = { input = 1 }\n"
    again += '[engines.more]\nkind = "openai"\nupstream = "http://c"\n[models.k]\nengine = "more"\n'

    assert await house.reload(again) == APPLIED

    engines = house.services.engines
    assert {address: len(each) for address, each in house.opened.items()} == {
        "http://a": 1,
        "http://b": 1,
        "http://c": 1,
    }
    assert [engines.resolve(name) for name in ("y", "z", "k")] == ["m", "m", "k"]
    assert engines.profile("m").price is not None
    assert house.models.retiring == 0


async def test_weights_change_without_a_new_engine(house: House) -> None:
    await house.open(ONE)
    weighed = '[{ address = "http://a", weight = 0 }, { address = "http://b", weight = 2 }]'

    assert await house.reload(ONE.replace('["http://a", "http://b"]', weighed)) == APPLIED

    async with serving(house.services) as address, connect(address) as session:
        streams = [await session.create(model="m", input="Hi.", lane=f"{n}") for n in range(20)]
        [b] = house.opened["http://b"]
        async with asyncio.timeout(BOUND):
            await b.started(20)
        assert [len(engine.passes) for engine in house.opened["http://a"]] == [0]
        for number in range(20):
            b.finish(number)
        for stream in streams:
            async with asyncio.timeout(BOUND):
                await stream.until_done()


async def test_what_clients_say_is_known_by_the_new_names_at_once_and_the_old_are_gone(house: House) -> None:
    await house.open(ONE)
    assert house.services.engines.resolve("x") == "m"
    assert await house.reload(ONE.replace("[models.m]", "[models.n]")) == APPLIED
    assert house.services.engines.resolve("x") == "n"
    assert house.names() == ["n"]


async def test_a_file_with_mistakes_changes_nothing_and_every_mistake_is_logged_with_its_line(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.open(ONE)
    bad = ONE.replace('kind = "openai"', 'kind = "openai"\nmax_tries = 0').replace("aliases", "alias")

    assert await house.reload(bad) == REFUSED

    assert f"{house.path}:4: key 'engines.house.max_tries': expected an integer from 1 to 100, found 0" in caplog.text
    assert f"{house.path}:8: key 'models.m.alias': unknown key" in caplog.text
    assert house.names() == ["m"]
    assert house.outcomes == [REFUSED]
    assert await house.reload("[engines") == REFUSED
    house.path.unlink()
    assert await house.models.reload() == REFUSED
    assert house.services.engines.resolve("x") == "m"
    assert {address: len(each) for address, each in house.opened.items()} == {"http://a": 1, "http://b": 1}


async def test_an_engine_that_cannot_be_had_changes_nothing_and_those_opened_are_closed(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.open(ONE)
    weighed = ONE.replace('"http://a"', '{ address = "http://a", weight = 0 }')
    more = '[engines.{0}]\nkind = "openai"\nupstream = "http://{0}"\n[models.{0}]\nengine = "{0}"\n'
    house.trouble = "http://d"

    assert await house.reload(weighed + more.format("c") + more.format("d")) == REFUSED

    assert "http://d: not reached" in caplog.text
    assert house.names() == ["m"]
    assert house.opened["http://c"][0].closed
    assert not house.opened["http://a"][0].closed
    [engine] = house.services.engines.engines
    pool: Any = getattr(engine, "_engine", engine)
    assert [member.weight for member in pool.engine.pool.members] == [1.0, 1.0]


async def test_signals_that_come_while_the_file_is_read_make_it_be_read_once_more(house: House) -> None:
    await house.open(ONE)
    for _ in range(5):
        house.models.request()
    await until(lambda: len(house.outcomes) == 1)
    house.models.request()
    house.models.request()
    await until(lambda: len(house.outcomes) == 2)
    assert house.outcomes == [APPLIED, APPLIED]


async def test_a_server_that_ends_closes_what_is_still_at_work_on_replaced_engines(house: House) -> None:
    await house.open(ONE)
    async with serving(house.services) as address, connect(address) as session:
        await session.create(model="m", input="Hi.")
        await until(lambda: any(e.passes for each in house.opened.values() for e in each))
        old = house.at_work
        assert await house.reload(ONE.replace("[models.m]", "[models.n]")) == APPLIED
        assert not old.closed
        await house.models.aclose()
        assert all(engine.closed for each in house.opened.values() for engine in each)
