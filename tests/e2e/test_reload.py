"""SIGHUP to a real server: its registry file is read again while it serves."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnwire.client import connect

BOUND = 30.0
SCENARIO = """
[model]
names = ["{0}"]
[speed]
ttft_ms = 1
tokens_per_second = 50
[[turn]]
text = {{ tokens = 100000 }}
"""
REGISTRY = """
[engines.play]
kind = "scripted"
scenario = "{0}.toml"
[models.{0}]
engine = "play"
aliases = ["default"]
"""


class Server:
    def __init__(self, process: asyncio.subprocess.Process, models: Path) -> None:
        self.process = process
        self.models = models
        self.address = ""
        self.metrics = ""

    async def reload(self, text: str) -> None:
        self.models.write_text(text)
        self.process.send_signal(signal.SIGHUP)

    async def logged(self, pattern: str) -> str:
        """Waits for a line of the log."""
        assert self.process.stderr is not None
        async with asyncio.timeout(BOUND):
            while True:
                line = (await self.process.stderr.readline()).decode()
                assert line, f"the server ended before it logged {pattern}"
                if re.search(pattern, line):
                    return line

    async def scrape(self) -> str:
        host, _, port = self.metrics.rpartition(":")
        async with asyncio.timeout(BOUND):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
        return answer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    for name in ("old", "new"):
        (tmp_path / f"{name}.toml").write_text(SCENARIO.format(name))
    models = tmp_path / "models.toml"
    models.write_text(REGISTRY.format("old"))
    settings = ("--models", str(models), "--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "turnwire.client.cli",
        "serve",
        *settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")},
    )
    try:
        running = Server(process, models)
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            running.address = (await process.stdout.readline()).decode().removeprefix("grpc listening on ").strip()
            line = (await process.stdout.readline()).decode().strip()
        running.metrics = line.removeprefix("metrics listening on http://").removesuffix("/metrics")
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_signal_changes_what_is_served_and_what_runs_goes_on(server: Server) -> None:
    async with connect(server.address) as session:
        stream = await session.create(model="default", input="Hi.")
        deltas = aiter(stream.text_deltas())
        async with asyncio.timeout(BOUND):
            await anext(deltas)
        await server.reload(REGISTRY.format("new"))
        await server.logged("0 engines as before, 1 new, 1 closed when idle; models: new")
        assert [model.id for model in await session.list_models()] == ["new"]
        second = await session.create(model="default", input="Hi.", lane="second")
        assert second.response.model == "new"
        async with asyncio.timeout(BOUND):
            await anext(aiter(second.text_deltas()))
            # The first is on its old engine still, whose model nobody can ask for any more.
            for _ in range(3):
                await anext(deltas)
        assert stream.response.model == "old"
        await stream.cancel()
        await second.cancel()
    assert 'turnwire_registry_reloads_total{outcome="applied"} 1.0' in await server.scrape()


async def test_a_file_with_mistakes_is_told_and_changes_nothing(server: Server) -> None:
    await server.reload(REGISTRY.format("old").replace("aliases", "alias"))
    assert "models.toml:7: key 'models.old.alias': unknown key" in await server.logged("unknown key")
    await server.logged("what was served before is served still")
    async with connect(server.address) as session:
        assert [model.id for model in await session.list_models()] == ["old"]
        stream = await session.create(model="default", input="Hi.")
        await stream.cancel()
    assert 'turnwire_registry_reloads_total{outcome="refused"} 1.0' in await server.scrape()
