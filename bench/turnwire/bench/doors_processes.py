"""What the measurement of the doors runs in processes of their own, and what these cost.

Above it: `doors`. Below it: the command line, `doors_bare`, and the kernel's counters (Linux).
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import unpack_from
from typing import Final

_COMMAND: Final = (sys.executable, "-m", "turnwire.client.cli")
_LISTENS: Final = " listening on "
_CONFIG: Final = "[limits]\nwebsocket_in_flight = 4096\nwebsocket_lanes = 65536\n"
"""More lanes on a WebSocket than the public API allows, so that one for all can be measured."""
_CPU_CLOCK: Final = 2
"""CPUCLOCK_SCHED of Linux: what a process has run, in nanoseconds."""
_TCP_INFO_BYTES: Final = 120
"""Where `tcpi_bytes_acked` and `tcpi_bytes_received` stand in Linux's `struct tcp_info`."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running process."""

    pid: int
    addresses: dict[str, str]
    """What listens where, by the name that the process gives it: `grpc`, `http`, `bridge`."""

    def cpu(self) -> float:
        """CPU time of all its threads so far, those that have ended included, in seconds."""
        return time.clock_gettime((~self.pid << 3) | _CPU_CLOCK)


@contextmanager
def running(command: Sequence[str], names: Sequence[str]) -> Generator[Process, None, None]:
    """Runs a command until the block ends; returns once it has said what listens where, for all names.

    Raises:
        RuntimeError: It ended before; its own words are in the message.
    """
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True)
        try:
            assert process.stdout is not None
            addresses: dict[str, str] = {}
            while not addresses.keys() >= set(names):
                line = process.stdout.readline()
                if not line:
                    words.seek(0)
                    msg = f"{' '.join(command)} did not start: {words.read().strip()}"
                    raise RuntimeError(msg)
                name, _, address = line.strip().partition(_LISTENS)
                addresses[name] = address
            yield Process(process.pid, addresses)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def serving(scenario: str) -> Generator[Process, None, None]:
    """Runs `turnwire serve` with a scenario (TOML text) at free loopback ports."""
    with tempfile.TemporaryDirectory(prefix="turnwire-bench-") as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(scenario, encoding="utf-8")
        config = Path(folder) / "config.toml"
        config.write_text(_CONFIG, encoding="utf-8")
        listen = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "off")
        told = ("--scenario", str(path), "--config", str(config))
        with running((*_COMMAND, "serve", *listen, *told), ("grpc", "http")) as process:
            yield process


@contextmanager
def bridging(server: Process) -> Generator[Process, None, None]:
    """Runs `turnwire bridge` in front of a server, over gRPC."""
    to = f"grpc://{server.addresses['grpc']}"
    command = (*_COMMAND, "bridge", "--listen", "127.0.0.1:0", "--to", to, "--fallback", "off")
    with running(command, ("bridge",)) as process:
        yield process


@contextmanager
def bare(recording: bytes) -> Generator[Process, None, None]:
    """Runs the servers with nothing behind them; see `doors_bare`."""
    with tempfile.NamedTemporaryFile(prefix="turnwire-bench-") as file:
        file.write(recording)
        file.flush()
        with running((sys.executable, "-m", "turnwire.bench.doors_bare", file.name), ("grpc", "http")) as process:
            yield process


def wire_bytes(port: int) -> tuple[int, int]:
    """Returns what went from and to this process over its TCP connections to a port of this machine, those that are
    open: bytes sent and received, with all framing above TCP."""
    sent = received = 0
    for connection in _connections():
        with connection:
            try:
                peer = connection.getpeername()
            except OSError:
                continue
            if peer[1] == port:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
                up, down = unpack_from("=QQ", info, _TCP_INFO_BYTES)
                sent, received = sent + up, received + down
    return sent, received


def _connections() -> Iterator[socket.socket]:
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            # It was closed meanwhile: the listing itself, for one.
            continue
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
            yield connection
        else:
            connection.close()
