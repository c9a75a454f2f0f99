"""A turnwire server in a process of its own, for as long as the demo takes.

Above it: `show`. Below it: the `turnwire serve` command, by its command line only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from turnwire.client.exceptions import TurnwireError

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_READY: Final = "grpc listening on "
_SHOWN_LOG: Final = 2000


class ServerError(TurnwireError):
    """The server did not start; the message has what it said."""


@asynccontextmanager
async def scripted_server(folder: Path) -> AsyncGenerator[str, None]:
    """Runs a server with the scripted engine and its packaged scenario, and yields the address it listens on.

    Cancelling it is safe: the server is ended.

    Args:
        folder: Where it may keep its log.

    Raises:
        ServerError: It did not start.
    """
    log = folder / "server.log"
    command = [sys.executable, "-m", "turnwire.client.cli", "serve"]
    flags = ["--engine", "scripted", "--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "off"]
    # Neither variables nor a file of whoever runs the demo shall change what it shows.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            *flags,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield await _address(process, log)
    finally:
        await _stop(process)


async def _address(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            while line := (await process.stdout.readline()).decode(errors="replace"):
                if line.startswith(_READY):
                    return line.removeprefix(_READY).strip()
            await process.wait()
        reason = f"ended with code {process.returncode}"
    except TimeoutError:
        reason = f"was not ready within {_START_SECONDS:g} s"
    said = (await asyncio.to_thread(log.read_text, encoding="utf-8", errors="replace")).strip()[-_SHOWN_LOG:]
    msg = f"the demo's server {reason}: {said or 'it said nothing'}"
    raise ServerError(msg)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
