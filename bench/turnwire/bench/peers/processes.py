"""Gateways as running processes: what they cost with all their children, and how they are ended.

Above it: `checking` and `measuring`. Below it: the kernel's counters (Linux), and the gateways' own commands. A gateway
gets no more of our environment than PATH, a HOME of its own and what its file names.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from turnwire.bench.fakes.upstream import MODEL
from turnwire.bench.peers.clients import Client, Grpc, Socket, Sse
from turnwire.bench.peers.port import Gateway, Place, Transport

_CPU_CLOCK: Final = 2
"""CPUCLOCK_SCHED of Linux: what a process has run, in nanoseconds."""
_GOODBYE: Final = 15.0
"""Seconds that a gateway may take to end by itself."""
_WORDS: Final = 2000
"""Characters of a gateway's last words."""


def members(session: int) -> list[int]:
    """Returns the processes of a session: one that was started as its leader, and all that it has begun since."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text(encoding="utf-8", errors="replace").rsplit(") ", 1)[1]
            except OSError:
                # It ended meanwhile.
                continue
            if int(fields.split()[3]) == session:
                found.append(int(name))
    return found


def cpu(pids: Mapping[int, float]) -> float:
    """Returns the seconds that processes have run since, from what each had run before; those that ended count as
    nothing."""
    return sum(max(0.0, now - pids[pid]) for pid, now in clocks(list(pids)).items())


def clocks(pids: list[int]) -> dict[int, float]:
    """Returns what each process has run so far, in seconds, all its threads together."""
    found: dict[int, float] = {}
    for pid in pids:
        try:
            found[pid] = time.clock_gettime((~pid << 3) | _CPU_CLOCK)
        except OSError:
            continue
    return found


def resident(pids: list[int]) -> int:
    """Returns the resident memory of processes, in bytes; what they share counts for each."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Running:
    """A gateway that was started."""

    gateway: Gateway
    place: Place
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    def pids(self) -> list[int]:
        """Returns its process and all that it has begun."""
        return members(self.process.pid)

    def dead(self) -> bool:
        """Whether it ended."""
        return self.process.poll() is not None

    def words(self) -> str:
        """Returns the last of what it said, on one line, without its key."""
        self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, self.output.tell() - _WORDS))
        said = self.output.read().decode(errors="replace").replace(self.place.key, "KEY")
        return " ".join(said.split())

    def client(self, transport: Transport) -> Client:
        """Returns a client of it, not yet connected."""
        url = f"http://127.0.0.1:{self.place.http}"
        model = self.gateway.model or MODEL
        if transport == "grpc":
            return Grpc(f"127.0.0.1:{self.place.spare}")
        made = Socket if transport == "ws" else Sse
        return made(url, key=self.place.key, model=model)

    def terminate(self) -> None:
        """Asks it to end, and does not wait; `stop` has to follow."""
        if not self.dead():
            self.process.terminate()

    def stop(self) -> None:
        """Ends it and what it began, the hard way where it does not end in time."""
        self.terminate()
        try:
            self.process.wait(timeout=_GOODBYE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in members(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.output.close()
        shutil.rmtree(self.place.folder, ignore_errors=True)


def start(gateway: Gateway, python: Path, upstream: str) -> Running:
    """Starts a gateway in front of an upstream; it does not listen yet, and has to be stopped.

    Raises:
        OSError: Its command cannot be run.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"turnwire-peers-{gateway.name}-"))
    http, spare = free_ports(2)
    place = Place(python, upstream, http, spare, folder, f"sk-{secrets.token_hex(24)}")
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    try:
        launch = gateway.launch(place)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **launch.environment}
        process = subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    except BaseException:
        output.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Running(gateway, place, process, output)


def free_ports(number: int) -> list[int]:
    """Returns ports of the loopback that nobody listens at now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
