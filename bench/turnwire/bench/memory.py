"""What a server keeps in memory: per idle session, with and without a connection of its own, and per conversation.

A real server in a process of its own, whose memory the kernel tells (Linux); and what of it is the session's own, or
the conversation's, by Python's own count in this process. Run with `python -m turnwire.bench.memory --out F`.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import uvloop
from grpc import aio
from rich.table import Table

from turnwire.bench.ablation import HISTORY
from turnwire.bench.ablation_rig import CHAT, TOKENS, server, upstreams
from turnwire.bench.command import bar, screen, stoppable, typed
from turnwire.bench.doors_processes import Process
from turnwire.bench.measured import measuring
from turnwire.bench.turns import Conversation, NullEngine, make_services, pieces
from turnwire.client import Session, connect
from turnwire.server.prompt import vocabulary
from turnwire.server.runtime.runner import SessionRunner
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, Message, MessageContent, Role, ToolOutput
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub
from turnwire.v1.session_pb2 import SessionOpen

SESSIONS: Final = 1_000
"""Idle sessions."""
CONVERSATIONS: Final = 8
"""Conversations of `HISTORY` tokens."""
SHORT: Final = 250
"""About the tokens of a short turn. What is kept of a response weighs most where responses are short."""

_KB: Final = 1024
_PRIVATE: Final = frozenset({"Private_Clean:", "Private_Dirty:"})
_AROUND: Final = 35
"""About the tokens of a tool call, and of what stands around it and its output."""


def private_bytes(pid: int) -> int:
    """Returns the memory that belongs to a process alone, in bytes (Linux)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(words[1]) for line in lines if (words := line.split())[0] in _PRIVATE) * _KB


async def _growth(process: Process, work: Callable[[int], Awaitable[object]], warm: int, count: int) -> int:
    """Returns the bytes that a process grows by for each piece of work, the first ones left out."""
    for number in range(warm):
        await work(number)
    before = private_bytes(process.pid)
    for number in range(count):
        await work(warm + number)
    return (private_bytes(process.pid) - before) // count


async def _idle(process: Process, *, connections: bool) -> int:
    """Returns the bytes of an idle session: a stream, with a connection of its own or without."""
    address = process.addresses["grpc"]
    # Else grpc joins channels to the same address on one connection.
    own = (("grpc.use_local_subchannel_pool", 1),) if connections else None
    calls: list[Any] = []
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(aio.insecure_channel(address))

        async def open_one(_: int) -> None:
            channel = await stack.enter_async_context(aio.insecure_channel(address, own)) if own else shared
            stub: Any = ResponsesServiceStub(channel)
            call = stub.Connect()
            calls.append(call)
            await call.write(ConnectRequest(open=SessionOpen()))
            await call.read()

        grown = await _growth(process, open_one, 50, SESSIONS)
        for call in calls:
            call.cancel()
    return grown


def _kilobytes() -> int:
    """Returns the size of a conversation of `HISTORY` tokens."""
    output = pieces(2)[0].items.items[-1].function_call_output.output.text
    return HISTORY // (vocabulary.count(output) + _AROUND)


async def _converse(session: Session, model: str, lane: str) -> None:
    last = call = ""
    for given in pieces(_kilobytes()):
        items = list(given.items.items)
        if call:
            items.insert(0, Item(function_call_output=FunctionCallOutput(call_id=call, output=ToolOutput(text="no"))))
        stream = await session.create(model=model, input=items, previous_response_id=last or None, lane=lane)
        await stream.until_done()
        last = stream.id
        call = next(item.function_call.call_id for item in stream.output if item.HasField("function_call"))


def _short_text() -> str:
    """Returns what brings a short turn to `SHORT` tokens, with what stands around it."""
    words = "the quick brown fox jumps over the lazy dog "
    return words * ((SHORT - _AROUND) // vocabulary.count(words))


async def _converse_shortly(session: Session, model: str, lane: str) -> None:
    text = _short_text()
    last = call = ""
    for _ in range(HISTORY // SHORT):
        if call:
            output = FunctionCallOutput(call_id=call, output=ToolOutput(text=text))
            given = [Item(function_call_output=output)]
        else:
            given = [Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=text)))]
        stream = await session.create(model=model, input=given, previous_response_id=last or None, lane=lane)
        await stream.until_done()
        last = stream.id
        call = next(item.function_call.call_id for item in stream.output if item.HasField("function_call"))


