"""A prompt as llama.cpp's request for a chat completion: the chat engine's, with what only this process can say.

Above it: `passes`. Below it: the chat engine's history, tools, body and stream. llama.cpp renders and tokenizes
the whole conversation of such a request; it is for models and requests that `token_requests` cannot speak for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.server.engine.chat.body import BodyWriter
from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import style_of
from turnwire.server.engine.chat.forced import forced_names, forcing
from turnwire.server.engine.chat.history import history_of
from turnwire.server.engine.chat.stream import ChatStream
from turnwire.server.engine.chat.tools import ToolCache
from turnwire.server.engine.local.answers import Answer, ChatAnswer
from turnwire.server.session.prompt import Prompt
from turnwire.v1.response_pb2 import ResponseCreate


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that has to be answered before the request."""

    body: bytes
    check: Callable[[Sequence[bytes]], None]
    """Takes the events of the answer; raises Refusal where it is the wrong one."""


@dataclass(frozen=True, slots=True)
class LlamaRequest:
    """What llama.cpp is asked."""

    body: bytes
    answer: Answer
    """Reads what it says."""
    native: bool = False
    """Whether the prompt is one of ids; else it is a chat."""
    probe: Probe | None = None
    """What to ask before; None for nothing."""


class RequestWriter:
    """Writes the requests to one model."""

    def __init__(self, model: str, *, stop: tuple[str, ...] = (), reuse: bool = True, max_output: int = 0) -> None:
        """Takes what is the same for all requests; `max_output` where a request names no limit, 0 for none."""
        config = ChatEngineConfig(
            # The address is never used: nothing goes over HTTP.
            base_url="http://127.0.0.1/v1",
            flavour="llamacpp",
            extra_body={"cache_prompt": reuse, "return_progress": True},
        )
        self._model: Final = model
        self._stop: Final = stop
        self._max_output: Final = max_output
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
        tools = self._tools.get(prompt.tools, cached=prompt.switches.tool_cache)
        names = forced_names(prompt.settings.tool_choice, tools)
        settings = prompt.settings
        limited = settings.HasField("max_output_tokens") or not self._max_output
        if names or self._stop or not limited:
            settings = ResponseCreate()
            settings.CopyFrom(prompt.settings)
            settings.stop.extend(self._stop)
        if not limited:
            settings.max_output_tokens = self._max_output
        if names:
            forcing(settings, names, tools)
        history, tally = await history_of(prompt, self._style)
        if tally.skipped:
            self.skipped.update(tally.skipped)
        pieces = self._bodies.write(self._model, settings, history, tools)
        if slot is not None:
            pieces[-1] = pieces[-1][:-1] + b',"id_slot":%d}' % slot
        return LlamaRequest(b"".join(pieces), ChatAnswer(ChatStream(tools.targets, forced=bool(names))))
