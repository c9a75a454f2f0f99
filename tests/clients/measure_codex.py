"""How long the Codex CLI takes to repair the sample project, and how many bytes pass; run by hand.

    .venv/bin/python -m tests.clients.measure_codex --runs 5
    .venv/bin/python -m tests.clients.measure_codex --base-url http://127.0.0.1:8080/v1 --grpc 127.0.0.1:50051

Above it: nothing. Below it: Codex, relays that count what passes on the wire, a bridge in this process with a relay on
either side, and a server with the scripted engine unless another is named that plays `scenarios/codex.toml`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from turnwire.bridge.app import Bridge
from turnwire.bridge.config import BridgeConfig
from turnwire.client.demo.sample import copy_project, plain_pytest, run_tests
from turnwire.server.address import Address

from .harness.codex import Codex
from .harness.relay import Relay
from .harness.server import serving


class Way(NamedTuple):
    """How Codex reaches the server."""

    websockets: bool = False
    compressed: bool = True
    """Whether the server sees that compression is offered."""
    bridged: bool = False


WAYS: Final = {
    "HTTP and SSE": Way(),
    "WebSocket": Way(websockets=True),
    "WebSocket, not compressed": Way(websockets=True, compressed=False),
    "bridge, by HTTP and SSE": Way(bridged=True),
    "bridge, by WebSocket": Way(websockets=True, bridged=True),
}
"""By name."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run."""

    seconds: float
    sent: int
    received: int
    connections: int
    behind_sent: int = 0
    behind_received: int = 0
    """Between the bridge and the server, over gRPC."""


async def measure(base_url: str, grpc: str, folder: Path, way: Way) -> Figures:
    """Lets Codex repair a copy of the sample project once.

    Raises:
        RuntimeError: It did not.
    """
    port = urlsplit(base_url).port
    assert port is not None
    project = copy_project(folder / "project")
    async with AsyncExitStack() as stack:
        behind = Relay(int(grpc.rpartition(":")[2])) if way.bridged else None
        if behind is not None:
            await stack.enter_async_context(behind.listening())
            bridge = Bridge(BridgeConfig(server=f"grpc://127.0.0.1:{behind.port}", fallback=None))
            stack.push_async_callback(bridge.stop, 0)
            port = (await bridge.listen(Address("127.0.0.1", 0))).port
        relay = Relay(port, hides_extensions=not way.compressed)
        await stack.enter_async_context(relay.listening())
        url = f"http://127.0.0.1:{relay.port}/v1"
        run = await Codex(folder / "home", websockets=way.websockets).exec(url, project)
    with plain_pytest():
        after = await run_tests(project)
    if not after.passed:
        msg = f"not repaired: {after.summary}; {run.failure or run.stderr}"
        raise RuntimeError(msg)
    further = (0, 0) if behind is None else (behind.sent, behind.received)
    return Figures(run.seconds, relay.sent, relay.received, relay.connections, *further)


async def main() -> None:
    """Measures the transports, alternately, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each transport [5]")
    parser.add_argument("--base-url", default="", help="of a running server, with /v1; else one is started")
    parser.add_argument("--grpc", default="", help="HOST:PORT of the same server, for bridges")
    given = parser.parse_args()
    reachable = bool(given.grpc or not given.base_url)
    figures: dict[str, list[Figures]] = {name: [] for name, way in WAYS.items() if reachable or not way.bridged}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with nullcontext(None) if given.base_url else serving("codex", folder) as server:
            base_url, grpc = (given.base_url, given.grpc) if server is None else (server.base_url, server.grpc)
            # The first run of each unpacks what Codex brings along, and warms the machine; it does not count.
            for number in range(given.runs + 1):
                for at, (name, runs) in enumerate(figures.items()):
                    one = await measure(base_url, grpc, folder / f"{at}-{number}", WAYS[name])
                    if number:
                        runs.append(one)
    print("| way | seconds (min to max) | bytes sent | received | behind the bridge: sent | received | connections |")
    print("|---|---|---|---|---|---|---|")
    for name, runs in figures.items():
        seconds = sorted(run.seconds for run in runs)
        span = f"{median(seconds):.2f} ({seconds[0]:.2f} to {seconds[-1]:.2f})"
        columns = zip(*((r.sent, r.received, r.behind_sent, r.behind_received) for r in runs), strict=True)
        counts = " | ".join(f"{median(values):,.0f}" if any(values) else "" for values in columns)
        print(f"| {name} | {span} | {counts} | {max(run.connections for run in runs)} |")


if __name__ == "__main__":
    asyncio.run(main())
