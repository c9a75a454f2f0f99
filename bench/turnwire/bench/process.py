"""A real server in a process of its own, and what it costs in CPU time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_READY: Final = "grpc listening on "


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that a process has used so far, user and system, in seconds (Linux; 10 ms steps)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server."""

    address: str
    """Where clients connect."""
    pid: int

    def cpu(self) -> float:
        """CPU time used so far, in seconds."""
        return cpu_seconds(self.pid)


@contextmanager
def server_process(scenario: str) -> Generator[ServerProcess, None, None]:
    """Runs `turnwire serve` with a scenario (TOML text) on a free loopback port, for the length of the block.

    Raises:
        RuntimeError: The server did not start; its own words are in the message.
    """
    with tempfile.TemporaryDirectory(prefix="turnwire-bench-") as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(scenario, encoding="utf-8")
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
        server = subprocess.Popen(
            [*command, "--scenario", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            line = server.stdout.readline().strip()
            if not line.startswith(_READY):
                _, words = server.communicate(timeout=10)
                msg = f"the server did not start: {words.strip() or line}"
                raise RuntimeError(msg)
            yield ServerProcess(line.removeprefix(_READY), server.pid)
        finally:
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            for pipe in (server.stdout, server.stderr):
                if pipe is not None:
                    pipe.close()
