"""What each door costs: CPU for each streamed token, bytes on the wire, and the round trip of a turn.

    python -m turnwire.bench.doors [--runs 3] [--quick] [--json FILE]

Above it: `smoke`. Below it: clients that do nothing with what they read (`doors_clients`), real servers, a bridge, and
bare libraries (`doors_bare`), each in a process of its own. The model is simulated. Measurements of all doors take
turns, and medians are shown, since machines are noisy: compare within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import msgspec
import uvloop
from rich.console import Console
from rich.table import Column, Table

from turnwire.bench.doors_bare import LANE, PING, Recording
from turnwire.bench.doors_clients import (
    MODEL,
    Client,
    GrpcSessionClient,
    GrpcStreamsClient,
    NativeSocketClient,
    SseClient,
    WebSocketClient,
)
from turnwire.bench.doors_processes import Process, bare, bridging, serving, wire_bytes
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import Input, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.session_pb2 import SessionOpen

LANES: Final = (1, 16, 64, 200)
GO: Final = "go"
_TTFT: Final = 0.02


@dataclass(frozen=True, slots=True)
class Door:
    """One way to a server, and who stands there."""

    name: str
    client: Callable[[], Client]
    server: Process
    port: int
    """Where its clients connect."""
    front: Process | None = None
    """What stands between, whose cost is told apart."""
    parsed: bool | None = None
    """Whether its client parses events; None measures both."""
    fewest: int = 1
    """Below so many lanes it is the same as another one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One measurement of a door with so many lanes. CPU times are microseconds."""

    door: str
    lanes: int
    parsed: bool
    server_us: float
    """For each token."""
    front_us: float
    """Of what stands between, for each token."""
    client_us: float
    """For each token."""
    bytes_down: float
    """To the client, for each token."""
    stretch: float
    """Wall time over the ideal at the set speed."""
    turn_ms: float
    """Round trip of a turn that is answered at once, the median of all lanes together."""
    turn_us: float
    """CPU time of all servers for one such turn."""


def scenario(tokens_per_second: int, tokens: int) -> str:
    """Returns a scenario: `ping` is answered at once, everything else by so many tokens at that speed."""
    return f"""
[speed]
ttft_ms = {_TTFT * 1000:g}
tokens_per_second = {tokens_per_second}

[[turn]]
when = "^{PING}$"
text = "pong"
speed = {{ ttft_ms = 0, tokens_per_second = "unlimited" }}

