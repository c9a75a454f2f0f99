"""What a server is put through: every kind of turn, in front of every kind of engine."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from turnwire.bench.ablation_rig import CHAT, TOKENS, TOOL, Upstreams, server
from turnwire.bench.doors_processes import Process
from turnwire.v1.response_pb2 import DoneReason

from .wire import Names, Turn, Wire, told, wired

PLAY = "play"
Body = dict[str, Any]
LOOK: dict[str, Any] = {
    "type": "function",
    "name": TOOL,
    "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}},
}
TOOLS = [LOOK, {"type": "file_search", "vector_store_ids": ["vs"]}]
"""With one that the server does not read: checking it is counted."""
SUMS = {"type": "mcp", "server_label": "sums", "require_approval": "never"}
INSTRUCTIONS = "Be brief, and look before you speak. " * 8

_SCENARIO = f"""
on_end = "repeat"
[model]
names = ["{PLAY}"]
[speed]
ttft_ms = 0
tokens_per_second = 0
[[turn]]
reasoning = "I should look first."
text = "I will look."
[[turn.call]]
name = "{TOOL}"
arguments = {{ at = 1 }}
[[turn]]
reasoning = "Now I can add."
[[turn.call]]
name = "sums__add"
arguments = {{ a = 1, b = 2 }}
[[turn]]
text = "It is three, as far as I can see."
"""


def picture() -> dict[str, Any]:
    """A part in public JSON."""
    out = BytesIO()
    Image.new("RGB", (640, 480), 7).save(out, "PNG")
    return {"type": "input_image", "image_url": f"data:image/png;base64,{b64encode(out.getvalue()).decode()}"}


def user(text: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}, *parts]}


def outputs(turn: Turn) -> list[dict[str, Any]]:
    """Answers the calls that are open."""
    calls = [item.function_call.call_id for item in turn.output if item.HasField("function_call")]
    return [{"type": "function_call_output", "call_id": call, "output": "nothing there"} for call in calls]


@dataclass
class Seen:
    """What one server did."""

    answers: list[Any] = field(default_factory=list[Any])
    """All that clients were told, and retrieved."""
    visited: dict[str, list[dict[str, float]]] = field(default_factory=dict[str, list[dict[str, float]]])
    """Items visited by stage in each turn of a chain, and tools that were checked as `tools`, by model."""
    largest_batch: int = 0


@contextmanager
def serving(
    behind: Upstreams, folder: Path, disable: tuple[str, ...] = (), data: Path | None = None
) -> Generator[Process, None, None]:
    """Runs a server with all three models and a hosted tool."""
    (folder / "play.toml").write_text(_SCENARIO, encoding="utf-8")
    command = [sys.executable, str(Path(__file__).with_name("sums.py"))]
    (folder / "tools.toml").write_text(f"[mcp.servers.sums]\ncommand = {command!r}\n", encoding="utf-8")
    models = f'[engines.play]\nkind = "scripted"\nscenario = "{folder / "play.toml"}"\n'
    with server(
        behind, disable, options=("--tools-file", str(folder / "tools.toml")), models=models, data=data
    ) as process:
        yield process


def run(process: Process) -> Seen:
    """Puts a server through everything."""
    return asyncio.run(_run(process))


async def _run(process: Process) -> Seen:
    seen = Seen()
    names = Names()
    for scene in (_play, _chains, _held, _images):
        async with wired(process.addresses["grpc"]) as wire:
            ids = await scene(wire, process, seen)
            seen.answers += told(wire.events, names)
            seen.answers += [names.plain(await wire.retrieve(each)) for each in ids]
            seen.largest_batch = max(seen.largest_batch, *wire.batches)
    seen.answers += await _resent(process, names)
    return seen


async def _play(wire: Wire, process: Process, seen: Seen) -> list[str]:
    """Reasoning, text, a client's tool, a hosted one, and a fork in another lane."""
    body: Body = {"model": PLAY, "instructions": INSTRUCTIONS, "tools": [*TOOLS, SUMS]}
    turn = await wire.create(input="What is one and two?", **body)
    first = wire.response_id
    answers = outputs(turn)
    turn = await wire.create(input=answers, previous_response_id=first, **body)
    assert any(item.HasField("mcp_call") for item in turn.output), turn
    second = wire.response_id
    await wire.create(input=[*answers, user("Or not?")], previous_response_id=first, lane="fork", **body)
    await wire.create(input="Again", previous_response_id=second, inherit=True)
    return [first, second, wire.response_id]


async def _chains(wire: Wire, process: Process, seen: Seen) -> list[str]:
    """Loops of a tool, each turn a response, in front of token ids and of a chat API."""
    ids: list[str] = []
    for model in (TOKENS, CHAT):
        body: Body = {"model": model, "instructions": INSTRUCTIONS, "tools": TOOLS}
        turn = await wire.create(input=[user("Begin."), user("Really.")], **body)
        turns = seen.visited[model] = []
        for _ in range(6):
            before = await _counts(process)
            turn = await wire.create(input=outputs(turn), previous_response_id=wire.response_id, **body)
            after = await _counts(process)
            turns.append({stage: after[stage] - before[stage] for stage in after})
        ids.append(wire.response_id)
    return ids


async def _held(wire: Wire, process: Process, seen: Seen) -> list[str]:
    """The same with one response that is held."""
    ids: list[str] = []
    for model in (TOKENS, CHAT):
        turn = await wire.create(input="Begin.", model=model, tools=TOOLS, hold=True)
        for _ in range(3):
            assert turn.done.reason == DoneReason.DONE_REASON_TOOL_CALLS, (turn, model)
            turn = await wire.append(*outputs(turn))
        ids.append(wire.response_id)
        # What is held goes on as a response of its own.
        await wire.create(input=outputs(turn), model=model, tools=TOOLS, previous_response_id=wire.response_id)
    return ids


async def _images(wire: Wire, process: Process, seen: Seen) -> list[str]:
    body: Body = {"model": CHAT, "tools": [LOOK]}
    turn = await wire.create(input=[user("What is this?", picture())], **body)
    await wire.create(
        input=[*outputs(turn), user("And this?", picture())], previous_response_id=wire.response_id, **body
    )
    return [wire.response_id]


async def _resent(process: Process, names: Names) -> list[Any]:
    """A client that sends everything each time, on a session of its own."""
    answers: list[Any] = []
    history: list[dict[str, Any]] = [user("Begin.")]
    for _ in range(3):
        async with wired(process.addresses["grpc"]) as wire:
            turn = await wire.create(input=history, model=CHAT, tools=TOOLS, store=False)
            answers += told(wire.events, names)
        for item in turn.output:
            if item.HasField("function_call"):
                call = item.function_call
                said = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
                history.append({"type": "function_call", **said})
            else:
                text = item.message.content.parts.parts[0].output_text.text
                history.append({"role": "assistant", "content": text})
        history += outputs(turn)
    return answers


async def _counts(process: Process) -> dict[str, float]:
    """Reads from the metrics what stages have visited so far."""
    host, _, rest = process.addresses["metrics"].removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(rest.partition("/")[0]))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    found: dict[str, float] = {"tools": 0.0}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith('turnwire_visited_items_total{stage="'):
            found[name.split('"')[1]] = float(value)
        elif name.startswith('turnwire_opaque_total{kind="tool"'):
            found["tools"] += float(value)
    return found
