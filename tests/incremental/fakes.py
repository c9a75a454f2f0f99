"""Engines that play a tool loop: a model behind token ids, and one behind a chat API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.engine.port import Engine
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.engine.tokens.port import EngineFacts, TokenDelta, TokenEnd, TokenRequest, TokenSink
from turnwire.server.engine.tokens.rendered import RenderedEngine
from turnwire.server.engine.tokens.rendering import ChainRenderer
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.session.chunks import FinishReason

CALLS: str = (
    "<|channel|>analysis<|message|>Look further.<|end|><|start|>assistant<|channel|>commentary"
    ' to=functions.look <|constrain|>json<|message|>{"at":1}<|call|>'
)
ENDS: str = "<|channel|>final<|message|>That is all there is.<|return|>"


class LoopingTokens:
    """A token engine that calls a tool in each pass, and now and then says its final word."""

    name = "looping"
    address = "nowhere"

    def __init__(self, final_every: int = 0) -> None:
        self.lengths: list[int] = []
        self._final_every = final_every

    async def facts(self) -> EngineFacts:
        return EngineFacts(model="m")

    async def disagreement(self, table: TokenTable) -> str:
        return ""

    def start(self, request: TokenRequest, sink: TokenSink) -> LoopingTokens:
        self.lengths.append(request.prompt.length)
        final = self._final_every and len(self.lengths) % self._final_every == 0
        ids = vocabulary.encoding().encode(ENDS if final else CALLS, allowed_special="all")

        def say() -> None:
            sink.output(TokenDelta(ids))
            sink.ended(TokenEnd(FinishReason.STOP, stop_id=ids[-1]))

        asyncio.get_running_loop().call_soon(say)
        return self

    async def aclose(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def abort(self) -> None:
        pass


def token_engine(tokens: LoopingTokens) -> RenderedEngine:
    """The whole token pipeline in front of a looping engine."""
    table = TokenTable.from_tiktoken(vocabulary.encoding())
    return RenderedEngine(tokens, EngineFacts(model="m"), ChainRenderer(HarmonyRenderer()), "harmony", table)


def scripted_engine(scenario: str) -> ScriptedEngine:
    """Plays a scenario at once."""
    return ScriptedEngine(load_scenario(scenario), speed=SpeedChange(ttft=0, tokens_per_second=float("inf")))


LOOP = """
[model]
name = "m"
[[turn]]
reasoning = "Look further."
[[turn.call]]
name = "look"
arguments = '{"at": 1}'
"""
"""A scenario that calls a tool in each pass."""


class Upstream:
    """A chat API that calls a tool in each pass; keeps what it was sent."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        """How many messages each request had."""
        self.bodies: list[int] = []
        """How long each was, in bytes."""

    async def complete(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        self.bodies.append(len(data))
        self.messages.append(len(json.loads(data)["messages"]))
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        call = {
            "index": 0,
            "id": f"call_{len(self.messages)}",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at":1}'},
        }
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        chunks: list[dict[str, Any]] = [
            _chunk({"role": "assistant", "tool_calls": [call]}),
            _chunk({}, "tool_calls"),
            {"object": "chat.completion.chunk", "choices": [], "usage": usage},
        ]
        for chunk in chunks:
            await answer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await answer.write(b"data: [DONE]\n\n")
        return answer


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


@asynccontextmanager
async def chat_engine(upstream: Upstream) -> AsyncGenerator[Engine, None]:
    """The chat engine in front of an upstream in this process."""
    app = web.Application(client_max_size=1024**3)
    app.router.add_post("/v1/chat/completions", upstream.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    engine = ChatEngine(ChatEngineConfig(base_url=f"http://127.0.0.1:{port}/v1", models=(ChatModel("m"),)))
    try:
        yield engine
    finally:
        await engine.aclose()
        await runner.cleanup()
