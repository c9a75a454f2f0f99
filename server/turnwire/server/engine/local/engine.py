"""The engine port over llama.cpp in this process.

Above it: the runtime. Below it: `llama`, `passes`, `waiting` and `requests`. A continued turn runs on the slot where
its chain ran before, so that the model computes only what is new.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.llama import Llama, LlamaServer
from turnwire.server.engine.local.model import ModelFile, find_model
from turnwire.server.engine.local.passes import LocalPass
from turnwire.server.engine.local.requests import LlamaRequest, RequestWriter
from turnwire.server.engine.local.slots import SlotCounts, SlotTable
from turnwire.server.engine.local.speech import Speech, UnspokenError, open_speech
from turnwire.server.engine.local.token_requests import TokenWriter
from turnwire.server.engine.local.waiting import SlotQueue
from turnwire.server.engine.port import Generation, ModelInfo, Sink
from turnwire.server.engine.profile import TEXTS
from turnwire.server.engine.tokens.passes import CacheReport
from turnwire.server.engine.tokens.rendering import RenderStats
from turnwire.server.session.chunks import EngineFailure, Finish
from turnwire.server.session.prompt import Prompt
from turnwire.v1.errors import RequestError, make_error

_log: Final = logging.getLogger(__name__)

_RETRY: Final = 1.0
"""Seconds after which a pass that found no room may be tried again."""


class _Refused:
    """A pass that ended before it began."""

    def __init__(self, sink: Sink, failure: EngineFailure) -> None:
        self._call = asyncio.get_running_loop().call_soon(sink.ended, failure)

    def pause(self) -> None:
        """Has nothing to hold back."""

    def resume(self) -> None:
        """Has nothing to let flow."""

    def abort(self) -> None:
        """Keeps the failure to itself."""
        self._call.cancel()


class LocalEngine:
    """Runs one model."""

    name = "local"

    def __init__(
        self,
        config: LocalConfig,
        file: ModelFile,
        llama: Llama,
        speech: Speech | None = None,
        *,
        on_rendered: Callable[[RenderStats], None] = lambda _: None,
        on_cached: Callable[[CacheReport], None] = lambda _: None,
    ) -> None:
        """Takes a loaded model; see `open`.

        Args:
            config: What the engine was told.
            file: What was loaded.
            llama: The loaded model.
            speech: How to speak with it by ids; None leaves that to llama.cpp.
            on_rendered: Hears before each pass of ids what rendering it cost.
            on_cached: Hears after each such pass what the slot had kept.
        """
        self._config = config
        self._llama = llama
        self._model = ModelInfo(file.name, context_length=llama.loaded.context, takes=TEXTS)
        told: dict[str, Any] = {"stop": file.stop, "reuse": config.reuse, "max_output": file.max_output}
        self._chats = RequestWriter(file.name, **told)
        self._writer: TokenWriter | None = None
        if speech is not None:
            told |= {"on_rendered": on_rendered, "on_cached": on_cached}
            self._writer = TokenWriter(file.name, speech, llama.loaded.context, **told)
        self._queue = SlotQueue(SlotTable(config.slots))
        self._threads = ThreadPoolExecutor(config.slots, thread_name_prefix="llama")
        self._running: set[LocalPass] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.failed: Final = Counter[str]()
        """Passes that failed, by code."""

    @classmethod
    async def open(
        cls,
        config: LocalConfig,
        load: Callable[[LocalConfig, ModelFile], Llama] = LlamaServer,
        *,
        on_rendered: Callable[[RenderStats], None] = lambda _: None,
        on_cached: Callable[[CacheReport], None] = lambda _: None,
    ) -> LocalEngine:
        """Loads the model in a thread. Cancelling it leaves the thread to finish.

        Raises:
            LocalEngineError: There is no model, or no llama.cpp.
        """

        def prepare() -> tuple[ModelFile, Llama, Speech | None]:
            file = find_model(config)
            llama = load(config, file)
            return file, llama, find_speech(config, file, llama)

        file, llama, speech = await asyncio.to_thread(prepare)
        if not llama.loaded.tools:
            _log.warning("the chat template of %s shows tools to nobody: the model calls only if it has to", file.name)
        return cls(config, file, llama, speech, on_rendered=on_rendered, on_cached=on_cached)

    @property
    def running(self) -> int:
        """How many passes are neither over nor aborted."""
        return len(self._running)

    @property
    def slots(self) -> SlotCounts:
        """How passes found their slots."""
        return self._queue.table.counts

    @property
    def skipped(self) -> Counter[str]:
        """Items left out of prompts of llama.cpp's chat, by type: it has no word for them."""
        return self._chats.skipped

    def models(self) -> Sequence[ModelInfo]:
        """Lists the one model."""
        return (self._model,)

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass. Must be called on the event loop's thread."""
        if self._closed:
            return self._refuse(sink, EngineFailure("server_error", "The local engine is closed."))
        if self._queue.table.waiting >= self._config.max_waiting:
            message = "Too many responses wait for the local engine."
            return self._refuse(sink, EngineFailure("server_is_overloaded", message, _RETRY))
        started = LocalPass(
            prompt,
            sink,
            llama=self._llama,
            write=self._write,
            queue=self._queue,
            threads=self._threads,
            pinned=self._config.pinned,
            on_over=self._over,
        )
        self._running.add(started)
        self._tasks.add(started.task)
        started.task.add_done_callback(self._tasks.discard)
        return started

    async def count(self, prompt: Prompt) -> int | None:
        """Renders a prompt to count it, in a thread; None where llama.cpp renders. Safe to cancel.

        Raises:
            RequestError: The model's format cannot say this conversation.
        """
        if self._writer is None or not self._writer.takes(prompt):
            return None
        try:
            return await self._writer.count(prompt)
        except Refusal as refusal:
            raise RequestError(make_error(refusal.failure.code, refusal.failure.message)) from None

    async def aclose(self) -> None:
        """Aborts what runs, waits for llama.cpp to stop, and frees the model. Cancelling it may leave it loaded."""
        self._closed = True
        for each in tuple(self._running):
            each.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)
        await asyncio.to_thread(self._llama.close)

    async def _write(self, prompt: Prompt, slot: int | None) -> LlamaRequest:
        if self._writer is not None and self._writer.takes(prompt):
            return await self._writer.write(prompt, slot)
        return await self._chats.write(prompt, slot)

    def _refuse(self, sink: Sink, failure: EngineFailure) -> Generation:
        self.failed[failure.code] += 1
        return _Refused(sink, failure)

    def _over(self, ended: LocalPass, outcome: Finish | EngineFailure | None) -> None:
        self._running.discard(ended)
        if isinstance(outcome, EngineFailure):
            self.failed[outcome.code] += 1


def find_speech(config: LocalConfig, file: ModelFile, llama: Llama) -> Speech | None:
    """Returns how to speak with a model by ids; None, and a word in the log, where llama.cpp has to. Blocks."""
    if not config.rendered:
        return None
    try:
        return open_speech(file, llama)
    except UnspokenError as error:
        message = "%s: llama.cpp renders and tokenizes the whole conversation for every pass, since %s"
        _log.warning(message, file.name, error)
        return None
