"""What each door costs: CPU for each streamed token, bytes on the wire, and the round trip of a turn.

    python -m turnwire.bench.doors [--runs 3] [--quick] [--out FILE]

Above it: `smoke` and the suites. Below it: clients that do nothing with what they read (`doors_clients`), real servers,
a bridge, and bare libraries (`doors_bare`), each in a process of its own; and the core alone (`doors_core`), in this
one. The model is simulated. Measurements of all doors take turns, since machines are noisy: compare within one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import msgspec
import uvloop
from rich.console import Console

from turnwire.bench.command import bar, stoppable, typed
from turnwire.bench.doors_bare import LANE, PING, Recording
from turnwire.bench.doors_clients import MODEL
from turnwire.bench.doors_core import NAME as CORE
from turnwire.bench.doors_core import Core
from turnwire.bench.doors_cost import Cost as Cost
from turnwire.bench.doors_cost import medians
from turnwire.bench.doors_list import BARE, BRIDGE, DOORS, SERVER, Door
from turnwire.bench.doors_processes import Process, bare, bridging, serving, wire_bytes
from turnwire.bench.doors_tables import tables
from turnwire.bench.measured import measuring
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import Input, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.session_pb2 import SessionOpen

LANES: Final = (1, 16, 64, 200)
GO: Final = "go"
_TTFT: Final = 0.02
_WARM: Final = (4,)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured."""

    lanes: Sequence[int] = LANES
    """Responses at the same time."""
    speed: int = 200
    """Tokens a second of each."""
    tokens: int = 400
    """Tokens of each."""
    runs: int = 3
    """How often; every door has its turn before any has the next."""
    doors: Sequence[Door] = DOORS
    core: bool = True
    """Whether what doors share is measured beside them."""
    clients: str = "both"
    """Whether clients take frames as they come (`taking`), parse each event (`parsing`), or do one after the other;
    some doors have only one way."""
    turns: int = 0
    """Of each lane, for round trips; 0 for as many as go with the number of lanes."""

    def ways(self, door: Door, lanes: int) -> Sequence[bool]:
        """Returns how the clients of a door take events: once for each, parsing or not; none below its fewest lanes."""
        if lanes < door.fewest:
            return ()
        if door.parsed is not None:
            return (door.parsed,)
        return {"both": (False, True), "taking": (False,), "parsing": (True,)}[self.clients]

    def steps(self, lanes: Sequence[int]) -> int:
        """Returns how many measurements a round has."""
        return sum(sum(len(self.ways(door, count)) for door in self.doors) + self.core for count in lanes)


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


async def _measure(
    door: Door, places: Mapping[str, Process], lanes: int, tokens: int, ideal: float, turns: int, *, parsed: bool
) -> Cost:
    at = places[door.process]
    address = at.addresses[door.address]
    port = int(address.rpartition(":")[2])
    client = door.client(address)
    await client.open(lanes)
    try:
        processes = (places[SERVER], at) if door.process == BRIDGE else (at,)
        before = [process.cpu() for process in processes]
        down = wire_bytes(port)[1]
        own, began = time.process_time(), time.perf_counter()
        await client.run(GO, 1, parsed=parsed)
        took, own = time.perf_counter() - began, time.process_time() - own
        used = [process.cpu() - start for process, start in zip(processes, before, strict=True)]
        down = wire_bytes(port)[1] - down
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


async def _measure_core(script: str, lanes: int, tokens: int, ideal: float, turns: int) -> Cost:
    core = Core(script, lanes)
    try:
        used, began = time.process_time(), time.perf_counter()
        await core.run(GO, 1)
        took, used = time.perf_counter() - began, time.process_time() - used
        turning = time.process_time()
        rounds = await core.run(PING, turns)
        turning = time.process_time() - turning
    finally:
        await core.close()
    return Cost(
        door=CORE,
        lanes=lanes,
        parsed=False,
        server_us=used / (lanes * tokens) * 1e6,
        front_us=0.0,
        client_us=0.0,
        bytes_down=0.0,
        stretch=took / ideal,
        turn_ms=statistics.median(rounds) * 1e3,
        turn_us=turning / (lanes * turns) * 1e6,
    )


