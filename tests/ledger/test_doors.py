"""The same figures, and the same budgets, whichever door a response came through."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from turnwire.client import RequestRejectedError, RpcFailedError, connect
from turnwire.server.address import Address
from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.keys import KeyRing
from turnwire.server.ledger.budgets import Budget
from turnwire.server.runtime.clock import LoopClock
from turnwire.server.runtime.local import LocalBackend

from .scene import Shop, shop

KEY = "0123456789abcdef0123"
SAME = (
    "pass",
    "principal",
    "model",
    "outcome",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "estimated",
    "price",
    "currency",
    "end_user",
    "metadata",
)
TOOLS: Any = [{"type": "function", "name": "look", "parameters": {}, "strict": False}]
BODY: dict[str, Any] = {
    "model": "scripted",
    "input": "weather in Oslo",
    "metadata": {"order": "7"},
    "safety_identifier": "s1",
    "tools": TOOLS,
}


class Doors:
    """Where the doors are, and a client at each."""

    def __init__(self, scene: Shop, grpc: str, http: str) -> None:
        self.scene = scene
        self.grpc = grpc
        self.http = http

    async def session(self, body: Any) -> None:
        async with connect(self.grpc, api_key=KEY) as session:
            await (await session.create(**body)).get_final_response()

    async def unary(self, body: Any) -> None:
        async with connect(self.grpc, api_key=KEY) as session:
            await session.create_response(**body)

    async def binary_socket(self, body: Any) -> None:
        async with connect(self.http.replace("http:", "ws:"), api_key=KEY) as session:
            await (await session.create(**body)).get_final_response()

    async def socket(self, body: Any) -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        async with (
            aiohttp.ClientSession(self.http, headers=headers) as client,
            client.ws_connect("/v1/responses") as socket,
        ):
            await socket.send_str(json.dumps({"type": "response.create", **body}))
            while (event := await socket.receive_json())["type"] != "response.completed":
                if event["type"] == "error":
                    raise LookupError(event["error"]["code"])

    async def post(self, body: Any) -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        async with (
            aiohttp.ClientSession(self.http, headers=headers) as client,
            client.post("/v1/responses", json=body) as answer,
        ):
            result = await answer.json()
        if answer.status != 200:
            assert answer.status == 429
            raise LookupError(result["error"]["code"])

    async def background(self, body: Any) -> None:
        await self.post({**body, "background": True})
        for run in list(self.scene.room.background._runs.values()):  # pyright: ignore[reportPrivateUsage]
            if run.task is not None:
                await run.task


WAYS = ("session", "unary", "binary_socket", "socket", "post", "background")


@asynccontextmanager
async def doors(folder: Path, **more: Any) -> AsyncGenerator[Doors]:
    """Opens every door of a server over a data directory."""
    keys = KeyRing.parse(f"alice:{KEY}")
    async with shop(folder, **more) as scene:
        backend = LocalBackend(scene.room, keys)
        grpc = GrpcServer(scene.services, keys, room=scene.room)
        http = HttpServer(backend, LoopClock(), websocket=WebSocketDoor(backend).handle)
        port = grpc.listen("127.0.0.1:0")
        await grpc.start()
        address = await http.listen(Address("127.0.0.1", 0), None)
        try:
            yield Doors(scene, f"127.0.0.1:{port}", f"http://{address}")
        finally:
            await grpc.stop(0)
            await http.stop(0)


async def test_every_door_counts_the_same(tmp_path: Path) -> None:
    async with doors(tmp_path) as at:
        for way in WAYS:
            await getattr(at, way)(BODY)
        lines = await at.scene.lines()

    names = [line["door"] for line in lines]
    assert names == ["grpc", "grpc-oneshot", "websocket-turnwire", "websocket", "http", "background"]
    assert lines[0]["output_tokens"] > lines[0]["reasoning_tokens"] > 0
    assert lines[0]["price"] > 0
    first = {fact: lines[0][fact] for fact in SAME}
    assert (first["principal"], first["end_user"], first["metadata"]) == ("alice", "s1", '{"order": "7"}')
    for line in lines[1:]:
        assert {fact: line[fact] for fact in SAME} == first


@pytest.mark.parametrize("way", WAYS)
async def test_a_budget_that_is_used_up_is_told_at_every_door(tmp_path: Path, way: str) -> None:
    async with doors(tmp_path, budgets={"alice": Budget(tokens_per_day=1)}) as at:
        await getattr(at, way)(BODY)
        with pytest.raises((RequestRejectedError, RpcFailedError, LookupError), match="insufficient_quota"):
            await getattr(at, way)(BODY)
        # What is refused costs nothing.
        assert len(await at.scene.lines()) == 1
