"""The command as its users run it: a process of its own, the packaged model, nothing else."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from turnwire.client import connect


@asynccontextmanager
async def serve(*arguments: str) -> AsyncGenerator[str]:
    command = [
        sys.executable,
        "-m",
        "turnwire.client.cli",
        "serve",
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "off",
        "--metrics",
        "off",
    ]
    process = await asyncio.create_subprocess_exec(*command, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(50):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("grpc listening on ")
        yield line.removeprefix("grpc listening on ").strip()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_server_needs_no_more_than_the_packages() -> None:
    arguments = ("--engine", "local", "--slots", "1", "--context", "512", "--threads", "1")
    async with serve(*arguments) as address, connect(address) as session:
        [model] = await session.list_models()
        async with asyncio.timeout(50):
            stream = await session.create(model=model.id, input="Hello!", max_output_tokens=16)
            response = await stream.get_final_response()
    assert model.id == "gemma-3-270m"
    assert response.usage.output_tokens > 0
