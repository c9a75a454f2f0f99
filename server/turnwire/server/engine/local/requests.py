"""A prompt as llama.cpp's request: the chat engine's, with what only a server in this process can say.

Above it: `passes`. Below it: the chat engine's history, tools and body, and `forced`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnwire.server.engine.chat.body import BodyWriter
from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import LARGE, style_of
from turnwire.server.engine.chat.history import Encoded, History, extend, missing
from turnwire.server.engine.chat.tools import Target, ToolCache
from turnwire.server.engine.local.forced import ForcedCalls, forced_names, forcing
from turnwire.server.session.prompt import Prompt
from turnwire.v1.response_pb2 import ResponseCreate


@dataclass(frozen=True, slots=True)
class LlamaRequest:
    """What llama.cpp is asked."""

    body: bytes
    targets: Mapping[str, Target]
    """What functions' names stand for."""
    forced: ForcedCalls | None
    """Reads a call that has to be made; None where the model is free."""


class RequestWriter:
    """Writes the requests to one model."""

    def __init__(self, model: str, *, stop: tuple[str, ...] = (), reuse: bool = True) -> None:
        """Takes what is the same for all requests."""
        config = ChatEngineConfig(
            # The address is never used: nothing goes over HTTP.
            base_url="http://127.0.0.1/v1",
            flavour="llamacpp",
            extra_body={"cache_prompt": reuse, "return_progress": True},
        )
        self._model: Final = model
        self._stop: Final = stop
        self._bodies: Final = BodyWriter(config)
        self._tools: Final = ToolCache()
        self._style: Final = style_of(config, ChatModel(model, images=False))
        self.skipped: Final = Counter[str]()
        """Items left out of prompts, by type."""

    async def write(self, prompt: Prompt, slot: int | None) -> LlamaRequest:
        """Writes the request of a pass. Safe to cancel.

        Args:
            prompt: What the pass starts from.
            slot: The slot to run on; None lets llama.cpp choose.

        Raises:
            Refusal: The model cannot take it.
        """
        tools = self._tools.get(prompt.tools)
        names = forced_names(prompt.settings.tool_choice, tools)
        settings = prompt.settings
        if names or self._stop:
            settings = ResponseCreate()
            settings.CopyFrom(prompt.settings)
            settings.stop.extend(self._stop)
        if names:
            forcing(settings, names, tools)
        history = await self._history(prompt)
        pieces = self._bodies.write(self._model, settings, history, tools)
        if slot is not None:
            pieces[-1] = pieces[-1][:-1] + b',"id_slot":%d}' % slot
        return LlamaRequest(b"".join(pieces), tools.targets, ForcedCalls() if names else None)

    async def _history(self, prompt: Prompt) -> History:
        parent, segments = missing(prompt.transcript, self._style)
        tally = Encoded()
        if sum(len(entry.data) for segment in segments for entry in segment.new) > LARGE:
            history = await asyncio.to_thread(extend, parent, segments, self._style, tally)
        else:
            history = extend(parent, segments, self._style, tally)
        if tally.skipped:
            self.skipped.update(tally.skipped)
        return history
