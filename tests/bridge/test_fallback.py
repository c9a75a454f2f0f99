"""Where gRPC does not get through: WebSocket with our own messages, until it does again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from tests.bridge.scene import BOUND, Server, Stage, bridging, eventually

from turnwire.bridge.routes import FIRST_TRY, LAST_TRY


@pytest.fixture
async def cut_off(server: Server, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Stage]:
    """A bridge whose way over gRPC is closed."""
    caplog.set_level(logging.INFO, "turnwire.bridge")
    await server.close_grpc()
    async with bridging(server, fallback=True) as stage:
        yield stage


def _way(stage: Stage) -> str:
    return stage.bridge.routes.current.address.partition(":")[0]


async def test_everything_goes_over_websocket_and_the_log_says_so(
    server: Server, cut_off: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    first = await cut_off.whole("My name is Ada.", "Hi.", store=False)
    second = await cut_off.whole("My name?", "Ada.", previous_response_id=first["id"])
    assert server.read_by(second["id"]) == ["My name is Ada.", "Hi.", "My name?"]
    assert (await cut_off.ask("GET", f"/responses/{second['id']}"))[1] == second
    async with cut_off.stream() as events, cut_off.peer() as peer:
        server.finish(await server.begun(3), "hi")
        await events.until("response.completed")
        await peer.create()
        server.finish(await server.begun(4), "hi")
        assert (await peer.turn())[-1]["type"] == "response.completed"
    assert _way(cut_off) == "ws"
    said = [record for record in caplog.records if "going over WebSocket" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING]
    assert f"127.0.0.1:{server.grpc_port}" in said[0].getMessage()


async def test_grpc_is_taken_again_when_it_gets_through(
    server: Server, cut_off: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await cut_off.whole()
    await server.open_grpc()
    # Not before it is time, and not instead of an answer.
    await cut_off.whole()
    assert _way(cut_off) == "ws"
    cut_off.clock.advance(FIRST_TRY)
    await cut_off.whole()
    await eventually(lambda: _way(cut_off) == "grpc")
    await cut_off.whole()
    assert "gets through" in caplog.records[-1].getMessage()


async def test_tries_become_rarer_and_never_stop(
    server: Server, cut_off: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def tries() -> int:
        return sum("still does not get through" in record.getMessage() for record in caplog.records)

    await cut_off.whole()
    pauses = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert (pauses[0], pauses[-1]) == (FIRST_TRY, LAST_TRY)
    for count, pause in enumerate(pauses):
        cut_off.clock.advance(pause - 1.0)
        await cut_off.ask("GET", "/models")
        assert tries() == count
        cut_off.clock.advance(1.0)
        await cut_off.ask("GET", "/models")
        async with asyncio.timeout(BOUND):
            while tries() == count:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_a_socket_stays_on_its_way_when_grpc_comes_back(server: Server, cut_off: Stage) -> None:
    async with cut_off.peer() as peer:
        first = await peer.create("My name is Ada.", store=False)
        server.finish(await server.begun(1), "Hi.")
        await peer.turn()
        await server.open_grpc()
        cut_off.clock.advance(FIRST_TRY)
        await cut_off.ask("GET", "/models")
        await eventually(lambda: _way(cut_off) == "grpc")
        second = await peer.create("My name?", store=False, previous_response_id=first)
        server.finish(await server.begun(2), "Ada.")
        assert (await peer.turn())[-1]["response"]["id"] == second


async def test_a_fallback_that_goes_too_lets_grpc_be_tried_at_once(server: Server, cut_off: Stage) -> None:
    await cut_off.whole()
    await server.close_http()
    assert await cut_off.refusal("GET", "/models") == (503, "session_lost", None)
    await server.open_grpc()
    assert (await cut_off.ask("GET", "/models"))[0] == 200
    assert _way(cut_off) == "grpc"


async def test_without_a_fallback_nothing_is_tried_elsewhere(server: Server) -> None:
    await server.close_grpc()
    async with bridging(server) as stage:
        assert await stage.refusal("GET", "/models") == (503, "session_lost", None)
