"""An `Engine` made of a renderer, a token engine and an output parser.

Above it: the runtime. Below it: the ports of the three. It renders what is new, hands ids to the engine, and leaves the
rest of each pass to `passes`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

from turnwire.server.engine.port import Generation, ModelInfo, Sink
from turnwire.server.engine.profile import TEXTS
from turnwire.server.engine.tokens.constraints import constraint_of
from turnwire.server.engine.tokens.failures import overflow
from turnwire.server.engine.tokens.parsing import ChunkMapper
from turnwire.server.engine.tokens.passes import CacheReport, PassPlan, RenderedPass
from turnwire.server.engine.tokens.port import EngineFacts, TokenEngine, TokenRequest
from turnwire.server.engine.tokens.rendering import ChainRenderer, RenderedPrompt, RenderStats
from turnwire.server.engine.tokens.sampling import sampling_of, wants_text_logprobs
from turnwire.server.prompt.parsing import TokenTable, parser_for
from turnwire.server.prompt.renderer import RenderError
from turnwire.server.session.chunks import EngineFailure
from turnwire.server.session.prompt import Prompt
from turnwire.v1.errors import RequestError, make_error
from turnwire.v1.tool_pb2 import Tool

_log: Final = logging.getLogger(__name__)

LARGE: Final = 32 * 1024
"""Bytes of new items from which rendering moves to a thread, so that one large prompt does not delay its neighbours."""

_NO_CONTEXTS: Final[Mapping[str, int]] = MappingProxyType({})
_FREE_TEXT: Final = '{"properties": {"input": {"type": "string"}}}'

_PROMPT_TAIL: Final = 64
"""Ids at the end of the prompt that the parser looks at: templates may have begun the model's output."""


