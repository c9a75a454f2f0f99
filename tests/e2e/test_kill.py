"""A real server killed at random points while clients of every door work: what they saw as done is kept, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import sqlite3
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from turnwire.client import ConnectError, Session, SessionLost, connect
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, ToolOutput
from turnwire.v1.response_pb2 import DoneReason

SERVE = ("-m", "turnwire.client.cli", "serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "off")
BOUND = 30.0
SCENARIO = """
[[turn]]
when = "^look"
reasoning = "I have to look."
call = [{ name = "look", arguments = { place = "Oslo" } }]

[[turn]]
reasoning = { tokens = 5 }
text = { tokens = 20 }
"""
TOOLS: Any = [{"type": "function", "name": "look", "description": "Looks." * 200, "parameters": {}, "strict": False}]


@dataclass
class Seen:
    """What clients were told is done."""

    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    """Texts and calls of stored responses, by id."""
    lines: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict[tuple[str, int], tuple[int, int]])
    """Input and output tokens by response and pass."""
    heads: dict[str, str] = field(default_factory=dict[str, str])
    """The latest response of each client, which goes on from it after the restart."""
    paused: dict[str, tuple[str, list[str]]] = field(default_factory=dict[str, tuple[str, list[str]]])
    """The response that a client was told is paused, and the calls that it waits for."""
    wanted: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there are `wanted` lines."""

    def line(self, response_id: str, passes: int, given: int, said: int) -> None:
        self.lines[response_id, passes] = (given, said)
        if len(self.lines) >= self.wanted:
            self.enough.set()

    async def more(self, count: int) -> None:
        """Waits until so many more were told to be done."""
        self.wanted = len(self.lines) + count
        self.enough.clear()
        if count:
            async with asyncio.timeout(BOUND):
                await self.enough.wait()


