"""A real server over a data directory: budgets that are read again, usage beside it, and a second one refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from turnwire.client import RequestRejectedError, connect

COMMAND = (sys.executable, "-m", "turnwire.client.cli")
QUIET = ("--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "off")
BOUND = 30.0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}


async def run(*arguments: str) -> tuple[int | None, str, str]:
    """Runs a command to its end."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=_environment()
    )
    async with asyncio.timeout(BOUND):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def serving(*arguments: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """Runs a server, and yields it with its address."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("serve", *QUIET, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            line = (await process.stdout.readline()).decode()
        yield process, line.removeprefix("grpc listening on ").rstrip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


async def ask(address: str) -> None:
    async with connect(address) as session:
        await (await session.create(model="scripted", input="hi")).get_final_response()


async def logged(process: asyncio.subprocess.Process, words: str) -> None:
    """Waits until a server has logged some words."""
    assert process.stderr is not None
    async with asyncio.timeout(BOUND):
        while words not in (line := (await process.stderr.readline()).decode()):
            assert line


@pytest.mark.timeout(120)
async def test_a_server_over_a_data_directory(tmp_path: Path) -> None:
    data, budgets = tmp_path / "data", tmp_path / "budgets.toml"
    budgets.write_text('[budget."*"]\ntokens_per_day = 1\n')
    async with serving("--data-dir", str(data), "--budgets", str(budgets)) as (process, address):
        await ask(address)
        with pytest.raises(RequestRejectedError, match="insufficient_quota"):
            await ask(address)

        budgets.write_text('[budget."*"]\ntokens_per_day = 1_000_000\n')
        process.send_signal(signal.SIGHUP)
        await logged(process, "are in force")
        await ask(address)

        code, _, err = await run("serve", *QUIET, "--data-dir", str(data))
        assert code == 1
        assert f"Error: {data}: another server (process {process.pid}) is using this data directory" in err
        process.terminate()
        async with asyncio.timeout(BOUND):
            await process.wait()
    code, out, err = await run("usage", "--data-dir", str(data), "--json")

    assert (code, err) == (0, "")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert (row["key"], row["responses"]) == ("", 2)


@pytest.mark.timeout(60)
async def test_a_server_without_one_says_so(tmp_path: Path) -> None:
    async with serving() as (process, _):
        await logged(process, "responses and usage are kept in memory and end with the process: there is no --data-dir")
