"""llama.cpp in this process: loads a model, and answers chat completions on the caller's thread.

Above it: `engine`. Below it: the package `xllamacpp`, which no other module knows. Requests go to llama.cpp by a call,
not by its HTTP server, because that was measured to be better (two cores, `threads` 1, medians of 30): 2.5 ms beside
inference instead of 7.5 for a turn whose prompt is kept, the same CPU per token, and no port that others on the machine
can reach. A call is cancelled through its callback, hence `return_progress`: without it a prefill says nothing until it
is over. Closing an HTTP connection, on the other hand, is noticed once a second.

The HTTP server starts all the same. It gets a key that nobody is told, and is asked once, for what was loaded.
"""

from __future__ import annotations

import importlib
import json
import secrets
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from turnwire.server.engine.local.config import LocalConfig, LocalEngineError
from turnwire.server.engine.local.model import ModelFile

_TIMEOUT: Final = 10.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What llama.cpp made of the file."""

    context: int
    """Tokens a slot has room for."""
    tools: bool
    """Whether the chat template shows tools to the model."""


class Llama(Protocol):
    """A loaded model."""

    loaded: Loaded

    def complete(self, body: bytes, on_event: Callable[[bytes], bool]) -> None:
        """Answers a chat-completion request on this thread; blocks until it is over.

        Args:
            body: The request, as JSON that asks for a stream.
            on_event: Takes each event's JSON; returns True to stop. Must not raise.

        Raises:
            ValueError: The request is refused; the text is llama.cpp's.
            RuntimeError: It failed.
        """

    def close(self) -> None:
        """Frees the model; blocks until it has. Nothing may run any more."""


class LlamaServer:
    """A model loaded by `xllamacpp`."""

    def __init__(self, config: LocalConfig, file: ModelFile) -> None:
        """Loads the model; blocks for seconds.

        Raises:
            LocalEngineError: llama.cpp is not installed, or cannot load the file.
        """
        try:
            package: Any = importlib.import_module("xllamacpp")
        except ModuleNotFoundError as error:
            msg = "llama.cpp is missing: pip install 'turnwire[server,local]'"
            raise LocalEngineError(msg) from error
        key = secrets.token_urlsafe(32)
        params = package.CommonParams()
        params.model.path = str(file.path)
        params.n_parallel = config.slots
        params.n_ctx = config.context * config.slots
        params.n_batch = params.n_ubatch = config.batch
        params.n_gpu_layers = config.gpu_layers
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config.computing_threads
        if file.template:
            params.chat_template = file.template
        params.use_jinja = True
        # Chains go back a little with most turns, as templates write an answer other than it was sampled. Models with a
        # sliding window could not without the whole cache, and would compute everything again.
        params.swa_full = True
        # A slot's state is copied when it is lost to another chain, not with every pass.
        params.cache_ram_mib = config.host_cache
        params.cache_idle_slots = False
        params.port = 0
        params.hostnames = ["127.0.0.1"]
        params.api_keys = [key]
        params.ui = False
        params.n_threads_http = 1
        params.verbosity = 0
        try:
            self._server: Any = package.Server(params)
        except (RuntimeError, ValueError) as error:
            # It does not say which of these it was.
            why = "it is damaged, of a kind it does not know, or too large for this machine with this many slots"
            msg = f"{file.path}: llama.cpp cannot load it: {why}"
            raise LocalEngineError(msg) from error
        self.loaded = _ask(str(self._server.listening_address), key)

    def complete(self, body: bytes, on_event: Callable[[bytes], bool]) -> None:
        """See `Llama`."""
        self._server.handle_chat_completions(body, on_event)

    def close(self) -> None:
        """See `Llama`."""
        self._server = None


def _ask(address: str, key: str) -> Loaded:
    # Without the environment's proxies.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(path: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{address}{path}", headers={"Authorization": f"Bearer {key}"})
        with opener.open(request, timeout=_TIMEOUT) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    try:
        properties = get("/props")
        return Loaded(
            context=int(properties["default_generation_settings"]["n_ctx"]),
            tools=bool(properties.get("chat_template_caps", {}).get("supports_tools")),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"llama.cpp does not say what it loaded: {error}"
        raise LocalEngineError(msg) from error