class RenderedEngine:
    """Serves one model of one token engine."""

    def __init__(
        self,
        tokens: TokenEngine,
        facts: EngineFacts,
        chains: ChainRenderer,
        output_format: str,
        table: TokenTable,
        *,
        models: Sequence[str] = (),
        contexts: Mapping[str, int] = _NO_CONTEXTS,
        on_rendered: Callable[[RenderStats], None] = lambda _: None,
        on_cached: Callable[[CacheReport], None] = lambda _: None,
    ) -> None:
        """Puts the parts together.

        Args:
            tokens: The engine, which is closed with this one.
            facts: What it said about itself.
            chains: Renders for its model.
            output_format: What its model's output looks like: one of `parsing.FORMATS`.
            table: The bytes of its tokenizer's ids.
            models: Names that clients use; by default the engine's own.
            contexts: Tokens of prompt and output together, by name, where that is less than the engine can take.
            on_rendered: Hears before each pass what rendering it cost.
            on_cached: Hears after each pass what the engine's prefix cache gave.

        Raises:
            UnknownFormatError: There is no such output format.
        """
        parser_for(output_format, table)
        self.name = tokens.name
        self._tokens = tokens
        self._facts = facts
        self._chains = chains
        self._format = output_format
        self._table = table
        self._pieces = table.visible(())
        names = models or (facts.model or tokens.name,)
        self._contexts = contexts
        self._models = tuple(ModelInfo(name, context_length=self._context_of(name), takes=TEXTS) for name in names)
        self._on_rendered = on_rendered
        self._on_cached = on_cached
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="render")
        self._starting: set[asyncio.Task[None]] = set()

    def models(self) -> Sequence[ModelInfo]:
        """Lists the one model, under each of its names."""
        return self._models

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass; a small prompt is with the engine when this returns."""
        started = _Starting(sink)
        if _size(prompt) <= LARGE:
            try:
                rendered = self._chains.render(prompt)
            except Exception as error:
                started.fail_soon(_unrendered(prompt, error))
                return started
            self._begin(prompt, rendered, started)
            return started
        task = asyncio.get_running_loop().create_task(self._render(prompt, started))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return started

    async def count(self, prompt: Prompt) -> int | None:
        """Renders a prompt to count it; a large one in a thread. Safe to cancel."""
        loop = asyncio.get_running_loop()
        try:
            if _size(prompt) <= LARGE:
                return self._chains.render(prompt).rendered.length
            return (await loop.run_in_executor(self._threads, self._chains.render, prompt)).rendered.length
        except Exception as error:
            failure = _unrendered(prompt, error)
            raise RequestError(make_error(failure.code, failure.message)) from None

    async def aclose(self) -> None:
        """Aborts what runs and closes the token engine. Cancelling it leaves the engine unusable."""
        for task in self._starting:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._tokens.aclose()

    async def _render(self, prompt: Prompt, started: _Starting) -> None:
        try:
            rendered = await asyncio.get_running_loop().run_in_executor(self._threads, self._chains.render, prompt)
            if not started.aborted:
                self._begin(prompt, rendered, started)
        except Exception as error:
            started.fail(_unrendered(prompt, error))

    def _begin(self, prompt: Prompt, rendered: RenderedPrompt, started: _Starting) -> None:
        settings = prompt.settings
        length = rendered.rendered.length
        context = self._context_of(prompt.model)
        if context is not None and length >= context:
            started.fail_soon(overflow(length, context))
            return
        self._on_rendered(rendered.stats)
        renderer = self._chains.renderer
        tools = prompt.tools.parsed()
        sampling = sampling_of(
            settings,
            room=None if context is None else context - length,
            stop_token_ids=renderer.stop_token_ids,
            constraint=constraint_of(settings, tools, self._format),
        )
        plan = PassPlan(
            engine=self.name,
            prompt_tokens=length,
            expected_cached=rendered.cached,
            new=rendered.new,
            stops=sampling.stop,
            text_logprobs=wants_text_logprobs(settings),
            record_logprobs=settings.token_output.logprobs,
            template_hash=renderer.template_hash,
            tokenizer_hash=renderer.tokenizer_hash,
            weight_version=self._facts.weight_version,
        )
        parser = parser_for(
            self._format,
            self._table,
            prompt=rendered.rendered.since(max(0, length - _PROMPT_TAIL)),
            tools=tuple(_names(tools.tools, customs=False)),
            schemas=dict(_schemas(tools.tools)),
        )
        mapper = ChunkMapper(
            parser,
            custom=tuple(_names(tools.tools, customs=True)),
            ids_in_deltas=settings.token_output.in_deltas,
        )
        begun = RenderedPass(plan, started.sink, mapper, self._token_bytes, self._on_cached)
        request = TokenRequest(
            request_id=f"{prompt.response_id}-{prompt.pass_id}",
            prompt=rendered.rendered,
            sampling=sampling,
            chain=prompt.chain,
            wants_weights=settings.token_output.in_done,
            visits=prompt.visits,
        )
        begun.attach(self._tokens.start(request, begun))
        started.attach(begun)

    def _context_of(self, model: str) -> int | None:
        """Returns the tokens of prompt and output together."""
        told = (self._facts.context_length, self._contexts.get(model))
        return min((context for context in told if context is not None), default=None)

    def _token_bytes(self, token: int) -> bytes:
        return self._pieces[token] if token < len(self._pieces) else b""


class _Starting:
    """A pass that may still be rendering; what it is told meanwhile is kept."""

    __slots__ = ("_paused", "_running", "aborted", "sink")

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.aborted = False
        self._paused = False
        self._running: RenderedPass | None = None

    def attach(self, running: RenderedPass) -> None:
        self._running = running
        if self._paused:
            running.pause()

    def pause(self) -> None:
        self._paused = True
        if self._running is not None:
            self._running.pause()

    def resume(self) -> None:
        self._paused = False
        if self._running is not None:
            self._running.resume()

    def abort(self) -> None:
        self.aborted = True
        if self._running is not None:
            self._running.abort()

    def fail(self, failure: EngineFailure) -> None:
        if not self.aborted:
            self.aborted = True
            self.sink.ended(failure)

    def fail_soon(self, failure: EngineFailure) -> None:
        """Fails once `start` has returned."""
        asyncio.get_running_loop().call_soon(self.fail, failure)


def _size(prompt: Prompt) -> int:
    """Counts the bytes of items that no renderer has seen yet; of all items, where nothing is kept."""
    if not prompt.switches.token_cache:
        return prompt.transcript.bytes
    size = 0
    for segment in prompt.transcript.segments():
        if segment.rendering is not None or size > LARGE:
            break
        size += sum(len(entry.data) for entry in segment.new)
    return size


def _unrendered(prompt: Prompt, error: Exception) -> EngineFailure:
    if isinstance(error, RenderError):
        return EngineFailure("invalid_request_error", str(error))
    _log.error("the prompt of %s could not be rendered", prompt.response_id, exc_info=error)
    return EngineFailure("server_error", "This conversation could not be rendered for the model.")


def _names(tools: Iterable[Tool], customs: bool) -> Iterator[str]:
    """Yields the names of a set's tools that the model may call; of the free text ones alone where asked."""
    for tool in tools:
        match tool.WhichOneof("kind"):
            case "function":
                if not customs:
                    yield tool.function.name
            case "custom":
                yield tool.custom.name
            case "namespace":
                yield from _names(tool.namespace.tools, customs)
            case _:
                pass


def _schemas(tools: Iterable[Tool]) -> Iterator[tuple[str, str]]:
    """Yields the names of tools with the JSON Schemas of their arguments, free text as renderers offer it."""
    for tool in tools:
        match tool.WhichOneof("kind"):
            case "function":
                yield tool.function.name, tool.function.parameters
            case "custom":
                yield tool.custom.name, _FREE_TEXT
            case "namespace":
                for name, schema in _schemas(tool.namespace.tools):
                    yield name, schema
                    # As chat templates show it.
                    yield f"{tool.namespace.name}.{name}", schema
            case _:
                pass
