"""How long the Codex CLI takes to repair the sample project, and how many bytes pass; run by hand.

    .venv/bin/python -m tests.clients.measure_codex --runs 5
    .venv/bin/python -m tests.clients.measure_codex --base-url http://127.0.0.1:8080/v1

Above it: nothing. Below it: Codex, a relay that counts what passes on the wire, and a server with the scripted engine
unless `--base-url` names another that plays `scenarios/codex.toml`, be it through a bridge.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from turnwire.client.demo.sample import copy_project, plain_pytest, run_tests

from .harness.codex import Codex
from .harness.relay import Relay
from .harness.server import serving

TRANSPORTS: Final = {
    "HTTP and SSE": (False, True),
    "WebSocket": (True, True),
    "WebSocket, not compressed": (True, False),
}
"""By name: whether WebSocket is used, and whether compression is offered to the server."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run."""

    seconds: float
    sent: int
    received: int
    connections: int


async def measure(base_url: str, folder: Path, *, websockets: bool, compressed: bool) -> Figures:
    """Lets Codex repair a copy of the sample project once.

    Raises:
        RuntimeError: It did not.
    """
    port = urlsplit(base_url).port
    assert port is not None
    relay = Relay(port, hides_extensions=not compressed)
    project = copy_project(folder / "project")
    async with relay.listening():
        url = f"http://127.0.0.1:{relay.port}/v1"
        run = await Codex(folder / "home", websockets=websockets).exec(url, project)
    with plain_pytest():
        after = await run_tests(project)
    if not after.passed:
        msg = f"not repaired: {after.summary}; {run.failure or run.stderr}"
        raise RuntimeError(msg)
    return Figures(run.seconds, relay.sent, relay.received, relay.connections)


async def main() -> None:
    """Measures the transports, alternately, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each transport [5]")
    parser.add_argument("--base-url", default="", help="of a running server, with /v1; else one is started")
    given = parser.parse_args()
    figures: dict[str, list[Figures]] = {transport: [] for transport in TRANSPORTS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with nullcontext(None) if given.base_url else serving("codex", folder) as server:
            base_url = given.base_url if server is None else server.base_url
            # The first run of each unpacks what Codex brings along, and warms the machine; it does not count.
            for number in range(given.runs + 1):
                for transport, runs in figures.items():
                    websockets, compressed = TRANSPORTS[transport]
                    place = folder / f"{websockets}-{compressed}-{number}"
                    one = await measure(base_url, place, websockets=websockets, compressed=compressed)
                    if number:
                        runs.append(one)
    print("| transport | seconds (min to max) | bytes sent | bytes received | connections |")
    print("|---|---|---|---|---|")
    for transport, runs in figures.items():
        seconds = sorted(run.seconds for run in runs)
        span = f"{median(seconds):.2f} ({seconds[0]:.2f} to {seconds[-1]:.2f})"
        sent, received = (
            f"{median(values):,.0f}" for values in zip(*((r.sent, r.received) for r in runs), strict=True)
        )
        print(f"| {transport} | {span} | {sent} | {received} | {max(run.connections for run in runs)} |")


if __name__ == "__main__":
    asyncio.run(main())
