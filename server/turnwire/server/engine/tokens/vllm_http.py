"""The adapter of vLLM's HTTP server: `/v1/completions` with a prompt of ids, `return_token_ids`, streamed.

Above it: `rendered`. Below it: `http_pass`. Every vLLM has this, without a flag; its price is that the first event
repeats the ids of the prompt, and that the engine makes text which nobody reads. The gRPC server does neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnwire.server.engine.tokens.agreement import PROBE, compare_spelling
from turnwire.server.engine.tokens.failures import http_failure, unavailable, words
from turnwire.server.engine.tokens.http_pass import HttpPass, aiohttp_module
from turnwire.server.engine.tokens.json_ids import JsonIds
from turnwire.server.engine.tokens.port import EngineFacts, EngineStartError, Sampling, TokenRequest, TokenSink
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.session.chunks import EngineFailure

ROUTING_HEADERS: Final = ("X-Session-ID", "X-SMG-Routing-Key")
"""The headers under which routers look for what belongs together; engines ignore them. vLLM's router, hashing
consistently, reads the first, and takes the id of the request where there is none; SMG reads the second."""
_MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer that is no stream."""


class _Model(msgspec.Struct):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Version(msgspec.Struct):
    version: str = ""


class _Tokens(msgspec.Struct):
    tokens: list[int]


