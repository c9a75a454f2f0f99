"""The real command in a real process: what it prints, answers and returns."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

Start = Callable[..., Awaitable[Process]]


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Starts `turnwire` with arguments; whatever still runs at the end is killed."""
    processes: list[Process] = []

    async def run(*arguments: str) -> Process:
        command = (sys.executable, "-m", "turnwire.client.cli", *arguments)
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_says_where_it_listens_and_ends_well_when_told(start: Start, number: signal.Signals) -> None:
    async with asyncio.timeout(30):
        process = await start("serve", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")

        assert re.fullmatch(r"grpc listening on 127\.0\.0\.1:[1-9]\d*", await line(process))
        match = re.fullmatch(r"metrics listening on http://127\.0\.0\.1:([1-9]\d*)/metrics", await line(process))
        assert match is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", int(match[1]))
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"\nturnwire_build_info{" in await reader.read()
        writer.close()
        await writer.wait_closed()
        process.send_signal(number)
        stdout, stderr = await process.communicate()

    assert (process.returncode, stdout) == (0, b"")
    assert b"Traceback" not in stderr


@pytest.mark.parametrize("flag", ["--grpc", "--metrics"])
async def test_a_port_in_use_is_a_failure_at_run_time(start: Start, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        async with asyncio.timeout(30):
            process = await start("serve", "--grpc", "127.0.0.1:0", "--metrics", "off", flag, taken)
            stdout, stderr = await process.communicate()

    assert (process.returncode, stdout) == (1, b"")
    assert stderr.decode().splitlines()[-1].startswith("Error: ")
    assert b"Traceback" not in stderr


async def test_a_wrong_flag_is_wrong_usage(start: Start) -> None:
    async with asyncio.timeout(30):
        process = await start("serve", "--http", "127.0.0.1:8080")
        _, stderr = await process.communicate()

    assert process.returncode == 2
    assert stderr.decode().startswith("Error: --http: HTTP and WebSocket are not available in this version")
