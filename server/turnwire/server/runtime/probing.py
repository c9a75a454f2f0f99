"""What a create would start from, found out by starting it and stopping short of its first pass.

Above: `local` and `compacting`. Below: the runner of sessions, with an engine that only looks at the prompt. Thus
every check, look-up and listing is the one that a create gets, and so is every refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from turnwire.server.engine.port import CountingEngine, Engine, ModelInfo, Sink
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services, Unobserved
from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Listed, Target
from turnwire.server.session.prompt import Prompt
from turnwire.server.tools.port import HostedTools
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error
from turnwire.v1.response_pb2 import ResponseCreate, Verbosity
from turnwire.v1.tool_pb2 import ToolSet

_OF_RUNNING: Final = ("generate", "hold", "background", "stream", "prompt_cache_options", "echo", "store", "timeouts")
"""Settings of how a response runs, which say nothing about what it starts from."""


async def prepared_prompt(services: Services, principal: str, create: ResponseCreate) -> Prompt:
    """Returns what the first pass of a create would start from, the chain included. Chains through stored responses.

    Tools of MCP servers are listed where the create would list them; calls that the user approved are not made.
    Safe to cancel.

    Raises:
        RequestError: As for the create.
    """
    wanted = ResponseCreate()
    wanted.CopyFrom(create)
    for name in _OF_RUNNING:
        wanted.ClearField(name)
    wanted.verbosity = Verbosity.VERBOSITY_DONE
    probe = _Probe()
    apart = replace(
        services,
        engines=_Probed(services.engines, probe),
        tools=_NotRun(services.tools),
        observer=Unobserved(),
        sessions={},
    )
    runner = SessionRunner(apart, principal, "probe")
    request = ConnectRequest(create=wanted)
    try:
        runner.receive(request, request.ByteSize())
        return await _first(runner, probe.prompt)
    finally:
        runner.abandon()


async def count_input_tokens(services: Services, principal: str, create: ResponseCreate) -> int:
    """Counts the tokens of a create's prompt: the number that the usage of its first pass would say.

    Where the engine cannot tell before it runs, as behind a chat API, it is the server's own count, which a chat
    upstream's differs from by what its template adds. Safe to cancel.

    Raises:
        RequestError: As for the create, or the model's format cannot say the conversation.
    """
    return await count_prompt(services, await prepared_prompt(services, principal, create))


async def count_prompt(services: Services, prompt: Prompt) -> int:
    """Counts the tokens of a prompt; see `count_input_tokens`."""
    engine = services.engines.engine(prompt.model)
    counted = await engine.count(prompt) if isinstance(engine, CountingEngine) else None
    return prompt.input_tokens if counted is None else counted


async def _first(runner: SessionRunner, prompt: asyncio.Future[Prompt]) -> Prompt:
    reading = asyncio.create_task(_refusal(runner))
    try:
        await asyncio.wait((reading, prompt), return_when=asyncio.FIRST_COMPLETED)
        if prompt.done():
            return prompt.result()
        raise RequestError(reading.result())
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _refusal(runner: SessionRunner) -> Error:
    """Reads until the create is refused, or failed before its first pass."""
    while (batch := await runner.next_batch()) is not None:
        runner.sent(batch.ByteSize(), len(batch.events))
        for event in batch.events:
            if event.HasField("rejected"):
                return event.rejected.error
            if event.HasField("done"):
                return event.done.error
    return runner.close_error or make_error("server_error", "The request ended without an outcome.")


class _Probe:
    """An engine that takes the prompt and does nothing with it; it is its own generation."""

    name = "probe"

    def __init__(self) -> None:
        self.prompt: asyncio.Future[Prompt] = asyncio.get_running_loop().create_future()

    def models(self) -> Sequence[ModelInfo]:
        return ()

    def start(self, prompt: Prompt, sink: Sink) -> _Probe:
        if not self.prompt.done():
            self.prompt.set_result(prompt)
        return self

    async def aclose(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def abort(self) -> None:
        pass


class _Probed(EngineRegistry):
    """The models of a registry, all of one engine's."""

    def __init__(self, registry: EngineRegistry, probe: _Probe) -> None:
        super().__init__(registry.engines)
        self._probe = probe

    def engine(self, model: str) -> Engine | None:
        return self._probe


class _NotRun:
    """Hosted tools that are listed and not run."""

    def __init__(self, tools: HostedTools) -> None:
        self._tools = tools

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        return self._tools.hosted_names(tools)

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        return self._tools.hosted_servers(tools)

    async def list_tools(self, label: str, tools: ToolSet, principal: str) -> Listed:
        return await self._tools.list_tools(label, tools, principal)

    async def run(self, target: Target, arguments: str, tools: ToolSet, principal: str) -> ToolResult:
        return ToolResult("")