class VllmHttpEngine:
    """A vLLM that serves HTTP."""

    name = "vllm"

    def __init__(
        self,
        base_url: str,
        *,
        model: str = "",
        api_key: str = "",
        connect_timeout: float = 5.0,
        start_timeout: float = 20.0,
        routing_headers: Sequence[str] = ROUTING_HEADERS,
    ) -> None:
        """Connects to nothing yet.

        Args:
            base_url: Of the API, such as `http://127.0.0.1:8000/v1`.
            model: Which of its models; by default the first.
            api_key: Sent as bearer, where it wants one.
            connect_timeout: Seconds for a connection.
            start_timeout: Seconds to wait for the engine at the start.
            routing_headers: Headers that carry what a pass's chain is routed by.

        Raises:
            EngineStartError: The HTTP client is not installed.
        """
        self._aiohttp: Any = aiohttp_module()
        self.address = base_url.rstrip("/")
        self._root = self.address.removesuffix("/v1")
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._connect_timeout = connect_timeout
        self._start_timeout = start_timeout
        self._routing_headers = tuple(routing_headers)
        self._session: Any = None
        self._json = JsonIds()
        self._passes: set[HttpPass] = set()

    @property
    def running(self) -> int:
        """How many passes have not ended."""
        return len(self._passes)

    async def facts(self) -> EngineFacts:
        """Asks for the models and the version. Safe to cancel.

        Raises:
            EngineStartError: It cannot be reached, or does not serve the model.
        """
        listed = (await self._get(f"{self.address}/models", _Models)).data
        chosen = next((each for each in listed if not self._model or each.id == self._model), None)
        if chosen is None:
            names = ", ".join(each.id for each in listed) or "none"
            msg = f"{self.name} at {self.address}: no model {self._model!r} there, but {words(names)}"
            raise EngineStartError(msg)
        self._model = chosen.id
        version = ""
        with contextlib.suppress(EngineStartError):
            version = (await self._get(f"{self._root}/version", _Version)).version
        return EngineFacts(
            model=chosen.id,
            model_path=chosen.root or "",
            context_length=chosen.max_model_len,
            server=f"vllm {version}".strip(),
        )

    async def disagreement(self, table: TokenTable) -> str:
        """Has the engine tokenize a text, and reads its ids. Safe to cancel.

        Raises:
            EngineStartError: It cannot be reached.
        """
        body = {"model": self._model, "prompt": PROBE, "add_special_tokens": False}
        status, data = await self._ask("POST", f"{self._root}/tokenize", msgspec.json.encode(body))
        if status != 200:
            return ""
        try:
            return compare_spelling(table, PROBE, msgspec.json.decode(data, type=_Tokens).tokens)
        except msgspec.MsgspecError:
            return ""

    def start(self, request: TokenRequest, sink: TokenSink) -> HttpPass:
        """Begins a pass."""
        rest = msgspec.json.encode(self._settings(request))
        body = b'{"prompt":%b,%b' % (self._json.array(request.prompt), rest[1:])
        headers = {"X-Request-Id": request.request_id, "Content-Type": "application/json"}
        if request.chain.key:
            headers |= dict.fromkeys(self._routing_headers, request.chain.key)
        begun = HttpPass(
            self.name, self._open(), f"{self.address}/completions", body, headers, sink, self._passes.discard
        )
        self._passes.add(begun)
        return begun

    async def check(self) -> EngineFailure | None:
        """Asks the server how it is. Safe to cancel."""
        try:
            status, data = await self._ask("GET", f"{self._root}/health", None)
        except EngineStartError:
            return unavailable(self.name)
        return None if status == 200 else http_failure(self.name, status, data.decode(errors="replace"), None)

    async def aclose(self) -> None:
        """Aborts what runs and closes all connections. Cancelling it leaves the engine unusable."""
        for each in tuple(self._passes):
            each.abort()
        for each in tuple(self._passes):
            await each.closed()
        if self._session is not None:
            await self._session.close()

    def _settings(self, request: TokenRequest) -> dict[str, Any]:
        given = request.sampling
        settings: dict[str, Any] = {
            "model": self._model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "temperature": given.temperature,
            "top_p": given.top_p,
            # All versions of it know -1 as no limit.
            "top_k": given.top_k or -1,
            "min_p": given.min_p,
            "frequency_penalty": given.frequency_penalty,
            "presence_penalty": given.presence_penalty,
            "repetition_penalty": given.repetition_penalty,
            "stop": given.stop,
            "stop_token_ids": given.stop_token_ids,
            "skip_special_tokens": False,
            "add_special_tokens": False,
        }
        # Left out, it would be 16.
        if given.max_tokens is not None:
            settings["max_tokens"] = given.max_tokens
        if given.seed is not None:
            settings["seed"] = given.seed
        if given.logit_bias:
            settings["logit_bias"] = {str(token): bias for token, bias in given.logit_bias.items()}
        if given.logprobs is not None:
            settings["logprobs"] = given.logprobs
            settings["return_tokens_as_token_ids"] = True
        if given.constraint is not None:
            settings["structured_outputs"] = _structured(given)
        return settings

    async def _get(self, url: str, answer: Any) -> Any:
        status, data = await self._ask("GET", url, None)
        if status != 200:
            msg = f"{self.name} at {self.address}: {url} answered {status}: {words(data.decode(errors='replace'))}"
            raise EngineStartError(msg)
        try:
            return msgspec.json.decode(data, type=answer)
        except msgspec.MsgspecError as error:
            msg = f"{self.name} at {self.address}: {url} is not vLLM's: {error}"
            raise EngineStartError(msg) from error

    async def _ask(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(self._start_timeout),
                self._open().request(
                    method, url, data=body, headers={"Content-Type": "application/json"}, allow_redirects=False
                ) as response,
            ):
                data = bytearray()
                while len(data) < _MAX_ANSWER and (piece := await response.content.readany()):
                    data += piece
                return response.status, bytes(data)
        except (self._aiohttp.ClientError, OSError, TimeoutError) as error:
            msg = f"{self.name} at {self.address}: not reached ({error or type(error).__name__}); is it running?"
            raise EngineStartError(msg) from error

    def _open(self) -> Any:
        # Not in the constructor: a session belongs to the loop that runs when it is made.
        if self._session is None:
            aiohttp = self._aiohttp
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_reuse)
            self._session = aiohttp.ClientSession(
                headers={"User-Agent": "turnwire", "Accept-Encoding": "identity", **self._headers},
                connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[trace],
            )
        return self._session


def _structured(given: Sampling) -> dict[str, Any]:
    constraint = given.constraint
    assert constraint is not None
    match constraint.kind:
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            return {"json": msgspec.Raw(constraint.text.encode())}
        case kind:
            return {kind: constraint.text}


async def _note_reuse(_: Any, context: Any, __: Any) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.reused = True


def _socket(address: Any) -> socket.socket:
    """Makes a socket that notices a dead peer: a long prefill is a quiet connection, and HTTP has no pings."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    if family in (socket.AF_INET, socket.AF_INET6):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
