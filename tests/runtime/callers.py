"""Callers of a server in the test's process: bodies in public JSON, answers as they come to any door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from turnwire.server.engine.port import Engine
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.engine.tokens.port import EngineFacts, TokenEnd, TokenRequest, TokenSink
from turnwire.server.engine.tokens.rendered import RenderedEngine
from turnwire.server.engine.tokens.rendering import ChainRenderer
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.runtime.local import LocalCaller
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.sealing import Seals
from turnwire.server.session.chunks import FinishReason
from turnwire.server.testing import make_services
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.json import from_json, to_json
from turnwire.v1.response_pb2 import ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ResponseDone


def scripted(text: str) -> ScriptedEngine:
    """An engine that plays a scenario at once."""
    return ScriptedEngine(load_scenario(text), speed=SpeedChange(ttft=0, tokens_per_second=float("inf")))


class SilentTokens:
    """A token engine that says one thing and stops; keeps the prompts it was given."""

    name = "silent"
    address = "nowhere"

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    async def facts(self) -> EngineFacts:
        return EngineFacts(model="m")

    async def disagreement(self, table: TokenTable) -> str:
        return ""

    def start(self, request: TokenRequest, sink: TokenSink) -> SilentTokens:
        self.prompts.append(list(request.prompt.since(0)))
        asyncio.get_running_loop().call_soon(sink.ended, TokenEnd(FinishReason.STOP))
        return self

    async def aclose(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def abort(self) -> None:
        pass


def harmony(tokens: SilentTokens) -> RenderedEngine:
    """The whole token pipeline in front of an engine that says nothing."""
    table = TokenTable.from_tiktoken(vocabulary.encoding())
    return RenderedEngine(tokens, EngineFacts(model="m"), ChainRenderer(HarmonyRenderer()), "harmony", table)


class Client:
    """One caller, in public JSON."""

    def __init__(self, services: Services, principal: str = "") -> None:
        self.services = services
        self.caller: LocalCaller = LocalCaller(SessionRoom(services), principal, "http")

    async def create(self, **body: Any) -> tuple[ResponseDone, dict[str, Any]]:
        """Creates a response; returns how it was done, and the response as JSON."""
        create = body_of(**body)
        create.echo, create.verbosity = True, Verbosity.VERBOSITY_DONE
        async with asyncio.timeout(10):
            async for events in self.caller.respond(create, RequestContext()):
                for event in events:
                    if event.HasField("done"):
                        return event.done, json.loads(to_json(event.done.response, fill=True))
        raise AssertionError

    async def count(self, **body: Any) -> int:
        async with asyncio.timeout(10):
            return await self.caller.count_input_tokens(body_of(**body))

    async def compact(self, **body: Any) -> dict[str, Any]:
        async with asyncio.timeout(10):
            answer = await self.caller.compact_response(body_of(**body))
        compacted: dict[str, Any] = json.loads(to_json(answer, fill=True))
        return compacted


def body_of(**body: Any) -> ResponseCreate:
    return from_json(ResponseCreate, json.dumps({"model": "m", **body}))


def client_of(engine: Engine, *, seals: Seals | None = None, principal: str = "", **more: Any) -> Client:
    return Client(make_services([engine], seals=seals, **more), principal)


def kinds(items: Sequence[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]
