"""What clients of a bridge hear when something is wrong: with them, with the server, or with the way there."""

from __future__ import annotations

import asyncio

import pytest
import websockets
from tests.bridge.scene import BOUND, Server, Stage, Wire, bridging, serving
from websockets.exceptions import InvalidStatus

from turnwire.server.keys import KeyRing

KEY = "0123456789abcdef"
GOOD = {"Authorization": f"Bearer {KEY}"}
BAD = {"Authorization": "Bearer fedcba9876543210"}


async def test_refusals_keep_status_code_and_parameter(stage: Stage) -> None:
    body = {"model": "nobody", "input": "hello"}
    assert await stage.refusal("POST", "/responses", json=body) == (404, "model_not_found", "model")
    assert await stage.refusal("POST", "/responses", json={**body, "stream": True}) == (404, "model_not_found", "model")
    async with stage.peer() as peer:
        refused = await peer.refusal(input="hello", model="nobody", stream_id="a")
        assert (refused["status"], refused["stream_id"]) == (404, "a")
        assert (refused["error"]["code"], refused["error"]["param"]) == ("model_not_found", "model")


async def test_failures_keep_their_code(server: Server, stage: Stage) -> None:
    asking = await stage.create()
    await server.begun(1)
    server.engine.fail(0, "context_length_exceeded", "too long")
    status, body = await asking
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    async with stage.stream() as events:
        await server.begun(2)
        server.engine.fail(1, "rate_limit_exceeded", "slower", retry_after=2.0)
        failed = await events.until("response.failed")
        assert failed["response"]["error"]["code"] == "rate_limit_exceeded"


async def test_the_key_of_a_client_goes_on_to_the_server() -> None:
    async with serving(keys=KeyRing.parse(f"alice:{KEY}")) as server, bridging(server) as stage:
        assert await stage.refusal("GET", "/models") == (401, "invalid_api_key", None)
        assert await stage.refusal("GET", "/models", headers=BAD) == (401, "invalid_api_key", None)
        assert (await stage.ask("GET", "/models", headers=GOOD))[0] == 200
        with pytest.raises(InvalidStatus) as refused:
            await stage.peer(additional_headers=BAD).__aenter__()
        assert refused.value.response.status_code == 401
        async with stage.peer(additional_headers=GOOD) as peer:
            await peer.create()


async def test_a_key_of_the_bridge_is_shown_for_everybody() -> None:
    async with (
        serving(keys=KeyRing.parse(f"alice:{KEY}")) as server,
        bridging(server, authorization=f"Bearer {KEY}") as stage,
    ):
        assert (await stage.ask("GET", "/models"))[0] == 200
        assert (await stage.ask("GET", "/models", headers=BAD))[0] == 200
        async with stage.peer() as peer:
            await peer.create()


async def test_a_server_that_is_not_there_is_unavailable(server: Server) -> None:
    await server.close_grpc()
    await server.close_http()
    async with bridging(server, fallback=True) as stage:
        status, body = await stage.ask("POST", "/responses", json={"model": "stepped", "input": "hello"})
        assert (status, body["error"]["code"]) == (503, "session_lost")
        assert "Nor over WebSocket" in body["error"]["message"]
        with pytest.raises(InvalidStatus) as refused:
            await stage.peer().__aenter__()
        assert refused.value.response.status_code == 503
        # As soon as it is there, it is used, without a restart of the bridge.
        await server.open_grpc()
        assert (await stage.ask("GET", "/models"))[0] == 200


async def test_a_server_that_stops_ends_what_runs(server: Server, stage: Stage) -> None:
    async with stage.stream() as events, stage.peer() as peer:
        await events.until("response.in_progress")
        await peer.create(stream_id="a")
        await server.close_grpc()
        last = await events.next()
        assert last is not None
        assert await events.next() is None
        for end in (last, (await peer.turn("a"))[-1]):
            # The server's own words, where it had time for them.
            error = end["response"]["error"] if end["type"] == "response.failed" else end["error"]
            assert error["code"] in ("server_shutting_down", "session_lost")
        assert (await peer.closed())[0] == 1012
    assert await stage.refusal("GET", "/models") == (503, "session_lost", None)


async def test_a_connection_that_breaks_ends_what_runs(server: Server) -> None:
    wire = Wire(server.grpc_port)
    await wire.start()
    async with bridging(server, port=wire.port) as stage, stage.stream() as events, stage.peer() as peer:
        await events.until("response.in_progress")
        whole = await stage.create()
        await server.begun(2)
        await peer.create(stream_id="a")
        await wire.stop()
        error = await events.until("error")
        assert (error["status"], error["error"]["code"], error["sequence_number"]) == (503, "session_lost", 2)
        assert await events.next() is None
        status, body = await whole
        assert (status, body["error"]["code"]) == (503, "session_lost")
        error = (await peer.turn("a"))[-1]
        assert (error["status"], error["error"]["code"], error["sequence_number"]) == (503, "session_lost", 2)
        assert (await peer.closed())[0] == 1012


async def test_a_draining_bridge_finishes_what_runs_and_takes_nothing_new(server: Server, stage: Stage) -> None:
    async with stage.stream() as events, stage.peer() as busy, stage.peer() as idle:
        streamed = await server.begun(1)
        talking = await busy.create()
        await server.begun(2)
        stopping = asyncio.create_task(stage.bridge.stop(BOUND))
        # Who has nothing at work is told to connect again, at once.
        assert await idle.closed() == (1012, "server_shutting_down")
        assert await stage.refusal("GET", "/models") == (503, "server_shutting_down", None)
        refused = await busy.refusal(input="More.")
        assert refused["error"]["code"] == "session_closing"
        server.finish(talking, "bye")
        assert (await busy.turn())[-1]["type"] == "response.completed"
        assert await busy.closed() == (1012, "server_shutting_down")
        server.finish(streamed, "bye")
        await events.until("response.completed")
        assert await events.next() is None
        await stopping
    with pytest.raises(ConnectionRefusedError):
        await websockets.connect(f"ws://127.0.0.1:{stage.port}/v1/responses", proxy=None)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:3000"])
async def test_web_pages_are_not_served(stage: Stage, origin: str) -> None:
    headers = {"Origin": origin}
    refused = (400, "invalid_request_error", None)
    assert await stage.refusal("GET", "/models", headers=headers) == refused
    assert await stage.refusal("POST", "/responses", headers=headers, data=b"{}") == refused
    with pytest.raises(InvalidStatus) as caught:
        await stage.peer(additional_headers=headers).__aenter__()
    assert caught.value.response.status_code == 400


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[::1", "0.0.0.0"])
async def test_other_names_are_not_served(stage: Stage, host: str) -> None:
    status, code, _ = await stage.refusal("GET", "/models", headers={"Host": host})
    assert (status, code) == (400, "invalid_request_error")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8080", "LOCALHOST:80"])
async def test_names_of_this_machine_are_served(stage: Stage, host: str) -> None:
    assert (await stage.ask("GET", "/models", headers={"Host": host}))[0] == 200