def _turns(lanes: int) -> int:
    return max(2, min(50, 800 // lanes))


async def _round(
    asked: Asked, places: Mapping[str, Process], lanes: Sequence[int], told: Callable[[str], object]
) -> list[Cost]:
    costs: list[Cost] = []
    ideal = _TTFT + asked.tokens / asked.speed
    for count in lanes:
        for door in asked.doors:
            for place, parsed in enumerate(asked.ways(door, count)):
                turns = 1 if place else asked.turns or _turns(count)
                told(f"{count} lanes, {door.name}")
                costs.append(await _measure(door, places, count, asked.tokens, ideal, turns, parsed=parsed))
        if asked.core:
            told(f"{count} lanes, {CORE}")
            script = scenario(asked.speed, asked.tokens)
            costs.append(await _measure_core(script, count, asked.tokens, ideal, asked.turns or _turns(count)))
    return costs


def measure(asked: Asked, told: Callable[[str], object]) -> list[list[Cost]]:
    """Measures every door with each number of lanes; returns the rounds, without the one that warms everything up.

    Args:
        asked: What to measure.
        told: Takes what is measured next.
    """
    with ExitStack() as stack:
        server = stack.enter_context(serving(scenario(asked.speed, asked.tokens)))
        places = {SERVER: server}
        if any(door.process == BRIDGE for door in asked.doors):
            places[BRIDGE] = stack.enter_context(bridging(server))
        if any(door.process == BARE for door in asked.doors):
            recording = uvloop.run(_record(server, asked.speed))
            places[BARE] = stack.enter_context(bare(msgspec.msgpack.encode(recording)))
        uvloop.run(_round(asked, places, _WARM, told))
        return [uvloop.run(_round(asked, places, asked.lanes, told)) for _ in range(asked.runs)]


QUICK: Final = Asked(lanes=(16,), speed=500, tokens=100, runs=1, clients="taking", turns=3)
"""It shows that everything runs, and roughly what it costs."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.doors",
        description="Measures what each door costs: CPU for each streamed token, bytes, and round trips of turns. The "
        "model is simulated.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="doors:\n" + "\n".join(f"  {door.name}" for door in DOORS),
    )
    parser.add_argument("--runs", type=int, default=3, help="of each measurement [3]")
    parser.add_argument("--speed", type=int, default=200, help="tokens a second of each response [200]")
    parser.add_argument("--tokens", type=int, default=400, help="tokens of each response [400]")
    parser.add_argument("--lanes", default=",".join(map(str, LANES)), help="responses at once, parted by commas")
    words = "what clients do: take frames as they come, parse each event, or one after the other [both]"
    parser.add_argument("--clients", choices=("both", "taking", "parsing"), default="both", help=words)
    parser.add_argument("--only", action="append", metavar="DOOR", help="measure this door. Repeatable [all]")
    parser.add_argument("--quick", action="store_true", help="once, 16 responses of 100 tokens; nothing else counts")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    return parser


def _asked(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Asked:
    if given.quick:
        return QUICK
    names = given.only or [door.name for door in DOORS]
    if unknown := set(names) - {door.name for door in DOORS}:
        parser.error(f"--only: no such door: {', '.join(sorted(unknown))}")
    try:
        lanes = [int(count) for count in given.lanes.split(",")]
    except ValueError:
        parser.error("--lanes: expected numbers with commas between")
    for what, value in (("--lanes", min(lanes)), ("--runs", given.runs), ("--speed", given.speed)):
        if value < 1:
            parser.error(f"{what}: expected 1 or more")
    if given.tokens < 2:
        parser.error("--tokens: expected 2 or more")
    doors = [door for door in DOORS if door.name in names]
    return Asked(lanes, given.speed, given.tokens, given.runs, doors, True, given.clients)


def main() -> int:
    """Measures, prints tables, and writes the file that is named."""
    parser = _parser()
    given = parser.parse_args()
    asked = _asked(parser, given)
    stoppable()
    console = Console(width=160)
    with measuring("doors", typed("doors"), given.out) as measured:
        with bar(asked.steps(_WARM) + asked.runs * asked.steps(asked.lanes), "starting") as told:
            rounds = measure(asked, told)
        costs = medians([cost for costs in rounds for cost in costs])
        measured.figures["costs"] = [asdict(cost) for cost in costs]
        measured.figures["rounds"] = [[asdict(cost) for cost in costs] for costs in rounds]
    for each in tables(costs):
        console.print(each)
    console.print(f"load average {measured.load_before:.1f} before, {measured.load_after:.1f} after")
    return 0


if __name__ == "__main__":
    sys.exit(main())