class Server:
    """A server process over a data directory."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.grpc = ""
        self.http = ""

    @classmethod
    async def start(cls, folder: Path, scenario: Path) -> Server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *SERVE,
            *("--data-dir", str(folder), "--scenario", str(scenario), "--log-level", "error"),
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")},
        )
        server = cls(process)
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            for attribute, form in (("grpc", r"grpc listening on (.*)\n"), ("http", r"http listening on (.*)\n")):
                match = re.fullmatch(form, (await process.stdout.readline()).decode())
                assert match is not None
                setattr(server, attribute, match[1])
        return server

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.communicate()

    async def stop(self) -> None:
        self.process.terminate()
        async with asyncio.timeout(BOUND):
            await self.process.communicate()


def told(output: list[Item]) -> list[str]:
    """Returns what an output says, whatever door it came through."""
    said: list[str] = []
    for item in output:
        if item.HasField("function_call"):
            said.append(f"{item.function_call.call_id} {item.function_call.name} {item.function_call.arguments}")
        elif item.HasField("message"):
            said.append("".join(part.output_text.text for part in item.message.content.parts.parts))
    return said


def told_json(output: list[dict[str, Any]]) -> list[str]:
    """The same of the public form."""
    said: list[str] = []
    for item in output:
        if item["type"] == "function_call":
            said.append(f"{item['call_id']} {item['name']} {item['arguments']}")
        elif item["type"] == "message":
            said.append("".join(part["text"] for part in item["content"]))
    return said


async def in_session(address: str, seen: Seen, name: str) -> None:
    """Goes on in two lanes of a session, one of which holds its responses."""
    async with connect(address) as session:
        await asyncio.gather(_chain(session, seen, f"{name}-chain"), _hold(session, seen, f"{name}-hold"))


async def _chain(session: Session, seen: Seen, name: str) -> None:
    while True:
        more: Any = {"previous_response_id": seen.heads[name]} if name in seen.heads else {}
        stream = await session.create(model="scripted", input="go on", tools=TOOLS, lane=name, **more)
        done = await stream.until_done()
        assert done.reason == DoneReason.DONE_REASON_COMPLETED, done
        _note(seen, name, stream.id, done, told(stream.output))


async def _hold(session: Session, seen: Seen, name: str) -> None:
    while True:
        if name in seen.paused:
            # The hold ended with the server, but not what it was paused at.
            response_id, calls = seen.paused.pop(name)
            stream = await session.create(
                model="scripted", input=answers(calls), tools=TOOLS, lane=name, previous_response_id=response_id
            )
            done = await stream.until_done()
            assert done.reason == DoneReason.DONE_REASON_COMPLETED, done
            _note(seen, name, stream.id, done, told(stream.output))
        stream = await session.create(model="scripted", input="look", tools=TOOLS, lane=name, hold=True)
        done = await stream.until_done()
        assert done.reason == DoneReason.DONE_REASON_TOOL_CALLS, done
        _note(seen, name, stream.id, done, told(stream.output))
        calls = list(done.awaiting_call_ids)
        seen.paused[name] = (stream.id, calls)
        # Somebody is killed at the pause.
        await asyncio.sleep(0.005)
        # Until it has ended nobody knows what of it is kept.
        del seen.paused[name], seen.outputs[stream.id]
        await stream.append(answers(calls))
        done = await stream.until_done()
        assert done.reason == DoneReason.DONE_REASON_COMPLETED, done
        _note(seen, name, stream.id, done, told(stream.output))


def answers(calls: list[str]) -> list[Item]:
    return [
        Item(function_call_output=FunctionCallOutput(call_id=call, output=ToolOutput(text="fine"))) for call in calls
    ]


def _note(seen: Seen, name: str, response_id: str, done: Any, said: list[str]) -> None:
    usage = done.pass_usage
    seen.line(response_id, done.passes, usage.input_tokens, usage.output_tokens)
    seen.outputs[response_id] = said
    if done.reason == DoneReason.DONE_REASON_COMPLETED:
        seen.heads[name] = response_id


async def over_http(address: str, seen: Seen, name: str) -> None:
    """Goes on by requests that stand alone."""
    async with aiohttp.ClientSession(address) as session:
        while True:
            body = {"model": "scripted", "input": "go on"}
            if name in seen.heads:
                body["previous_response_id"] = seen.heads[name]
            async with session.post("/v1/responses", json=body) as answer:
                response = await answer.json()
            assert response.get("status") == "completed", response
            usage = response["usage"]
            seen.line(response["id"], 1, usage["input_tokens"], usage["output_tokens"])
            seen.outputs[response["id"]] = told_json(response["output"])
            seen.heads[name] = response["id"]


async def until_lost(work: Awaitable[None]) -> None:
    """Works until the server is gone; anything else that goes wrong counts."""
    with contextlib.suppress(SessionLost, ConnectError, aiohttp.ClientError, ConnectionError):
        await work


async def check(server: Server, seen: Seen, ids: list[str]) -> None:
    """Asks for responses, each at another door than the one before."""
    async with connect(server.grpc) as session, aiohttp.ClientSession(server.http) as http:
        for number, response_id in enumerate(ids):
            if number % 2:
                assert told(list((await session.get_response(response_id)).output)) == seen.outputs[response_id]
                continue
            async with http.get(f"/v1/responses/{response_id}") as answer:
                response = await answer.json()
            assert answer.status == 200, (response_id, response)
            assert told_json(response["output"]) == seen.outputs[response_id]


def check_ledger(folder: Path, seen: Seen) -> None:
    db = sqlite3.connect(folder / "turnwire.db")
    rows = db.execute("select response_id, pass, input_tokens, output_tokens from ledger").fetchall()
    db.close()
    lines = {(response_id, passes): (given, said) for response_id, passes, given, said in rows}
    assert len(rows) == len(lines)
    assert {key: lines.get(key) for key in seen.lines} == seen.lines


async def kill_often(tmp_path: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    folder, scenario = tmp_path / "data", tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    seen = Seen()
    unchecked: set[str] = set()
    for _ in range(times):
        server = await Server.start(folder, scenario)
        try:
            # All that is new, and some of what is old.
            old = sorted(seen.outputs.keys() - unchecked)
            await check(
                server, seen, [*sorted(unchecked & seen.outputs.keys()), *chance.sample(old, min(20, len(old)))]
            )
            before = set(seen.outputs)
            works = [
                asyncio.create_task(until_lost(work))
                for work in (
                    in_session(server.grpc, seen, "grpc"),
                    in_session(server.http.replace("http:", "ws:"), seen, "ws"),
                    over_http(server.http, seen, "http"),
                )
            ]
            await seen.more(chance.randrange(40))
            # Anywhere within the next turns.
            await asyncio.sleep(chance.uniform(0, 0.02))
        finally:
            await server.kill()
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*works)
        unchecked = set(seen.outputs) - before
    server = await Server.start(folder, scenario)
    try:
        await check(server, seen, sorted(seen.outputs))
        # And everybody goes on from where he was.
        async with connect(server.grpc) as session:
            for name, head in seen.heads.items():
                stream = await session.create(
                    model="scripted", input="still there?", lane=name, previous_response_id=head
                )
                await stream.get_final_response()
        await server.stop()
    finally:
        await server.kill()
    check_ledger(folder, seen)
    assert len(seen.lines) > 5 * times


@pytest.mark.timeout(120)
async def test_what_was_done_survives_kill_and_is_counted_once(tmp_path: Path) -> None:
    await kill_often(tmp_path, 5, seed=1)


@pytest.mark.kill
@pytest.mark.timeout(900)
async def test_what_was_done_survives_many_kills(tmp_path: Path) -> None:
    await kill_often(tmp_path, 60, seed=int(os.environ.get("TURNWIRE_KILL_SEED", "2")))
