"""Runs one shell command in a process group of its own and always ends the whole group.

Used by `workspace` for `run_command`. POSIX only. Not a sandbox: the command may do whatever the user may do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwire.client.agent.output import DEFAULT_LIMIT, BoundedOutput

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:KEYS?|APIKEYS?|ACCESS_KEY_ID|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)$",
    re.IGNORECASE,
)
_READ_SIZE = 64 * 1024
_DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left behind."""

    exit_code: int | None
    """None if it was ended because its time was up; negative if a signal ended it."""
    output: str
    """Standard output and standard error as they came, the middle left out if they are long."""

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because its time was up."""
        return self.exit_code is None


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables a command may see: none that looks like a secret, and this Python first in PATH.

    Secrets are told by their name only (`*_API_KEY`, `*_TOKEN`, `*_SECRET`, `*_PASSWORD`, ...); one inside another
    value, such as a password in a URL, passes.
    """
    allowed = {name: value for name, value in environment.items() if not _SECRET_NAME.search(name)}
    # Not resolved: in a virtual environment `python` is a link, and its folder is what makes it that environment.
    interpreter = str(Path(sys.executable).parent)
    allowed["PATH"] = os.pathsep.join(filter(None, (interpreter, allowed.get("PATH", os.defpath))))
    # Compiled files are told apart by size and whole seconds; an agent edits and tests several times within one, and
    # would now and then run the code of before its edit.
    allowed["PYTHONDONTWRITEBYTECODE"] = "1"
    return allowed


async def run_shell(
    command: str, *, folder: Path, timeout_seconds: float, max_output_bytes: int = DEFAULT_LIMIT
) -> CommandResult:
    """Runs `command` with `/bin/sh` in `folder`, without input, and waits until it ends or its time is up.

    When the shell ends, so does everything it left running in the background of its group.

    Cancelling this is safe: the whole group is killed before the cancellation goes on.

    Raises:
        OSError: The shell could not be started.
        ValueError: The command holds a NUL character.
    """
    output = BoundedOutput(max_output_bytes)
    async with _pipe() as (reader, write_end):
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                command,
                cwd=folder,
                env=command_environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        draining = asyncio.ensure_future(_drain(reader, output))
        exit_code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    exit_code = await process.wait()
        finally:
            _kill_group(process.pid)
            try:
                # What the group wrote before its end is still in the pipe. A process that left the group may hold
                # the pipe open for as long as it likes, hence the bound.
                await asyncio.wait([draining], timeout=_DRAIN_SECONDS)
                await process.wait()
            finally:
                draining.cancel()
    return CommandResult(exit_code, output.text())


@contextlib.asynccontextmanager
async def _pipe() -> AsyncGenerator[tuple[asyncio.StreamReader, int], None]:
    """Opens a pipe that is read here and written by a child.

    A pipe of our own rather than the subprocess transport's, because there `wait()` may last until the pipe is
    closed, which a process left in the background delays; here the end of the shell and of its output stay apart.
    """
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=_READ_SIZE)
    file = os.fdopen(read_end, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    except BaseException:
        file.close()
        os.close(write_end)
        raise
    try:
        yield reader, write_end
    finally:
        transport.close()


async def _drain(reader: asyncio.StreamReader, output: BoundedOutput) -> None:
    while data := await reader.read(_READ_SIZE):
        output.feed(data)


def _kill_group(pid: int) -> None:
    # The group outlives the shell as long as it has a member, and until then its number is not given to another. If it
    # is empty already, there is nobody to kill, and pids come round far too slowly for it to mean somebody else.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
