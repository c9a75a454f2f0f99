"""Connections: clients that go away, say nothing, take nothing or send too much; and the end of the server."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientConnectionResetError, web
from backports import zstd

from turnwire.server.doors.http.options import HttpOptions

from .conftest import BOUND, Door, Doors, Stream

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


async def raw(door: Door, data: bytes, *, until: bytes = b"") -> bytes:
    """Sends bytes over a connection of its own, and reads to its end or up to some bytes."""
    reader, writer = await asyncio.open_connection(door.address.host, door.address.port)
    writer.write(data)
    try:
        async with asyncio.timeout(BOUND):
            return await (reader.readuntil(until) if until else reader.read())
    finally:
        writer.close()


async def test_a_client_that_leaves_a_stream_frees_the_engine(door: Door) -> None:
    stream = await door.stream()
    await stream.until("created")
    await door.sampling()

    stream.response.close()

    await door.told(0, "abort")
    await door.emptied()


async def test_a_client_that_does_not_wait_for_the_whole_frees_the_engine(door: Door) -> None:
    asking = asyncio.create_task(door.ask("POST", "/v1/responses", json=door.asking()))
    await door.sampling()

    asking.cancel()

    await door.told(0, "abort")
    await door.emptied()


async def test_silence_is_filled_with_comments(door: Door) -> None:
    stream = await door.stream()
    await stream.until("in_progress")
    sampling = await door.sampling()
    for _ in range(3):
        door.clock.advance(15)
        assert await stream.frame() == ": keep-alive"
    door.clock.advance(10)
    door.say(sampling, "x")
    await stream.until("output_text.delta")
    door.clock.advance(10)
    door.engine.finish(0)

    await stream.until("completed")
    assert await stream.next() is None
    assert stream.comments == 0


async def test_a_client_that_takes_nothing_is_cut_off(open_door: Doors) -> None:
    door = await open_door(options=HttpOptions(stall_timeout=60))
    stream = await door.stream()
    await stream.until("created")
    sampling = await door.sampling()
    quiet = 0
    while quiet < 25:
        # Until everything between the engine and the client is full.
        quiet = quiet + 1 if sampling.paused else 0
        if not sampling.paused:
            door.say(sampling, "x" * 65536)
        await asyncio.sleep(0.002 if sampling.paused else 0)

    door.clock.advance(61)

    await door.told(0, "abort")
    await door.emptied()
    stream.response.close()


async def test_a_client_that_takes_nothing_of_a_whole_answer_is_cut_off(open_door: Doors) -> None:
    door = await open_door(options=HttpOptions(stall_timeout=60))
    large = await door.answers("x" * 12_000_000)
    _, writer = await asyncio.open_connection(door.address.host, door.address.port, limit=1024)

    writer.write(b"GET /v1/responses/%b HTTP/1.1\r\nHost: x\r\n\r\n" % large["id"].encode())
    async with asyncio.timeout(BOUND):
        watched = False
        while door.clock.pending or not watched:
            watched = watched or door.clock.pending > 0
            door.clock.advance(61)
            await asyncio.sleep(0)
    writer.transport.abort()


async def test_a_large_answer_comes_whole_over_a_connection_that_is_kept(door: Door) -> None:
    large = await door.answers("x" * 2_000_000)

    for _ in range(2):
        status, found, response = await door.ask("GET", f"/v1/responses/{large['id']}")
        assert (status, found) == (200, large)
        assert int(response.headers["content-length"]) > 2_000_000
        assert "transfer-encoding" not in response.headers


async def test_connections_are_kept(door: Door) -> None:
    await door.ask("GET", "/v1/models")
    answers = await raw(
        door,
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )

    assert answers.count(b"HTTP/1.1 ") == 2
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 404 " in answers


async def test_http_1_0_gets_a_stream_without_chunks(door: Door) -> None:
    body = json.dumps(door.asking(stream=True)).encode()
    head = b"POST /v1/responses HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    asking = asyncio.create_task(raw(door, head + body))
    await door.sampling()
    door.engine.finish(0)

    answer = await asking

    assert b"transfer-encoding" not in answer.lower()
    assert answer.endswith(b"\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "GZIP"])
async def test_compressed_bodies_are_taken(door: Door, encoding: str) -> None:
    pack = PACK[encoding.lower()]
    body = json.dumps(door.asking(input="word " * 30_000)).encode()

    status, counted, _ = await door.ask(
        "POST",
        "/v1/responses/input_tokens",
        data=pack(body),
        headers={"Content-Encoding": encoding, "Content-Type": "application/json"},
    )

    assert (status, counted["input_tokens"] > 30_000) == (200, True)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("size", [5_000, 50_000_000])
async def test_what_decompresses_to_too_much_is_refused(open_door: Doors, encoding: str, size: int) -> None:
    door = await open_door(options=HttpOptions(max_body_bytes=4096))
    data = PACK[encoding](b" " * size)[:4096]

    refusal = await door.refusal("POST", "/v1/responses", data=data, headers={"Content-Encoding": encoding})

    assert refusal == (413, "request_too_large", None)


@pytest.mark.parametrize(
    ("encoding", "data", "expected"),
    [
        ("br", b"x", (415, "unsupported_content_type", None)),
        ("gzip, zstd", b"x", (415, "unsupported_content_type", None)),
        ("gzip", b"no gzip", (400, "invalid_request_error", None)),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-4], (400, "invalid_request_error", None)),
        ("zstd", b"no zstd", (400, "invalid_request_error", None)),
        ("zstd", zstd.compress(b"{}")[:-1], (400, "invalid_request_error", None)),
    ],
)
async def test_what_is_not_compressed_as_it_says_is_refused(
    door: Door, encoding: str, data: bytes, expected: tuple[int, str, None]
) -> None:
    refusal = await door.refusal("POST", "/v1/responses", data=data, headers={"Content-Encoding": encoding})

    assert refusal == expected


async def test_bodies_in_parts_are_put_together(door: Door) -> None:
    both = gzip.compress(b'{"model":"stepped",') + gzip.compress(b'"input":"hello"}')

    status, _, _ = await door.ask(
        "POST",
        "/v1/responses/input_tokens",
        data=both,
        headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
    )

    assert status == 200


async def test_a_body_that_announces_too_much_is_refused_unread(open_door: Doors) -> None:
    door = await open_door(options=HttpOptions(max_body_bytes=100))

    answer = await raw(
        door, b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", until=b"}}"
    )

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"request_too_large"' in answer


async def test_a_chunked_body_is_bounded_too(open_door: Doors) -> None:
    door = await open_door(options=HttpOptions(max_body_bytes=100))
    chunk = b"64\r\n" + b" " * 100 + b"\r\n"

    answer = await raw(
        door,
        b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + chunk,
        until=b"}}",
    )

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_does_not_come_is_not_waited_for(open_door: Doors) -> None:
    door = await open_door(options=HttpOptions(body_timeout=0.01))

    answer = await raw(door, b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", until=b"}}")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"did not come" in answer


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(door: Door) -> None:
    body = json.dumps(door.asking()).encode()
    reader, writer = await asyncio.open_connection(door.address.host, door.address.port)
    head = b"POST /v1/responses/input_tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(head + b"Expect: 100-Continue\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
    async with asyncio.timeout(BOUND):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        answer = await reader.read()
    writer.close()

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b'"input_tokens":5}')


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 999\r\n\r\n", b"413"),
        (b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nExpect: else\r\nContent-Length: 2\r\n\r\n{}", b"415"),
        (b"POST /v1/responses HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", b"415"),
    ],
)
async def test_nobody_is_asked_for_a_body_that_is_not_wanted_or_comes_anyway(
    open_door: Doors, head: bytes, status: bytes
) -> None:
    door = await open_door(options=HttpOptions(max_body_bytes=100))

    assert (await raw(door, head, until=b"}}")).split()[1] == status


async def test_who_has_no_key_is_refused_before_a_body_is_read(open_door: Doors) -> None:
    door = await open_door(keys="alice:sk-alice-000000000000\n")

    answer = await raw(door, b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", until=b"}}")

    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("sent", [b"", b"GET /v1/models HTT", b"GET /v1/models HTTP/1.1\r\nHost: x\r\nSlow: "])
async def test_a_connection_without_a_request_is_not_kept_for_ever(open_door: Doors, sent: bytes) -> None:
    door = await open_door(options=HttpOptions(keep_alive=0.05))

    assert await raw(door, sent) == b""


async def test_a_client_that_went_away_is_no_failure_of_ours(
    open_door: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async def upgrade(request: web.BaseRequest) -> web.StreamResponse:
        raise ClientConnectionResetError("Cannot write to closing transport")

    door = await open_door(websocket=upgrade)

    head = b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    assert await raw(door, head) == b""
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_an_upgrade_is_told_to_use_http_where_there_are_no_websockets(door: Door) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}

    assert await door.refusal("GET", "/v1/responses", headers=headers) == (426, "upgrade_required", None)
    assert (await door.ask("GET", "/v1/models"))[0] == 200


async def test_an_upgrade_goes_to_whoever_serves_websockets(open_door: Doors) -> None:
    async def upgrade(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=json.dumps(request.path))

    door = await open_door(websocket=upgrade)
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}

    assert (await door.ask("GET", "/v1/responses?model=x", headers=headers))[1] == "/v1/responses"
    assert (await door.refusal("GET", "/v1/responses"))[:2] == (405, "method_not_supported")


async def test_a_unix_socket_works_and_is_gone_afterwards(open_door: Doors, tmp_path: Path) -> None:
    door = await open_door(address=f"unix:{tmp_path}/door.sock")

    assert (await door.answers("hello"))["status"] == "completed"


async def test_a_draining_server_lets_responses_end_and_refuses_new_ones(door: Door) -> None:
    stream = await door.stream()
    await stream.until("created")
    sampling = await door.sampling()
    door.room.go_away("shutdown", 30, retry_after=0.0)
    stopping = asyncio.create_task(door.server.stop(30))
    await asyncio.sleep(0)

    status, body, response = await door.ask("POST", "/v1/responses", json=door.asking())
    assert (status, body["error"]["code"]) == (503, "server_shutting_down")
    assert response.headers["retry-after"] == "1"
    door.say(sampling, "in time")
    door.engine.finish(0)
    assert (await stream.until("completed"))["response"]["output"][0]["content"][0]["text"] == "in time"
    assert await stream.next() is None

    async with asyncio.timeout(BOUND):
        await stopping


async def test_a_server_that_stops_at_once_cuts_streams_off(door: Door) -> None:
    stream: Stream = await door.stream()
    await stream.until("created")

    async with asyncio.timeout(BOUND):
        await door.server.stop(0)

    await door.told(0, "abort")
    stream.response.close()


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("gzip, deflate", "gzip"), ("gzip, deflate, br, zstd", "zstd"), ("zstd;q=0, gzip", "gzip"), ("br, *", None)],
)
async def test_streams_are_compressed_so_that_no_event_waits(
    open_door: Doors, offered: str, chosen: str | None
) -> None:
    door = await open_door(options=HttpOptions(compression=True))
    headers = {"Accept-Encoding": offered}
    stream = await door.stream_with(headers)
    assert stream.response.headers.get("content-encoding") == chosen
    assert stream.response.headers["vary"] == "Accept-Encoding"
    await stream.until("created")
    sampling = await door.sampling()
    for word in ("one", "two"):
        door.say(sampling, word)
        assert (await stream.until("output_text.delta"))["delta"] == word
    door.clock.advance(15)
    assert await stream.frame() == ": keep-alive"
    door.engine.finish(0)
    await stream.until("completed")
    assert await stream.next() is None


async def test_streams_are_not_compressed_unless_told_so(door: Door) -> None:
    stream = await door.stream_with({"Accept-Encoding": "zstd, gzip"})

    assert "content-encoding" not in stream.response.headers
    stream.response.close()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "HTTPS traffic"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n", "header"),
        (b"GET / HTTP/1.1\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret" + b"x" * 9000 + b"\r\n\r\n", "8190 bytes"),
    ],
)
async def test_what_is_no_http_is_answered_in_the_official_form(door: Door, sent: bytes, said: str) -> None:
    reader, writer = await asyncio.open_connection(door.address.host, door.address.port)
    writer.write(sent)
    async with asyncio.timeout(BOUND):
        answer = await reader.read()
    writer.close()

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 " in head.splitlines()[0]
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_request_error")
    assert said in error["message"]
    assert b"s3cret" not in answer