async def _conversation(process: Process, model: str, *, shortly: bool) -> int:
    """Returns the bytes that the server grows by for a conversation."""
    converse = _converse_shortly if shortly else _converse
    async with connect(process.addresses["grpc"]) as session:
        return await _growth(process, lambda number: converse(session, model, f"lane{number}"), 2, CONVERSATIONS)


async def _hold(conversation: Conversation, *, shortly: bool) -> None:
    await conversation.begin()
    if shortly:
        text = _short_text()
        for _ in range(HISTORY // SHORT):
            await conversation.take(text)


async def _counted(*, tokens: bool, shortly: bool) -> tuple[int, int]:
    """Returns what Python counts for a conversation in this process, and the bytes of its items."""
    short, long = Conversation(2, tokens=tokens), Conversation(1 if shortly else _kilobytes(), tokens=tokens)
    # What is loaded once is loaded by a short one.
    await short.begin()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    await _hold(long, shortly=shortly)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    items = long.item_bytes()
    await long.end()
    await short.end()
    return grown, items


def _session_objects() -> int:
    """Returns the bytes of a session's own objects, by Python's count."""
    services = make_services(NullEngine())
    kept = [SessionRunner(services, "", "bench") for _ in range(10)]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept += [SessionRunner(services, "", "bench") for _ in range(SESSIONS)]
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for runner in kept:
        runner.abandon()
    return grown // SESSIONS


def _idle_table(idle: Mapping[str, int]) -> Table:
    table = Table("idle session", "KB")
    words = {
        "shared_connection": "stream on a shared connection",
        "own_connection": "stream with its own connection",
        "objects": "the session's own objects",
    }
    for name, size in idle.items():
        table.add_row(words[name], f"{size / _KB:.1f}")
    return table


_CONVERSATIONS: Final = {
    "tokens": "in front of token ids",
    "chat": "in front of a chat API",
    "tokens in short turns": f"in front of token ids, {SHORT} tokens a turn",
    "chat in short turns": f"in front of a chat API, {SHORT} tokens a turn",
}


def _conversations_table(conversations: Mapping[str, Mapping[str, int]]) -> Table:
    table = Table(f"{HISTORY:,} tokens of history, KB", "items", "counted by Python", "beside the items", "process")
    for name, sizes in conversations.items():
        kilobytes = (f"{sizes[which] / _KB:,.0f}" for which in ("items", "counted", "beside", "process"))
        table.add_row(_CONVERSATIONS[name], *kilobytes)
    return table


async def _measure(figures: dict[str, Any], told: Callable[[str], object]) -> None:
    """Fills in the figures, as they come."""
    idle: dict[str, int] = {}
    conversations: dict[str, dict[str, int]] = {}
    figures.update(idle=idle, conversations=conversations)
    with upstreams() as behind:
        for name, own in (("shared_connection", False), ("own_connection", True)):
            with server(behind) as process:
                idle[name] = await _idle(process, connections=own)
            told("sessions without a door" if own else "idle sessions with their own connections")
        idle["objects"] = _session_objects()
        for name, words in _CONVERSATIONS.items():
            told(f"conversations {words}")
            tokens, shortly = name.startswith("tokens"), "short" in name
            with server(behind) as process:
                grown = await _conversation(process, TOKENS if tokens else CHAT, shortly=shortly)
            counted, items = await _counted(tokens=tokens, shortly=shortly)
            conversations[name] = {"items": items, "counted": counted, "beside": counted - items, "process": grown}


def main() -> int:
    """Measures, prints tables, and writes the file that is named."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.memory",
        description=f"Measures what a server keeps for each of {SESSIONS:,} idle sessions, and for each of "
        f"{CONVERSATIONS} conversations of {HISTORY:,} tokens, in long turns and in short ones (Linux).",
    )
    parser.add_argument("--out", type=Path, help="result file, JSON")
    given = parser.parse_args()
    stoppable()
    console = screen()
    with measuring("memory", typed("memory"), given.out) as measured, bar(7, "idle sessions on one connection") as told:
        uvloop.run(_measure(measured.figures, told))
    console.print(_idle_table(measured.figures["idle"]))
    console.print(_conversations_table(measured.figures["conversations"]))
    console.print(f"load {measured.load_before:.1f} before, {measured.load_after:.1f} after, on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
