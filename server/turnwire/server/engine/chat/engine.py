"""The engine port over an OpenAI-compatible chat-completions upstream.

Above it: the runtime. Below it: `passes`, `body`, `history`, `tools` and `upstream`. A turn costs the encoding of what
is new, and the sending of the whole history's JSON: the chat API has no other memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from turnwire.server.engine.chat.body import BodyWriter
from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.forced import forced_names, forcing
from turnwire.server.engine.chat.history import Style, history_of
from turnwire.server.engine.chat.messages import Media
from turnwire.server.engine.chat.passes import ChatPass, ChatRequest
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.engine.chat.tools import ToolCache
from turnwire.server.engine.chat.upstream import Upstream, UpstreamError
from turnwire.server.engine.port import ModelInfo, Sink
from turnwire.server.engine.profile import Takes
from turnwire.server.session.chunks import EngineFailure, Finish
from turnwire.server.session.prompt import Prompt
from turnwire.v1.response_pb2 import ResponseCreate

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class ChatStats:
    """What an engine did so far, for metrics and tests."""

    passes: int = 0
    """Passes started."""
    items: int = 0
    """Items encoded: each once, whatever the number of turns."""
    skipped: Counter[str] = field(default_factory=Counter[str])
    """Items left out of prompts, by type: the chat API has no word for them."""
    retried: int = 0
    """Requests sent again because a kept connection was closed."""
    failed: Counter[str] = field(default_factory=Counter[str])
    """Passes that failed, by code."""


@dataclass(frozen=True, slots=True)
class _Served:
    model: ChatModel
    style: Style

    @property
    def upstream(self) -> str:
        return self.model.upstream or self.model.id


class ChatEngine:
    """Asks one upstream."""

    name = "openai"

    def __init__(self, config: ChatEngineConfig, on_models: Callable[[], None] = lambda: None) -> None:
        """Connects to nothing yet; see `open`.

        Args:
            config: Everything about the upstream.
            on_models: Hears that the models are others than before.
        """
        self._on_models = on_models
        self._config = config
        self._upstream = Upstream(config)
        self._bodies = BodyWriter(config)
        self._tools = ToolCache()
        self._served: dict[str, _Served] = {}
        self._running: set[ChatPass] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """What carries passes out; a task may outlive its pass by the end of a body."""
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False
        self.stats = ChatStats()
        """Counters."""
        self._serve(config.models)

    @property
    def running(self) -> int:
        """How many passes are neither over nor aborted."""
        return len(self._running)

    async def open(self) -> EngineFailure | None:
        """Asks the upstream for its models, where none are configured, and goes on asking now and then.

        Returns:
            Why there are no models yet; they appear when the upstream does.

        Safe to cancel.
        """
        if self._config.models:
            return None
        trouble = await self.discover()
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
        return trouble

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models configured, or those the upstream named last."""
        files = self._config.kind.files
        return [
            ModelInfo(
                served.model.id,
                context_length=served.model.context_length,
                takes=Takes(images=served.model.images, files=files),
            )
            for served in self._served.values()
        ]

    def start(self, prompt: Prompt, sink: Sink) -> ChatPass:
        """Begins a pass. Must be called on the event loop's thread."""
        self.stats.passes += 1

        async def prepare() -> ChatRequest:
            return await self._prepare(prompt)

        request_id = f"{prompt.response_id}-{prompt.pass_id}"
        started = ChatPass(self._upstream, self._config, request_id, prompt.chain.key, prepare, sink, self._over)
        self._running.add(started)
        self.tasks.add(started.task)
        started.task.add_done_callback(self.tasks.discard)
        return started

    async def check(self) -> EngineFailure | None:
        """Asks the upstream for its models, which costs it nothing. Safe to cancel."""
        try:
            await self._upstream.models()
        except UpstreamError as error:
            return error.failure
        return None

    async def aclose(self) -> None:
        """Aborts what runs and closes all connections; passes started later fail. Cancelling it may leave some open."""
        self._closed = True
        for each in tuple(self._running):
            each.abort()
        tasks = list(self.tasks)
        if self._refreshing is not None:
            self._refreshing.cancel()
            tasks.append(self._refreshing)
        for task in tasks:
            # Some may still wait for the end of a body.
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._upstream.aclose()

    async def _prepare(self, prompt: Prompt) -> ChatRequest:
        if self._closed:
            raise Refusal("server_error", "The chat engine is closed.")
        served = self._served.get(prompt.model)
        if served is None:
            raise Refusal("model_not_found", f"The upstream does not serve the model '{prompt.model}'.")
        tools = self._tools.get(prompt.tools, cached=prompt.switches.tool_cache)
        settings = prompt.settings
        names: tuple[str, ...] = ()
        if not self._config.kind.forced_choice:
            names = forced_names(settings.tool_choice, tools)
        if names:
            settings = ResponseCreate()
            settings.CopyFrom(prompt.settings)
            forcing(settings, names, tools)
        history, tally = await history_of(prompt, served.style)
        self.stats.items += tally.items
        if tally.skipped:
            self.stats.skipped.update(tally.skipped)
        body = self._bodies.write(served.upstream, settings, history, tools)
        return ChatRequest(body, tools.targets, forced=bool(names))

    def _over(self, ended: ChatPass, outcome: Finish | EngineFailure | None) -> None:
        self._running.discard(ended)
        self.stats.retried += ended.retried
        if isinstance(outcome, EngineFailure):
            self.stats.failed[outcome.code] += 1

    # Models

    def _serve(self, models: Sequence[ChatModel]) -> None:
        # A model that stays keeps its style, and with it what chains have encoded.
        known = self._served
        if [served.model for served in known.values()] != list(models):
            self._on_models()
        self._served = {
            model.id: known[model.id]
            if model.id in known and known[model.id].model == model
            else _Served(model, style_of(self._config, model))
            for model in models
        }

    async def discover(self) -> EngineFailure | None:
        """Asks the upstream for its models once; returns why there is no answer. Safe to cancel."""
        try:
            found = await self._upstream.models()
        except UpstreamError as error:
            return error.failure
        except Exception:
            _log.exception("the models of %s cannot be listed", self._config.base_url)
            return EngineFailure("server_error", "The models of the upstream cannot be listed.")
        self._serve(found)
        return None

    async def _refresh(self) -> None:
        well = bool(self._served)
        while True:
            await asyncio.sleep(self._config.refresh if self._served else min(1.0, self._config.refresh))
            # What was served before stays: a pass says better than a missing model what is wrong.
            trouble = await self.discover()
            if trouble is not None and well:
                _log.warning("%s: %s", self._config.base_url, trouble.message)
            well = trouble is None


def style_of(config: ChatEngineConfig, model: ChatModel) -> Style:
    """Returns how messages are written for a model; chains keep their JSON as long as this object stays the same."""
    flavour = config.kind
    reasoning = config.reasoning_field or flavour.reasoning
    return Style(
        media=Media(model.id, images=model.images, files=flavour.files),
        reasoning_field=None if reasoning == "none" else reasoning,
        developer_role=flavour.developer_role,
        joined_lead=flavour.joined_lead,
        merged_roles=flavour.merged_roles if config.merge_roles is None else config.merge_roles,
        flat_text=flavour.flat_text,
        late_system_as_user=config.late_system_as_user,
    )
