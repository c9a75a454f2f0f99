"""A real `turnwire serve` in a process of its own, playing a scenario file.

Above it: the fixtures. Below it: the command line only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCENARIOS = Path(__file__).parents[1] / "scenarios"
_BOUND = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens."""

    base_url: str
    """What clients take as `base_url`: `http://127.0.0.1:PORT/v1`."""
    grpc: str
    """`127.0.0.1:PORT`."""
    process: subprocess.Popen[bytes]

    @property
    def websocket_url(self) -> str:
        """The same as a WebSocket address."""
        return self.base_url.replace("http://", "ws://", 1)


@contextmanager
def serving(scenario: str, folder: Path, *flags: str) -> Generator[Server, None, None]:
    """Serves a scenario of `SCENARIOS` at free ports of the loopback address until the block ends.

    Args:
        scenario: The file's name without its suffix.
        folder: Where the log goes.
        *flags: More options of `turnwire serve`.

    Raises:
        AssertionError: The server did not start; the message has what it said.
    """
    log = folder / f"{scenario}-server.log"
    listen = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "off"]
    command = [sys.executable, "-m", "turnwire.client.cli", "serve", *listen]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--scenario", str(SCENARIOS / f"{scenario}.toml"), *flags],
            env={name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        addresses = _addresses(process)
        assert addresses.keys() >= {"grpc", "http"}, log.read_text(encoding="utf-8", errors="replace")[-4000:]
        http = addresses["http"].removeprefix("http://").rstrip("/")
        yield Server(f"http://{http}/v1", addresses["grpc"], process)
    finally:
        _stop(process)


def _addresses(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Reads the lines that say what listens where, until both doors do; fewer where the server ended."""
    assert process.stdout is not None
    found: dict[str, str] = {}
    # Ends the server, and so the reading, if it says nothing.
    timer = threading.Timer(_BOUND, process.kill)
    timer.start()
    try:
        while not found.keys() >= {"grpc", "http"} and (line := process.stdout.readline().decode()):
            name, listens, address = line.strip().partition(" listening on ")
            if listens:
                found[name] = address
    finally:
        timer.cancel()
    return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.terminate()
    try:
        process.wait(_BOUND)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
