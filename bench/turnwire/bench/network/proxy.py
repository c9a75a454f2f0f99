"""A TCP proxy with the delay and bandwidth of a network: `python -m turnwire.bench.network.proxy --help`.

Above it: the runner, which starts it in a process of its own. Below it: `link`, which says when bytes leave, and
`alarm`, which wakes it then. It prints where it listens for each target, and at `stats` tells in one JSON object what
passed so far and how late it was against what was set; then it closes that connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import uvloop

from turnwire.bench.network.alarm import Alarm
from turnwire.bench.network.link import Link, Path

HOST: Final = "127.0.0.1"
QUEUE: Final = 32 * 1024**2
"""Bytes under way in one direction of a connection, over which its sender is not read from: more than a window of TCP
holds, so that it does not bound a long path before the sender would."""
_LATE_STEP: Final = 1e-5
_LATE_STEPS: Final = 2_000


class Lateness:
    """How late bytes left, in a histogram of 10 µs steps up to 20 ms."""

    def __init__(self) -> None:
        """Begins empty."""
        self._counts = [0] * (_LATE_STEPS + 1)
        self._largest = 0.0
        self._sum = 0.0
        self._total = 0

    def add(self, seconds: float) -> None:
        """Notes one piece."""
        self._counts[min(_LATE_STEPS, max(0, int(seconds / _LATE_STEP)))] += 1
        self._total += 1
        self._sum += seconds
        self._largest = max(self._largest, seconds)

    def summary(self) -> dict[str, float]:
        """Returns the number of pieces, and mean, p50, p99 and maximum in seconds; percentiles to 10 µs upwards."""
        mean = self._sum / self._total if self._total else 0.0
        return {
            "pieces": self._total,
            "mean": mean,
            "p50": self._quantile(0.5),
            "p99": self._quantile(0.99),
            "max": self._largest,
        }

    def _quantile(self, share: float) -> float:
        seen = 0
        for step, number in enumerate(self._counts):
            seen += number
            if number and seen >= share * self._total:
                return min((step + 1) * _LATE_STEP, self._largest)
        return 0.0


class Counts:
    """What passed, over all connections to one target."""

    def __init__(self) -> None:
        """Begins with nothing."""
        self.connections = 0
        self.up = 0
        """Bytes from clients."""
        self.down = 0
        """Bytes to clients."""


class _Half(asyncio.Protocol):
    """One end of a connection: what it reads leaves, later, at the other one."""

    def __init__(self, link: Link, proxy: Proxy, count: Callable[[int], None]) -> None:
        self._link = link
        self._alarm = proxy.alarm
        self._lateness = proxy.lateness
        self._open = proxy.open
        self._count = count
        self._waiting: deque[bytes] = deque()
        self._queued = 0
        self._early: list[bytes] = []
        """What came while the connection was made: event loops may read before they can be told not to."""
        self.ended = False
        """Whether no more will be read."""
        self._stuffed = False
        self.lost = asyncio.Event()
        """Set once the connection is closed."""
        self.other: _Half
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport, and writes what came before it."""
        self.transport = cast("asyncio.Transport", transport)
        self._open.add(self)
        for data in self._early:
            self.transport.write(data)
        self._early.clear()
        if self.other.lost.is_set():
            self.transport.close()
        elif self.other.ended:
            self.other.end_other()

    def data_received(self, data: bytes) -> None:
        """Sends bytes on their way."""
        self._count(len(data))
        if self._link.transparent and not self._waiting:
            self.other.write(data)
            return
        at = 0
        for due, size in self._link.enter(time.monotonic(), len(data)):
            self._waiting.append(data[at : at + size])
            self._alarm.call_at(due, self._due)
            at += size
        self._queued += len(data)
        self._throttle()

    def _due(self, when: float) -> None:
        data = self._waiting.popleft()
        self._queued -= len(data)
        self._lateness.add(time.monotonic() - when)
        self.other.write(data)
        self._throttle()

    def write(self, data: bytes) -> None:
        """Writes at this end, once there is a connection; drops it where this end is gone."""
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def _throttle(self) -> None:
        if self.transport is None or self.transport.is_closing() or self.ended:
            return
        if self._queued > QUEUE or self._stuffed:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Stops reading at the other end, which this one cannot keep up with."""
        self.other.stuffed(full=True)

    def resume_writing(self) -> None:
        """Lets the other end be read again."""
        self.other.stuffed(full=False)

    def stuffed(self, *, full: bool) -> None:
        """Takes that the other end cannot be written to, or can again."""
        self._stuffed = full
        self._throttle()

    def eof_received(self) -> bool:
        """Sends the end of this half on its way; the other half may go on."""
        self.ended = True
        self._at_end(self.end_other)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the other end, once what is under way has arrived there."""
        self._open.discard(self)
        self.lost.set()
        self.ended = True
        self._at_end(self.other.close)

    def _at_end(self, then: Callable[[], None]) -> None:
        if self._link.transparent:
            then()
        else:
            self._alarm.call_at(self._link.end(time.monotonic()), lambda _: then())

    def end_other(self) -> None:
        """Ends what is written at the other end, where it has a connection."""
        other = self.other.transport
        if other is not None and not other.is_closing() and other.can_write_eof():
            other.write_eof()

    def close(self) -> None:
        """Closes this end, once all is written. Idempotent."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Closes this end at once. Idempotent."""
        if self.transport is not None:
            self.transport.abort()


