"""MCP servers in processes of their own, and what they tell about themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest_asyncio

from turnwire.server.tools.config import McpConfig, McpLimits, McpServer, ToolsConfig
from turnwire.server.tools.room import HostedRoom
from turnwire.v1.tool_pb2 import McpTool, Tool, ToolSet

HERE = Path(__file__).parent
BOUND = 20.0


class Witness:
    """Hears what servers tell."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connected = 0
        self.gone = asyncio.Condition()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        try:
            while line := await reader.readline():
                self._lines.put_nowait(line.decode().strip())
        except ConnectionError:
            pass
        writer.close()
        async with self.gone:
            self.connected -= 1
            self.gone.notify_all()

    async def heard(self, beginning: str) -> str:
        """Waits for a line and returns its rest; what comes before it is dropped."""
        async with asyncio.timeout(BOUND):
            while not (line := await self._lines.get()).startswith(beginning):
                pass
        return line.removeprefix(beginning).strip()

    async def left(self) -> None:
        """Waits until every server has ended."""
        async with asyncio.timeout(BOUND), self.gone:
            await self.gone.wait_for(lambda: not self.connected)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    def environment(self) -> dict[str, str]:
        return {"WITNESS": str(self.port)}


class Hosts:
    """Starts servers and makes rooms that may call them."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self._processes: list[asyncio.subprocess.Process] = []
        self._rooms: list[HostedRoom] = []

    async def http(self, way: str = "http") -> str:
        """Starts a server and returns its URL."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "mcp_server.py"), way, env={**os.environ, **self.witness.environment()}
        )
        self._processes.append(process)
        return f"http://127.0.0.1:{await self.witness.heard('port ')}/mcp"

    async def kill(self) -> None:
        """Ends the server that was started last."""
        process = self._processes.pop()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    def stdio(self, **changes: Any) -> McpServer:
        """Returns a preset of the server on the SDK."""
        command = (sys.executable, str(HERE / "mcp_server.py"), "stdio")
        return replace(McpServer(command=command, env=self.witness.environment()), **changes)

    def rude(self, way: str) -> McpServer:
        """Returns a preset of the server that behaves badly."""
        return McpServer(command=(sys.executable, str(HERE / "rude_server.py"), way))

    def room(self, *urls: str, limits: McpLimits | None = None, **servers: McpServer) -> HostedRoom:
        """Returns a room of hosted tools."""
        room = HostedRoom(ToolsConfig(McpConfig(servers, urls, limits or McpLimits())))
        self._rooms.append(room)
        return room

    async def stop(self) -> None:
        for room in self._rooms:
            await room.aclose()
        while self._processes:
            await self.kill()


@pytest_asyncio.fixture
async def hosts() -> AsyncIterator[Hosts]:
    witness = Witness()
    await witness.listen()
    hosts = Hosts(witness)
    try:
        async with asyncio.timeout(50):
            yield hosts
    finally:
        await hosts.stop()
        await witness.stop()


def declared(label: str, **fields: Any) -> ToolSet:
    """A tool set with one MCP server."""
    return ToolSet(tools=[Tool(mcp=McpTool(server_label=label, **fields))])
