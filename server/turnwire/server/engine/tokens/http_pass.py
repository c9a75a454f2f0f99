"""One pass over a streamed completion of vLLM's HTTP server.

Above it: `vllm_http`. Below it: aiohttp, and the parser of server-sent events. A task reads the socket and pushes what
it brings; closing the connection is how the engine hears of an abort.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from turnwire.server.engine.chat.sse import EventTooLarge, SseParser
from turnwire.server.engine.tokens.failures import broken, http_failure, pause_of, unavailable, words
from turnwire.server.engine.tokens.logprobs import beside, finite
from turnwire.server.engine.tokens.port import EngineStartError, TokenDelta, TokenEnd, TokenSink
from turnwire.server.session.chunks import EngineFailure, FinishReason

_log: Final = logging.getLogger(__name__)

_MAX_EVENT: Final = 64 * 1024 * 1024
"""Bytes of one event; the first repeats the ids of the prompt, at seven bytes each."""
_MAX_ERROR: Final = 64 * 1024
_TAIL: Final = 5.0
"""Seconds to wait for the usage after the output has ended."""
_ERROR_TIMEOUT: Final = 5.0


def aiohttp_module() -> Any:
    """Imports the HTTP client.

    Raises:
        EngineStartError: It is not installed.
    """
    try:
        return importlib.import_module("aiohttp")
    except ModuleNotFoundError as error:
        msg = f"this engine needs an HTTP client: pip install 'turnwire[server]' ({error.name} is missing)"
        raise EngineStartError(msg) from error


class _Logprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Error(msgspec.Struct):
    message: str = ""
    code: int | str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Error | None = None
    message: str = ""


_EVENTS: Final = msgspec.json.Decoder(_Event)


class CompletionReader:
    """Reads the events of one completion; no I/O."""

    def __init__(self, engine: str) -> None:
        """Takes the engine's label, for messages."""
        self._engine = engine
        self._parser = SseParser(_MAX_EVENT)
        self._end: TokenEnd | None = None
        self._sampled = 0
        self.outcome: TokenEnd | EngineFailure | None = None
        """How the pass ended; None as long as it goes on."""

    @property
    def stopped(self) -> bool:
        """Whether the output has ended, and only the usage may follow."""
        return self._end is not None

    def feed(self, data: bytes) -> list[TokenDelta]:
        """Takes bytes and returns the ids that they bring."""
        deltas: list[TokenDelta] = []
        try:
            for event in self._parser.feed(data):
                if self.outcome is None:
                    self._take(event, deltas)
        except EventTooLarge:
            self.outcome = broken(self._engine, "sent an event beyond all bounds")
        return deltas

    def close(self) -> None:
        """Takes the end of the bytes."""
        if self.outcome is None:
            self.outcome = self._end or broken(self._engine, "ended a stream without saying how the output ended")

    def _take(self, event: bytes, deltas: list[TokenDelta]) -> None:
        if event == b"[DONE]":
            self.close()
            return
        try:
            read = _EVENTS.decode(event)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.outcome = broken(self._engine, "sent an event that cannot be read")
            return
        if read.error is not None:
            code = read.error.code
            known = code if isinstance(code, int) else 500
            self.outcome = http_failure(self._engine, known, read.error.message, None)
            return
        if read.choices and self._end is None:
            self._choose(read.choices[0], deltas)
        if read.usage is not None and self._end is not None and self.outcome is None:
            details = read.usage.prompt_tokens_details
            self.outcome = _with_usage(self._end, read.usage, details)

    def _choose(self, choice: _Choice, deltas: list[TokenDelta]) -> None:
        ids = choice.token_ids
        if ids:
            self._sampled += len(ids)
            deltas.append(_delta(ids, choice.logprobs))
        elif ids is None and choice.finish_reason is None:
            self.outcome = broken(self._engine, "gives no token ids: it may be too old, or no vLLM")
            return
        if choice.finish_reason is None:
            return
        if choice.finish_reason not in ("stop", "length"):
            self.outcome = broken(self._engine, f"ended the output itself ({words(choice.finish_reason)})")
            return
        self._end = TokenEnd(
            FinishReason.LENGTH if choice.finish_reason == "length" else FinishReason.STOP,
            output_tokens=self._sampled,
            stop_id=choice.stop_reason if isinstance(choice.stop_reason, int) else None,
        )


def _with_usage(end: TokenEnd, usage: _Usage, details: _Details | None) -> TokenEnd:
    return TokenEnd(
        end.reason,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=details.cached_tokens if details is not None else None,
        output_tokens=end.output_tokens,
        stop_id=end.stop_id,
    )


