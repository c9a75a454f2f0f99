from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Kind, Target
from turnwire.server.tools.config import McpLimits, McpServer
from turnwire.server.tools.room import HostedRoom
from turnwire.v1.tool_pb2 import ToolSet

from .conftest import Hosts, declared

QUICK = McpLimits(connect_timeout=3.0, list_timeout=3.0, call_timeout=3.0)


async def call(room: HostedRoom, tools: ToolSet, tool: str, **arguments: Any) -> ToolResult:
    return await room.run(Target(Kind.MCP, "s", tool), json.dumps(arguments), tools, "")


@pytest.mark.parametrize("way", ["http", "json"])
async def test_a_server_is_listed_and_called(hosts: Hosts, way: str) -> None:
    url = await hosts.http(way)
    room, tools = hosts.room(url), declared("s", server_url=url)
    listed = await room.list_tools("s", tools, "")
    assert listed.error == ""
    assert "shout" in {json.loads(tool)["name"] for tool in listed.tools}
    assert await call(room, tools, "add", a=1, b=2) == ToolResult("3")
    assert (await call(room, tools, "fail", reason="x")).failed


async def test_headers_and_the_token_reach_the_server_and_nobody_else(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = await hosts.http()
    room = hosts.room(url)
    tools = declared("s", server_url=f"{url}?key=s3cret", headers={"X-Key": "s3cret"}, authorization="s3cret")
    await room.list_tools("s", tools, "")
    sent = await call(room, tools, "headers")
    assert "x-key: s3cret" in sent.output
    assert "authorization: Bearer s3cret" in sent.output
    await hosts.kill()
    await call(room, tools, "headers")
    await room.list_tools("s", tools, "")
    assert "s3cret" not in caplog.text


async def test_an_operators_headers_go_over_those_of_a_request(hosts: Hosts) -> None:
    url = await hosts.http()
    room = hosts.room(s=McpServer(url=url, headers={"Authorization": "Bearer operator"}))
    tools = declared("s", headers={"authorization": "mine", "x-mine": "1"})
    sent = await call(room, tools, "headers")
    assert "authorization: Bearer operator" in sent.output
    assert "x-mine: 1" in sent.output
    assert "mine\n" not in sent.output.replace("x-mine", "")


@pytest.mark.parametrize("way", ["http", "json"])
async def test_fifty_megabytes_are_cut(hosts: Hosts, way: str) -> None:
    url = await hosts.http(way)
    room = hosts.room(url, limits=McpLimits(max_message_bytes=100_000, max_output_bytes=1_000))
    tools = declared("s", server_url=url)
    result = await call(room, tools, "big", size=50_000_000)
    assert not result.failed
    assert result.output.startswith("é" * 500 + "\n[The output was cut: it has more than ")
    assert (await call(room, tools, "add", a=1, b=2)).output == "3"


async def test_a_cancelled_call_is_cancelled_at_the_server(hosts: Hosts) -> None:
    url = await hosts.http()
    room, tools = hosts.room(url), declared("s", server_url=url)
    running = asyncio.create_task(call(room, tools, "hang"))
    await hosts.witness.heard("hanging")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await hosts.witness.heard("cancelled")


async def test_a_server_that_dies(hosts: Hosts) -> None:
    url = await hosts.http()
    room, tools = hosts.room(url, limits=QUICK), declared("s", server_url=url)
    assert (await call(room, tools, "add", a=1, b=2)).output == "3"
    assert (await call(room, tools, "die")).failed
    assert (await call(room, tools, "add", a=1, b=2)).failed
    assert (await room.list_tools("s", tools, "")).error


async def test_nobody_answers(hosts: Hosts) -> None:
    async with strange(lambda reader, writer: asyncio.sleep(0)) as url:
        pass
    room = hosts.room(url, limits=QUICK)
    listed = await room.list_tools("s", declared("s", server_url=url), "")
    assert listed.error == "The MCP server 's' could not be reached."


# Servers that are none

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


@asynccontextmanager
async def strange(handler: Handler) -> AsyncGenerator[str]:
    """Serves HTTP by hand: the handler gets each connection with its request read."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await handler(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Reads a request and returns its message; {} where it has none."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0)
    body = await reader.readexactly(length)
    return json.loads(body) if body else {}


def reply(body: bytes, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def always(data: bytes) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read(reader)
            writer.write(data)
            await writer.drain()

    return handler


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<html>hello</html>", kind="text/html"),
        reply(b"x" * 1_000_000, "500 Internal Server Error"),
        reply(b'{"s3cret": 1}', "401 Unauthorized"),
        reply(b"not json"),
        reply(b"\xff\xfe"),
        reply(b"[" * 100_000),
        reply(b"", "204 No Content"),
        reply(b"", "307 Temporary Redirect", location="http://127.0.0.1:1/mcp"),
        reply(gzip.compress(b"{}"), content_encoding="gzip"),
        reply(b'{"jsonrpc":"2.0","id":999,"result":{}}'),
        reply(b"data: nonsense\n\n", kind="text/event-stream"),
        reply(b"data: " + b"x" * 1_000_000 + b"\n\n", kind="text/event-stream"),
        b"nonsense\r\n\r\n",
    ],
)
async def test_what_is_no_mcp_server_is_a_failed_listing(hosts: Hosts, answer: bytes) -> None:
    limits = McpLimits(connect_timeout=2.0, list_timeout=2.0, max_message_bytes=10_000)
    async with strange(always(answer)) as url:
        room = hosts.room(url, limits=limits)
        listed = await room.list_tools("s", declared("s", server_url=url), "")
        assert listed.tools == ()
        assert listed.error
        assert "s3cret" not in listed.error
        await room.aclose()


async def test_a_server_that_was_restarted_is_greeted_again(hosts: Hosts) -> None:
    greeted = 0
    forgotten: set[str] = set()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        while True:
            message = await read(reader)
            method = message.get("method")
            result: dict[str, Any] | None = None
            if method == "initialize":
                greeted += 1
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "serverInfo": {"name": "x", "version": "1"},
                }
            elif method == "tools/call" and greeted == 1:
                writer.write(reply(b"", "404 Not Found"))
                forgotten.add("session")
            elif method == "tools/call":
                result = {"content": [{"type": "text", "text": "ok"}]}
            elif method == "server/discover":
                writer.write(reply(b"", "404 Not Found"))
            else:
                writer.write(reply(b"", "202 Accepted"))
            if result is not None:
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                writer.write(reply(body, mcp_session_id=f"session-{greeted}"))
            await writer.drain()

    async with strange(handler) as url:
        room, tools = hosts.room(url, limits=QUICK), declared("s", server_url=url)
        first, second = await call(room, tools, "t"), await call(room, tools, "t")
        assert first.output == "The MCP server 's' ended its session."
        assert second == ToolResult("ok")
        assert greeted == 2
        await room.aclose()
