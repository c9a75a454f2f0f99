"""The proxy over loopback: what arrives, in which order, and what it counts; not when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import uvloop

from turnwire.bench.network.link import Path
from turnwire.bench.network.proxy import HOST, Lateness, Proxy

PATHS = [Path(), Path(rtt=0.002), Path(rtt=0.002, bandwidth=100e6, slow_start=True)]


SERVING: set[asyncio.Task[None]] = set()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    task = asyncio.current_task()
    assert task
    SERVING.add(task)
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"END")
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    SERVING.discard(task)


@asynccontextmanager
async def proxied(path: Path) -> AsyncGenerator[tuple[Proxy, int], None]:
    server = await asyncio.start_server(echo, HOST, 0)
    proxy = Proxy(path)
    try:
        yield proxy, await proxy.listen("echo", HOST, server.sockets[0].getsockname()[1])
    finally:
        await proxy.aclose()
        server.close()
        await asyncio.gather(*SERVING, return_exceptions=True)


@pytest.mark.parametrize("path", PATHS)
async def test_bytes_arrive_whole_and_in_order_and_the_end_comes_last(path: Path) -> None:
    sent = b"".join(b"%07d " % n for n in range(30_000))
    async with proxied(path) as (proxy, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read(-1) == sent + b"END"
        writer.close()
        await writer.wait_closed()
        counts = proxy.summary()["targets"]["echo"]
        assert counts == {"connections": 1, "up": len(sent), "down": len(sent) + 3}


async def test_delayed_pieces_are_never_early() -> None:
    async with proxied(Path(rtt=0.002)) as (proxy, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        for _ in range(20):
            writer.write(b"x")
            await reader.readexactly(1)
        writer.close()
        await writer.wait_closed()
        lateness = proxy.summary()["lateness"]
        assert lateness["pieces"] == 40
        assert lateness["mean"] >= 0


async def test_a_target_that_is_gone_closes_the_client() -> None:
    server = await asyncio.start_server(echo, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    proxy = Proxy(Path())
    reader, writer = await asyncio.open_connection(HOST, await proxy.listen("gone", HOST, port))
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await proxy.aclose()


async def test_what_passed_can_be_asked_for() -> None:
    async with proxied(Path()) as (proxy, _):
        reader, writer = await asyncio.open_connection(HOST, await proxy.stats())
        told = json.loads(await reader.read())
        writer.close()
        await writer.wait_closed()
        assert told == proxy.summary()


def test_lateness_is_summed_up() -> None:
    lateness = Lateness()
    for milliseconds in range(1, 101):
        lateness.add(milliseconds / 10_000)
    summary = lateness.summary()
    assert summary["pieces"] == 100
    assert summary["mean"] == pytest.approx(0.00505)
    assert summary["max"] == pytest.approx(0.01)
    assert summary["p50"] == pytest.approx(0.005, abs=2e-5)
    assert summary["p99"] == pytest.approx(0.0099, abs=2e-5)


def test_what_is_said_at_once_waits_for_the_connection_to_the_target() -> None:
    """A fast client has written, and even ended, before the proxy is through to the server; uvloop reads it then."""

    async def talk() -> None:
        async with proxied(Path()) as (_, port):
            for _ in range(50):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(b"early")
                writer.write_eof()
                assert await reader.read(-1) == b"earlyEND"
                writer.close()
                await writer.wait_closed()

    uvloop.run(talk())
