"""An engine whose models have profiles: defaults are filled in, and what a model does not take is left out.

Above it: the runtime, which sees an engine like any other. Below it: the engine itself. What policy could check when a
request came was refused there; here is what only a whole prompt can tell, after appends too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwire.server.engine.port import CountingEngine, Engine, Generation, ModelInfo, Sink
from turnwire.server.engine.profile import ModelProfile, unsupported_in, without
from turnwire.server.session.chunks import EngineFailure
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.v1.response_pb2 import ResponseCreate


class ProfiledEngine:
    """Serves the models of an engine by their profiles."""

    def __init__(self, engine: Engine, models: Sequence[ModelInfo], *, counts: bool = False) -> None:
        """Takes what it serves.

        Args:
            engine: Serves the models under the same names. It is closed with this one.
            models: What clients see, in order; other models of the engine are not served.
            counts: Whether the engine itself counts prompts exactly, and so knows best whether they fit.
        """
        self.name = engine.name
        self._engine = engine
        self._models = tuple(models)
        self._profiles: Mapping[str, ModelProfile] = {model.id: model.profile for model in models}
        self._counts = counts

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models; what a profile leaves open is what the engine says."""
        if all(model.context_length is not None for model in self._models):
            return self._models
        told = {model.id: model.context_length for model in self._engine.models()}
        return [
            model if model.context_length is not None else replace(model, context_length=told.get(model.id))
            for model in self._models
        ]

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass."""
        profile = self._profiles[prompt.model]
        shaped = shape(prompt, profile)
        failure = None if self._counts else overflow(profile, prompt.input_tokens, shaped.settings)
        return self._engine.start(shaped, sink) if failure is None else _Refused(sink, failure)

    async def count(self, prompt: Prompt) -> int | None:
        """Counts a prompt as the model takes it. Safe to cancel."""
        engine = self._engine
        return (
            await engine.count(shape(prompt, self._profiles[prompt.model]))
            if isinstance(engine, CountingEngine)
            else None
        )

    async def aclose(self) -> None:
        """Closes the engine. Cancelling it leaves the engine unusable."""
        await self._engine.aclose()


def shape(prompt: Prompt, profile: ModelProfile) -> Prompt:
    """Returns the prompt as the model takes it."""
    settings = ResponseCreate()
    settings.CopyFrom(profile.defaults)
    if prompt.settings.stop:
        # Lists would be joined.
        del settings.stop[:]
    settings.MergeFrom(prompt.settings)
    tools = prompt.tools
    if profile.ignores:
        for path in list(unsupported_in(settings, tools=bool(tools.data), profile=profile)):
            if path == "tools":
                tools = NO_TOOLS
                settings.ClearField("tool_choice")
            else:
                without(settings, path)
        most = profile.max_output_tokens
        if most is not None and settings.max_output_tokens > most:
            settings.max_output_tokens = most
    return replace(prompt, settings=settings, tools=tools)


def overflow(profile: ModelProfile, input_tokens: int, settings: ResponseCreate) -> EngineFailure | None:
    """Says why a prompt does not fit into a model's context; None where it does."""
    context = profile.context_length
    asked = settings.max_output_tokens
    if context is None or input_tokens + asked <= context:
        return None
    parts = f" ({input_tokens} in the input, {asked} for the output)" if asked else ""
    message = (
        f"Your input exceeds the context window of this model: it has {context} tokens, and you asked for"
        f" {input_tokens + asked}{parts}."
    )
    return EngineFailure("context_length_exceeded", message)


class _Refused:
    """A pass that fails once its start has returned."""

    __slots__ = ("_handle",)

    def __init__(self, sink: Sink, failure: EngineFailure) -> None:
        self._handle = asyncio.get_running_loop().call_soon(sink.ended, failure)

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def abort(self) -> None:
        self._handle.cancel()
