"""llama.cpp in this process: loads a model, and answers requests on the caller's thread.

Above it: `engine`. Below it: the package `xllamacpp`, which no other module knows. Requests go to llama.cpp by a call,
not by its HTTP server, because that was measured to be better (two cores, `threads` 1, medians of 30): 2.5 ms beside
inference instead of 7.5 for a turn whose prompt is kept, the same CPU per token, and no port that others on the machine
can reach. A call is cancelled through its callback, hence `return_progress`: without it a prefill says nothing until it
is over. Closing an HTTP connection, on the other hand, is noticed once a second.

The HTTP server starts all the same. It gets a key that nobody is told, and is asked for what the package has no call
for: what was loaded, once, and the ids of new text, which takes 0.1 ms over a connection that stays open.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from turnwire.server.engine.local.config import LocalConfig, LocalEngineError
from turnwire.server.engine.local.model import ModelFile

_TIMEOUT: Final = 30.0
"""Seconds; a megabyte of text takes a third of one."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What llama.cpp made of the file."""

    context: int
    """Tokens a slot has room for."""
    tools: bool
    """Whether the chat template shows tools to the model."""
    template: str = ""
    """The chat template in use."""
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """The named tokens that templates write: `bos_token` and `eos_token`."""


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

    def generate(self, body: bytes, on_event: Callable[[bytes], bool]) -> None:
        """Answers a request with a prompt of ids; see `complete`."""

    def tokenize(
        self, content: Sequence[str | int], *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Returns ids; see `vocabulary.Tokenize`. Blocks; safe to call from several threads."""
        ...

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
        self._asking = _Http(str(self._server.listening_address), key)
        self.loaded = _loaded(self._asking)

    def complete(self, body: bytes, on_event: Callable[[bytes], bool]) -> None:
        """See `Llama`."""
        self._server.handle_chat_completions(body, on_event)

    def generate(self, body: bytes, on_event: Callable[[bytes], bool]) -> None:
        """See `Llama`."""
        self._server.handle_completions(body, on_event)

    def tokenize(
        self, content: Sequence[str | int], *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """See `Llama`."""
        body = {"content": list(content), "add_special": add_special, "parse_special": parse_special}
        found: list[int] = self._asking.ask("POST", "/tokenize", body)["tokens"]
        return found

    def close(self) -> None:
        """See `Llama`."""
        self._asking.close()
        self._server = None


class _Http:
    """llama.cpp's HTTP server, over one connection: it has one thread."""

    def __init__(self, address: str, key: str) -> None:
        # Made by hand, and so without the environment's proxies.
        self._connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=_TIMEOUT)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._lock = threading.Lock()

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Returns an answer.

        Raises:
            OSError: There is none.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._lock:
            try:
                status, answer = self._try(method, path, data)
            except (OSError, http.client.HTTPException):
                # It closes connections that nobody used for a few seconds.
                self._connection.close()
                try:
                    status, answer = self._try(method, path, data)
                except (OSError, http.client.HTTPException) as error:
                    self._connection.close()
                    msg = f"llama.cpp does not answer {path}: {error}"
                    raise OSError(msg) from error
        if status != 200:
            msg = f"llama.cpp answers {path} with status {status}"
            raise OSError(msg)
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """Closes the connection."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def _try(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        self._connection.request(method, path, data, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _loaded(asking: _Http) -> Loaded:
    try:
        properties = asking.ask("GET", "/props")
        return Loaded(
            context=int(properties["default_generation_settings"]["n_ctx"]),
            tools=bool(properties.get("chat_template_caps", {}).get("supports_tools")),
            template=str(properties.get("chat_template") or ""),
            tokens={name: str(properties[name]) for name in ("bos_token", "eos_token") if properties.get(name)},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"llama.cpp does not say what it loaded: {error}"
        raise LocalEngineError(msg) from error