[[turn]]
text = {{ tokens = {tokens} }}
"""


async def _record(server: Process, speed: int) -> Recording:
    """Records what the server answers, for the bare libraries to play."""
    official: dict[str, list[bytes]] = {}
    compact: dict[str, list[bytes]] = {}
    url = f"{server.addresses['http']}/v1/responses"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, decode_text=False) as socket:
        for text in (PING, GO):
            body = {"type": "response.create", "stream_id": LANE, "model": MODEL, "input": text, "store": False}
            await socket.send_str(json.dumps(body))
            events = official[text] = []
            while not events or not events[-1].startswith(b'{"type":"response.completed"'):
                events.append((await socket.receive()).data)
    async with grpc.aio.insecure_channel(server.addresses["grpc"]) as channel:
        anything: Any = channel
        make: Any = anything.stream_stream("/turnwire.v1.ResponsesService/Connect")
        call = make()
        opening = SessionOpen(session_credit_bytes=0, response_credit_bytes=0)
        await call.write(ConnectRequest(open=opening).SerializeToString())
        await call.read()
        for text in (PING, GO):
            create = ResponseCreate(model=MODEL, input=Input(text=text), store=False)
            await call.write(ConnectRequest(create=create).SerializeToString())
            batches = compact[text] = []
            ended = False
            while not ended:
                for event in ConnectResponse.FromString(await call.read()).events:
                    batches.append(ConnectResponse(events=[event]).SerializeToString())
                    ended = event.HasField("done")
        call.cancel()
    return Recording(_TTFT, speed, official, compact)


def _doors(server: Process, bridge: Process, library: Process) -> list[Door]:
    """Lists what is measured, ours beside the bare library."""
    http, bare_http = server.addresses["http"], library.addresses["http"]
    grpc_at, bare_grpc = server.addresses["grpc"], library.addresses["grpc"]

    def door(name: str, client: Callable[[], Client], at: Process, address: str, **more: Any) -> Door:
        return Door(name, client, at, int(address.rpartition(":")[2]), **more)

    return [
        door("gRPC, one stream", lambda: GrpcSessionClient(grpc_at), server, grpc_at, parsed=True),
        door("bare grpc.aio, one stream", lambda: GrpcSessionClient(bare_grpc), library, bare_grpc, parsed=True),
        door("gRPC, a stream each", lambda: GrpcStreamsClient(grpc_at), server, grpc_at),
        door("bare grpc.aio, a stream each", lambda: GrpcStreamsClient(bare_grpc), library, bare_grpc),
        door("HTTP and SSE", lambda: SseClient(http), server, http),
        door("bare aiohttp, SSE", lambda: SseClient(bare_http), library, bare_http),
        door("WebSocket, 16 lanes a socket", lambda: WebSocketClient(http), server, http),
        door("bare aiohttp, 16 lanes a socket", lambda: WebSocketClient(bare_http), library, bare_http),
        door("WebSocket, a socket each", lambda: WebSocketClient(http, 1), server, http, fewest=2),
        door("bare aiohttp, a socket each", lambda: WebSocketClient(bare_http, 1), library, bare_http, fewest=2),
        door(
            "WebSocket, 16 lanes, deflate", lambda: WebSocketClient(http, compressed=True), server, http, parsed=False
        ),
        door("WebSocket turnwire.v1, one socket", lambda: NativeSocketClient(http), server, http, parsed=True),
        door(
            "bridge: WebSocket, then gRPC",
            lambda: WebSocketClient(bridge.addresses["bridge"]),
            server,
            bridge.addresses["bridge"],
            front=bridge,
            parsed=False,
        ),
    ]


async def _measure(door: Door, lanes: int, tokens: int, ideal: float, turns: int, *, parsed: bool) -> Cost:
    client = door.client()
    await client.open(lanes)
    try:
        processes = (door.server, door.front) if door.front else (door.server,)
        before = [process.cpu() for process in processes]
        down = wire_bytes(door.port)[1]
        own, began = time.process_time(), time.perf_counter()
        await client.run(GO, 1, parsed=parsed)
        took, own = time.perf_counter() - began, time.process_time() - own
        used = [process.cpu() - start for process, start in zip(processes, before, strict=True)]
        down = wire_bytes(door.port)[1] - down
        before = [process.cpu() for process in processes]
        round_trips = await client.run(PING, turns, parsed=parsed)
        turning = sum(process.cpu() - start for process, start in zip(processes, before, strict=True))
    finally:
        await client.close()
    total = lanes * tokens
    return Cost(
        door=door.name,
        lanes=lanes,
        parsed=parsed,
        server_us=used[0] / total * 1e6,
        front_us=sum(used[1:]) / total * 1e6,
        client_us=own / total * 1e6,
        bytes_down=down / total,
        stretch=took / ideal,
        turn_ms=statistics.median(round_trips) * 1e3,
        turn_us=turning / (lanes * turns) * 1e6,
    )


async def _run(doors: Sequence[Door], lanes: Sequence[int], tokens: int, ideal: float, runs: int) -> list[Cost]:
    costs: list[Cost] = []
    # The first round warms everything up and does not count.
    for number in range(-1, runs):
        for count in lanes if number >= 0 else (4,):
            for door in doors:
                if count < door.fewest:
                    continue
                for parsed in (False, True) if door.parsed is None else (door.parsed,):
                    turns = max(2, min(50, 800 // count)) if parsed == bool(door.parsed) else 1
                    cost = await _measure(door, count, tokens, ideal, turns, parsed=parsed)
                    if number >= 0:
                        costs.append(cost)
    return costs


def measure(
    lanes: Sequence[int] = LANES, speed: int = 200, tokens: int = 400, runs: int = 3, *, parsing: bool = True
) -> list[Cost]:
    """Measures every door with each number of lanes.

    Args:
        lanes: Responses at the same time.
        speed: Tokens a second of each.
        tokens: Tokens of each.
        runs: How often; every door has its turn before any has the next.
        parsing: Whether doors are measured a second time with clients that parse each event.

    Returns:
        The median of each figure, by door, lanes, and whether the client parses.
    """
    with ExitStack() as stack:
        server = stack.enter_context(serving(scenario(speed, tokens)))
        bridge = stack.enter_context(bridging(server))
        recording = uvloop.run(_record(server, speed))
        library = stack.enter_context(bare(msgspec.msgpack.encode(recording)))
        doors = _doors(server, bridge, library)
        if not parsing:
            doors = [replace(door, parsed=bool(door.parsed)) for door in doors]
        found = uvloop.run(_run(doors, lanes, tokens, _TTFT + tokens / speed, runs))
    grouped: dict[tuple[str, int, bool], list[Cost]] = {}
    for cost in found:
        grouped.setdefault((cost.door, cost.lanes, cost.parsed), []).append(cost)
    return [_median(costs) for costs in grouped.values()]


def _median(costs: Sequence[Cost]) -> Cost:
    one = costs[0]
    figures = ("server_us", "front_us", "client_us", "bytes_down", "stretch", "turn_ms", "turn_us")
    medians = {name: statistics.median(getattr(cost, name) for cost in costs) for name in figures}
    return Cost(one.door, one.lanes, one.parsed, **medians)


def tables(costs: Sequence[Cost]) -> list[Table]:
    """Returns the figures, a row for each door and a column for each number of lanes."""
    lanes = sorted({cost.lanes for cost in costs})
    names = list(dict.fromkeys(cost.door for cost in costs))
    by_key = {(cost.door, cost.lanes, cost.parsed): cost for cost in costs}

    def table(title: str, show: Callable[[Cost], str], which: Sequence[bool]) -> Table:
        made = Table(title, *(str(count) for count in lanes))
        for name in names:
            rows = [parsed for parsed in which if any((name, count, parsed) in by_key for count in lanes)]
            for parsed in rows:
                cells = [by_key.get((name, count, parsed)) for count in lanes]
                label = f"{name}, parsed" if parsed and len(which) > 1 else name
                made.add_row(label, *("" if cost is None else show(cost) for cost in cells))
        return made

    def first(name: str) -> Sequence[bool]:
        return (False,) if (name, lanes[-1], False) in by_key else (True,)

    def server(cost: Cost) -> str:
        return f"{cost.server_us:.1f}" + (f" + {cost.front_us:.1f}" if cost.front_us else "")

    def plain(title: str, show: Callable[[Cost], str]) -> Table:
        made = Table(title, *(str(count) for count in lanes))
        for name in names:
            (parsed,) = first(name)
            cells = [by_key.get((name, count, parsed)) for count in lanes]
            made.add_row(name, *("" if cost is None else show(cost) for cost in cells))
        return made

    return [
        plain("server, µs of CPU a token; responses at once:", server),
        table("client, µs of CPU a token", lambda cost: f"{cost.client_us:.1f}", (False, True)),
        plain("bytes a token, to the client", lambda cost: f"{cost.bytes_down:.0f}"),
        plain("round trip of a turn, ms at the median", lambda cost: f"{cost.turn_ms:.2f}"),
        plain("server, µs of CPU a turn", lambda cost: f"{cost.turn_us:.0f}"),
        plain("time / ideal", lambda cost: f"{cost.stretch:.2f}"),
    ]


def summary(costs: Sequence[Cost]) -> Table:
    """Returns the figures of one number of lanes, a row for each door."""
    made = Table(
        Column("door", no_wrap=True), "server µs/token", "client µs/token", "bytes/token", "turn, ms", "time / ideal"
    )
    for cost in costs:
        server = f"{cost.server_us:.1f}" + (f" + {cost.front_us:.1f}" if cost.front_us else "")
        figures = (f"{cost.client_us:.1f}", f"{cost.bytes_down:.0f}", f"{cost.turn_ms:.1f}", f"{cost.stretch:.2f}")
        made.add_row(cost.door, server, *figures)
    return made


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each measurement [3]")
    parser.add_argument("--speed", type=int, default=200, help="tokens a second of each response [200]")
    parser.add_argument("--tokens", type=int, default=400, help="tokens of each response [400]")
    parser.add_argument("--lanes", default=",".join(map(str, LANES)), help="responses at once, parted by commas")
    parser.add_argument("--quick", action="store_true", help="once, 16 responses of 100 tokens")
    parser.add_argument("--json", type=Path, help="file that gets all figures")
    given = parser.parse_args()
    lanes = [int(count) for count in given.lanes.split(",")]
    console = Console(width=160)
    before = os.getloadavg()[0]
    with console.status("the doors"):
        costs = quick() if given.quick else measure(lanes, given.speed, given.tokens, given.runs)
    for each in tables(costs):
        console.print(each)
    console.print(f"load average {before:.1f} before, {os.getloadavg()[0]:.1f} after")
    if given.json:
        given.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2), encoding="utf-8")
    return 0


def quick() -> list[Cost]:
    """Measures briefly: it shows that everything runs, and roughly what it costs. Clients do not parse JSON."""
    return measure((16,), 500, 100, 1, parsing=False)


if __name__ == "__main__":
    sys.exit(main())