class Proxy:
    """Listens for any number of targets, all over the same kind of path."""

    def __init__(self, path: Path) -> None:
        """Takes the path; needs a running event loop."""
        self._path = path
        self.alarm = Alarm()
        """What wakes all links."""
        self.lateness = Lateness()
        """Of all links."""
        self.open: set[_Half] = set()
        """Ends that are connected."""
        self._counts: dict[str, Counts] = {}
        self._servers: list[asyncio.Server] = []
        self._connecting: set[asyncio.Task[None]] = set()

    async def listen(self, name: str, host: str, port: int) -> int:
        """Listens for clients of a target, at a free port, which is returned. Cancelling it is safe."""
        counts = self._counts[name] = Counts()
        loop = asyncio.get_running_loop()

        def accept() -> asyncio.Protocol:
            return self._accept(counts, host, port)

        server = await loop.create_server(accept, HOST, 0, backlog=4096)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _accept(self, counts: Counts, host: str, port: int) -> _Half:
        now = time.monotonic()
        counts.connections += 1

        def up(size: int) -> None:
            counts.up += size

        def down(size: int) -> None:
            counts.down += size

        near = _Client(Link(self._path, now), self, up)
        # The server answers what came after the handshake.
        far = _Half(Link(self._path, now - self._path.rtt), self, down)
        near.other, far.other = far, near

        def connect() -> None:
            task = asyncio.get_running_loop().create_task(_connect(near, far, host, port))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

        near.accepted = connect
        return near

    async def stats(self) -> int:
        """Serves `summary` at a free port, which is returned. Cancelling it is safe."""

        async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(json.dumps(self.summary()).encode())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(tell, HOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def summary(self) -> dict[str, Any]:
        """Returns what passed by target, and how late pieces left."""
        return {
            "targets": {name: vars(counts) for name, counts in self._counts.items()},
            "lateness": self.lateness.summary(),
        }

    async def aclose(self) -> None:
        """Stops listening, closes all connections and drops what is under way. Cancelling it may leave some open."""
        for server in self._servers:
            server.close()
        for task in self._connecting:
            task.cancel()
        self.alarm.close()
        for half in tuple(self.open):
            half.abort()
        await asyncio.gather(*(half.lost.wait() for half in tuple(self.open)))


class _Client(_Half):
    """The end at the client's side, which is read once the server's side is connected."""

    accepted: Callable[[], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport, and connects to the server."""
        super().connection_made(transport)
        cast("asyncio.Transport", transport).pause_reading()
        self.accepted()


async def _connect(near: _Half, far: _Half, host: str, port: int) -> None:
    try:
        await asyncio.get_running_loop().create_connection(lambda: far, host, port)
    except OSError as error:
        print(f"cannot reach {host}:{port}: {error}", file=sys.stderr)
        near.close()
    else:
        near.stuffed(full=False)


async def _run(path: Path, targets: Sequence[tuple[str, str, int]]) -> None:
    proxy = Proxy(path)
    for name, host, port in targets:
        print(f"{name} listening on {HOST}:{await proxy.listen(name, host, port)}", flush=True)
    print(f"stats listening on {HOST}:{await proxy.stats()}", flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await proxy.aclose()


def _target(text: str) -> tuple[str, str, int]:
    name, _, address = text.partition("=")
    host, _, port = address.rpartition(":")
    if not name or not host or not port.isdigit() or not 0 < int(port) < 65536:
        msg = f"expected NAME=HOST:PORT, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return name, host, int(port)


def main() -> None:
    """Runs it until it is told to end."""
    # Two files for each connection.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    parser = argparse.ArgumentParser(description="A TCP proxy with the delay and bandwidth of a network.")
    parser.add_argument("targets", nargs="+", type=_target, metavar="NAME=HOST:PORT", help="what to stand in front of")
    parser.add_argument("--rtt-ms", type=float, default=0.0, help="round trip in milliseconds [0]")
    parser.add_argument("--bandwidth-mbit", type=float, default=0.0, help="each way and connection; 0: no limit [0]")
    parser.add_argument("--slow-start", action="store_true", help="model the window of TCP; see the module `link`")
    options = parser.parse_args()
    if not (0 <= options.rtt_ms <= 10_000 and 0 <= options.bandwidth_mbit <= 100_000):
        parser.error("--rtt-ms is from 0 to 10000, --bandwidth-mbit from 0 to 100000")
    path = Path(options.rtt_ms / 1000, options.bandwidth_mbit * 1e6, options.slow_start)
    uvloop.run(_run(path, options.targets))


if __name__ == "__main__":
    main()