def _delta(ids: list[int], given: _Logprobs | None) -> TokenDelta:
    if given is None:
        return TokenDelta(tuple(ids))
    values = [float("nan") if value is None else value for value in given.token_logprobs]
    tops = [
        sorted(((_id(name), finite(value)) for name, value in (each or {}).items()), key=lambda pair: -pair[1])
        for each in given.top_logprobs or ()
    ]
    return TokenDelta(tuple(ids), beside(ids, [_id(name) for name in given.tokens], values), tops)


def _id(name: str) -> int:
    """Reads an id written as `token_id:17`; 0 for anything else."""
    _, _, number = name.partition(":")
    return int(number) if number.isdecimal() else 0


class HttpPass:
    """A running pass."""

    def __init__(
        self,
        engine: str,
        session: Any,
        url: str,
        body: bytes,
        headers: dict[str, str],
        sink: TokenSink,
        on_over: Callable[[HttpPass], None],
    ) -> None:
        """Sends the request; the sink is called later."""
        self.reused = False
        """Whether the request went over a connection that served others before."""
        self._engine = engine
        self._session = session
        self._url = url
        self._body = body
        self._headers = headers
        self._sink = sink
        self._aiohttp: Any = aiohttp_module()
        self._over = False
        self._gate: asyncio.Event | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda _: on_over(self))

    def pause(self) -> None:
        """Stops reading; what fits into the buffers still comes."""
        if self._gate is None and not self._over:
            self._gate = asyncio.Event()

    def resume(self) -> None:
        """Reads on."""
        if self._gate is not None:
            self._gate.set()
            self._gate = None

    def abort(self) -> None:
        """Closes the connection."""
        if not self._over:
            self._over = True
            self._task.cancel()

    async def closed(self) -> None:
        """Waits until the connection is closed or free. Safe to cancel."""
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            try:
                await self._exchange()
            except (self._aiohttp.ServerDisconnectedError, self._aiohttp.ClientOSError, ConnectionError) as error:
                if not self.reused or isinstance(error, self._aiohttp.ClientConnectorError):
                    raise
                # The engine had closed a connection that was kept, before it saw the request.
                self.reused = False
                await self._exchange()
        except (self._aiohttp.ClientError, OSError) as error:
            _log.warning("engine %s: %s", self._engine, words(str(error) or type(error).__name__))
            self._end(unavailable(self._engine))
        except Exception:
            _log.exception("engine %s: a pass could not be read", self._engine)
            self._end(broken(self._engine, "sent what could not be read"))

    async def _exchange(self) -> None:
        async with self._session.post(
            self._url, data=self._body, headers=self._headers, allow_redirects=False, trace_request_ctx=self
        ) as response:
            # From here on a lost connection is no stale one.
            self.reused = False
            kind = response.headers.get("Content-Type", "")
            if response.status != 200:
                await self._refused(response)
            elif not kind.startswith("text/event-stream"):
                self._end(broken(self._engine, f"answered with {words(kind) or 'no type'} instead of a stream"))
                response.close()
            else:
                await self._read(response)

    async def _read(self, response: Any) -> None:
        reader = CompletionReader(self._engine)
        content = response.content
        while reader.outcome is None:
            if self._gate is not None:
                await self._gate.wait()
                continue
            try:
                async with asyncio.timeout(_TAIL if reader.stopped else None):
                    data = await content.readany()
            except TimeoutError:
                reader.close()
                break
            if not data:
                reader.close()
            for delta in reader.feed(data):
                if not self._over:
                    self._sink.output(delta)
        assert reader.outcome is not None
        self._end(reader.outcome)
        if isinstance(reader.outcome, EngineFailure):
            response.close()

    async def _refused(self, response: Any) -> None:
        body = bytearray()
        try:
            async with asyncio.timeout(_ERROR_TIMEOUT):
                while len(body) < _MAX_ERROR and (data := await response.content.readany()):
                    body += data
        except (self._aiohttp.ClientError, OSError, TimeoutError):
            # The status says enough.
            pass
        response.close()
        text = _message(bytes(body))
        _log.warning("engine %s: HTTP %d: %s", self._engine, response.status, words(text))
        pause = pause_of(response.headers.get("Retry-After"))
        self._end(http_failure(self._engine, response.status, text, pause))

    def _end(self, outcome: TokenEnd | EngineFailure) -> None:
        if not self._over:
            self._over = True
            self._sink.ended(outcome)


def _message(body: bytes) -> str:
    try:
        read = _EVENTS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return body[:2_000].decode(errors="replace")
    return (read.error.message if read.error is not None else read.message) or body[:2_000].decode(errors="replace")
