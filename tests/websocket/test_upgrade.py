"""The upgrade: who may come in, and refusals as HTTP answers, before there is a socket."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus

from turnwire.server.doors.websocket.options import WebSocketOptions

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Doors

_KEYS = "alice:sk-alice-000000000000\n"
_GOOD = {"Authorization": "Bearer sk-alice-000000000000"}


async def refused(door: Door, **options: Any) -> tuple[int, Any, dict[str, str]]:
    """Tries to connect; returns the status, the error and the headers of the answer."""
    with pytest.raises(InvalidStatus) as caught:
        await door.connect(**options)
    answer = caught.value.response
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.body is not None
    return answer.status_code, json.loads(answer.body)["error"], dict(answer.headers)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer sk-wrong"}, {"Authorization": "Basic x"}])
async def test_a_bad_key_is_refused_before_the_upgrade(open_door: Doors, headers: dict[str, str]) -> None:
    door = await open_door(keys=_KEYS)
    status, error, _ = await refused(door, additional_headers=headers)
    assert (status, error["code"], error["type"]) == (401, "invalid_api_key", "authentication_error")
    assert door.watcher.refused_keys == ["websocket"]
    assert not door.watcher.doors


@pytest.mark.parametrize(
    "options",
    [
        {"additional_headers": _GOOD},
        {"additional_headers": {**_GOOD, "OpenAI-Beta": "responses_websockets=2026-02-06", "OpenAI-Organization": "o"}},
        {"subprotocols": ["openai-insecure-api-key.sk-alice-000000000000"]},
    ],
)
async def test_a_good_key_comes_in_whatever_else_is_said(
    open_door: Doors, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    door = await open_door(keys=_KEYS)
    peer = await door.connect("?model=stepped&api-version=1", **options)
    assert peer.socket.subprotocol is None
    await door.completes(peer)
    assert "sk-alice" not in caplog.text


@pytest.mark.parametrize("place", [0, 1])
async def test_a_name_beside_an_offered_key_is_chosen_since_browsers_want_that(
    open_door: Doors, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    door = await open_door(keys=_KEYS)
    offers = ["openai-insecure-api-key.sk-alice-000000000000", "other"]
    offers.insert(place, "responses")

    peer = await door.connect(subprotocols=offers)

    assert peer.socket.subprotocol == "responses"
    await door.completes(peer)
    assert "sk-alice" not in caplog.text


async def test_without_a_key_among_them_no_name_is_chosen_that_nobody_here_knows(door: Door) -> None:
    peer = await door.connect(subprotocols=["chat", "other"])

    assert peer.socket.subprotocol is None
    await door.completes(peer)


async def test_too_many_connections_are_refused_and_room_is_given_back(open_door: Doors) -> None:
    door = await open_door(max_sessions=1)
    peer = await door.connect()
    status, error, headers = await refused(door)
    assert (status, error["code"]) == (429, "too_many_connections")
    assert headers["retry-after"] == "1"
    await peer.socket.close()
    await door.emptied()
    await door.completes(await door.connect())


async def test_a_server_that_shuts_down_takes_nobody(door: Door) -> None:
    door.room.go_away("shutdown", 1.0, 0.0)
    status, error, headers = await refused(door)
    assert (status, error["code"]) == (503, "server_shutting_down")
    assert headers["retry-after"] == "1"


@pytest.mark.parametrize("without", ["Sec-WebSocket-Key", "Sec-WebSocket-Version", "Upgrade", "Connection"])
async def test_what_is_no_upgrade_is_told_so_and_opens_nothing(door: Door, without: str) -> None:
    headers = {
        "Host": "localhost",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    del headers[without]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(f"GET /v1/responses HTTP/1.1\r\n{lines}\r\n".encode())
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Sec-WebSocket-Version: 13" in head
    writer.close()
    assert not door.watcher.doors


async def test_compression_is_used_where_the_client_offers_it(door: Door) -> None:
    peer = await door.connect(compression="deflate")
    assert "permessage-deflate" in peer.socket.response.headers["Sec-WebSocket-Extensions"]  # type: ignore[union-attr]
    text = "the same words again and again " * 4_000
    response_id = await peer.create(text)
    assert door.read_by(response_id) == [text]
    door.finish(response_id, text)
    end = (await peer.turn())[-1]
    assert end["response"]["output"][0]["content"][0]["text"] == text
    await peer.refusal("response.invent")


async def test_compression_can_be_switched_off(open_door: Doors) -> None:
    door = await open_door(options=WebSocketOptions(compression=False))
    peer = await door.connect(compression="deflate")
    assert "Sec-WebSocket-Extensions" not in peer.socket.response.headers  # type: ignore[union-attr]
    await door.completes(peer)


async def test_the_door_is_named_for_metrics(door: Door) -> None:
    await door.completes(await door.connect())
    await door.connect(subprotocols=["turnwire.v1"])
    assert door.watcher.doors == ["websocket", "websocket-turnwire"]
    assert door.watcher.sent_bytes > 1_000


async def test_a_client_that_goes_during_the_upgrade_leaves_nothing_behind(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    for delay in range(40):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        del reader
        writer.write(
            b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        for _ in range(delay % 10):
            await asyncio.sleep(0)
        writer.transport.abort()
    await door.completes(await door.connect())
    await door.watcher.until(lambda watcher: watcher.open == 1)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]
