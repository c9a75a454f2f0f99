"""A sink that records, prompts without a session behind them, and the control side of the fake upstream."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from turnwire.server.engine.chat.history import Style
from turnwire.server.engine.chat.messages import Media
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallStart,
    Chunk,
    EngineFailure,
    Finish,
    TextChunk,
    TextEnd,
)
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS, Tools, ToolSets
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import ToolSet

PATIENCE = 10.0


def item(**fields: Any) -> Item:
    return from_json(Item, json.dumps(fields))


def grown(transcript: Transcript, *items: Item | dict[str, Any], origin: Origin = Origin.INPUT) -> Transcript:
    made = [each if isinstance(each, Item) else item(**each) for each in items]
    return transcript.extend([Entry(each.SerializeToString(), origin, 1) for each in made], frozenset())


def tool_set(*tools: dict[str, Any]) -> Tools:
    return ToolSets().intern(from_json(ToolSet, json.dumps(tools))) if tools else NO_TOOLS


def create(**settings: Any) -> ResponseCreate:
    return from_json(ResponseCreate, json.dumps(settings))


def prompt(
    transcript: Transcript = EMPTY, *, tools: Tools = NO_TOOLS, model: str = "m", pass_id: int = 1, **settings: Any
) -> Prompt:
    return Prompt(
        pass_id=pass_id,
        response_id="resp_1",
        model=model,
        settings=create(**settings),
        tools=tools,
        transcript=transcript,
        turn=0,
        input_tokens=1,
        cached_tokens=0,
    )


def plain_style(**changes: Any) -> Style:
    options: dict[str, Any] = {
        "media": Media("m", images=True, files=False),
        "reasoning_field": None,
        "developer_role": False,
        "joined_lead": True,
        "merged_roles": False,
        "flat_text": True,
        "late_system_as_user": False,
    }
    return Style(**(options | changes))


@dataclass
class RecordingSink:
    """Keeps what a pass delivers."""

    chunks: list[Chunk] = field(default_factory=list[Chunk])
    outcomes: list[Finish | EngineFailure] = field(default_factory=list[Finish | EngineFailure])
    on_output: Callable[[], None] | None = None
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def output(self, chunks: Sequence[Chunk]) -> None:
        assert chunks
        assert not self.outcomes
        self.chunks += chunks
        self._notify()
        if self.on_output is not None:
            self.on_output()

    def ended(self, outcome: Finish | EngineFailure) -> None:
        assert not self.outcomes
        self.outcomes.append(outcome)
        self._notify()

    def _notify(self) -> None:
        async def tell() -> None:
            async with self.news:
                self.news.notify_all()

        task = asyncio.get_running_loop().create_task(tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self.news:
            await self.news.wait_for(condition)

    async def outcome(self) -> Finish | EngineFailure:
        await self.until(lambda: bool(self.outcomes))
        return self.outcomes[0]

    async def failure(self) -> EngineFailure:
        outcome = await self.outcome()
        assert isinstance(outcome, EngineFailure), outcome
        return outcome

    async def finish(self) -> Finish:
        outcome = await self.outcome()
        assert isinstance(outcome, Finish), outcome
        return outcome

    @property
    def said(self) -> list[tuple[str, str]]:
        return said(self.chunks)


def said(chunks: Sequence[Chunk]) -> list[tuple[str, str]]:
    """Chunks as (what, text), neighbouring texts of one kind joined: what they say, however they were cut."""
    found: list[tuple[str, str]] = []
    for chunk in chunks:
        match chunk:
            case TextChunk():
                kind, text = chunk.channel.name.lower(), chunk.text
            case CallStart():
                found.append(("call", chunk.name))
                continue
            case CallDelta():
                kind, text = "arguments", chunk.text
            case CallEnd():
                found.append(("end", ""))
                continue
            case TextEnd():
                continue
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + text)
        else:
            found.append((kind, text))
    return found


class FakeUpstream:
    """Speaks to the fake upstream's control side."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/v1"
        self._session = session

    async def control(self, what: str, value: object = None) -> dict[str, Any]:
        async with (
            asyncio.timeout(PATIENCE),
            self._session.post(f"http://127.0.0.1:{self.port}/control/{what}", json=value) as response,
        ):
            told: dict[str, Any] = await response.json()
            return told

    async def script(self, *steps: dict[str, Any]) -> None:
        await self.control("script", [_encoded(step) for step in steps])

    async def stream(self, *pieces: bytes, **head: Any) -> None:
        """Scripts an answer whose pieces are sent one by one."""
        await self.script({"head": 200, **head}, *({"send": piece} for piece in pieces), {"end": True})

    async def refuse(self, status: int, body: bytes, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.script({"head": status, "type": "application/json", "headers": named}, {"send": body}, {"end": True})

    async def open(self, gate: str) -> None:
        await self.control(f"gate/{gate}")

    async def happened(self, what: str) -> None:
        await self.control("wait", what)

    async def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.control("tell"))["requests"]
        for request in found:
            request["raw"] = base64.b64decode(request["body"])
            request["json"] = json.loads(request["raw"])
        return found

    async def connections(self) -> int:
        number: int = (await self.control("tell"))["connections"]
        return number


def _encoded(step: dict[str, Any]) -> dict[str, Any]:
    return {key: base64.b64encode(value).decode() if isinstance(value, bytes) else value for key, value in step.items()}
