"""One pass: a request, its answer read as it comes, and back-pressure.

Above it: `engine`. Below it: `upstream` and `stream`. A task per pass reads the socket and pushes what it brings. While
paused nothing is read, so that at most aiohttp's buffer (128 KiB) fills before the upstream itself is held up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp

from turnwire.server.engine.chat import errors
from turnwire.server.engine.chat.config import ChatEngineConfig
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.engine.chat.stream import ChatStream
from turnwire.server.engine.chat.tools import Target
from turnwire.server.engine.chat.upstream import Upstream, failure, may_repeat
from turnwire.server.engine.port import Sink
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What an upstream is asked."""

    body: list[bytes]
    """In pieces."""
    targets: Mapping[str, Target]
    """What functions' names stand for."""
    forced: bool = False
    """Whether the answer is held to the schema of a call."""


_MAX_TRIES: Final = 3
"""Requests sent for one pass, where connections kept from earlier passes turn out to be closed."""

_DRAIN: Final = 1.0
"""Seconds to wait for the end of the body, so that the connection can serve the next pass."""


_AHEAD: Final = 1.25
"""Silence is noticed after the limit, and before so many times the limit."""


class ChatPass:
    """A running pass."""

    def __init__(
        self,
        upstream: Upstream,
        config: ChatEngineConfig,
        request_id: str,
        routing_key: str,
        prepare: Callable[[], Awaitable[ChatRequest]],
        sink: Sink,
        on_over: Callable[[ChatPass, Finish | EngineFailure | None], None],
    ) -> None:
        """Begins; the sink is called later.

        Args:
            upstream: Where to ask.
            config: The upstream's limits.
            request_id: Names the pass to the upstream.
            routing_key: What its conversation is routed by.
            prepare: Writes the request; may raise `Refusal`.
            sink: Takes the output.
            on_over: Hears of the outcome before the sink does; of None when the pass was aborted.
        """
        self.reused = False
        """Whether the request went over a connection that served others before."""
        self.retried = 0
        """How often the request was sent again."""
        self._upstream = upstream
        self._config = config
        self._request_id = request_id
        self._headers = {"X-Request-Id": request_id, **dict.fromkeys(config.routing_headers, routing_key)}
        self._prepare = prepare
        self._sink = sink
        self._on_over = on_over
        self._over = False
        self._answered = False
        self._flowing: asyncio.Event | None = None
        """Set while output may flow; None as long as nobody ever paused."""
        self._response: aiohttp.ClientResponse | None = None
        self.task: Final = asyncio.get_running_loop().create_task(self._run())
        """What carries the pass out; it may outlive the outcome for a moment."""

    def pause(self) -> None:
        """Stops reading. Idempotent."""
        if self._flowing is None:
            self._flowing = asyncio.Event()
        self._flowing.clear()

    def resume(self) -> None:
        """Reads again. Idempotent."""
        if self._flowing is not None:
            self._flowing.set()

    def abort(self) -> None:
        """Closes the connection, by which the upstream knows. Idempotent, also after the end."""
        if self._over:
            return
        self._over = True
        if self._response is not None:
            self._response.close()
        self.task.cancel()
        self._on_over(self, None)

    async def _run(self) -> None:
        try:
            outcome = await self._carry_out()
        except asyncio.CancelledError:
            self.abort()
            raise
        except Refusal as refusal:
            outcome = refusal.failure
        except Exception:
            _log.exception("a pass failed")
            outcome = EngineFailure("server_error", "The chat engine failed.")
        if outcome is not None:
            self._end(outcome)

    async def _carry_out(self) -> EngineFailure | None:
        """Returns why there is no answer; None where its end was reported already."""
        request = await self._prepare()
        while True:
            stream = ChatStream(
                request.targets,
                forced=request.forced,
                secrets=self._upstream.secrets,
                max_event_bytes=self._config.max_event_bytes,
                max_answer_bytes=self._config.max_answer_bytes,
            )
            self.reused = False
            try:
                return await self._exchange(request.body, stream)
            except (aiohttp.ClientError, OSError) as error:
                if self._over:
                    return None
                if self.reused and not self._answered and may_repeat(error) and self.retried < _MAX_TRIES - 1:
                    # The upstream had closed the connection before it saw the request.
                    self.retried += 1
                    continue
                if stream.stopped:
                    stream.waited()
                    self._conclude(stream)
                    return None
                return failure(error, begun=stream.begun)

    async def _exchange(self, body: Sequence[bytes], stream: ChatStream) -> EngineFailure | None:
        config = self._config
        try:
            async with (
                asyncio.timeout(config.first_byte_timeout) as clock,
                self._upstream.complete(body, self._headers, self) as response,
            ):
                self._answered = True
                self._response = response
                if response.status != 200:
                    return await self._upstream.refusal(response)
                await self._read(response, stream, clock)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):
                raise
            if stream.stopped:
                stream.waited()
                self._conclude(stream)
                return None
            return errors.silent(config.idle_timeout if stream.begun else config.first_byte_timeout)
        finally:
            self._response = None
        return None

    async def _read(self, response: aiohttp.ClientResponse, stream: ChatStream, clock: asyncio.Timeout) -> None:
        idle, tail = self._config.idle_timeout, self._config.tail_timeout
        waiting = False
        content = response.content
        while not self._over:
            data = await content.readany()
            self._deliver(stream.feed(data) if data else stream.end())
            if stream.outcome is not None:
                self._conclude(stream)
                break
            flowing = self._flowing
            if flowing is not None and not flowing.is_set():
                # Time in which nobody wants to read says nothing about the upstream.
                clock.reschedule(None)
                await flowing.wait()
            if not stream.stopped:
                _extend(clock, idle)
            elif not waiting:
                waiting = True
                clock.reschedule(asyncio.get_running_loop().time() + tail)
        if isinstance(stream.outcome, Finish) and not content.at_eof():
            await self._drain(content, clock)

    async def _drain(self, content: aiohttp.StreamReader, clock: asyncio.Timeout) -> None:
        """Reads the rest of a body, which saves the next pass a connection."""
        clock.reschedule(None)
        try:
            async with asyncio.timeout(_DRAIN):
                while await content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError):
            # The connection is closed then.
            pass

    def _deliver(self, chunks: list[Chunk]) -> None:
        if chunks and not self._over:
            try:
                self._sink.output(chunks)
            except Exception:
                _log.exception("a pass is dropped because its sink failed")
                self.abort()

    def _conclude(self, stream: ChatStream) -> None:
        if stream.told:
            _log.warning("the upstream failed %s: %s", self._request_id, stream.told)
        if stream.outcome is not None:
            self._end(stream.outcome)

    def _end(self, outcome: Finish | EngineFailure) -> None:
        if self._over:
            return
        self._over = True
        self._on_over(self, outcome)
        try:
            self._sink.ended(outcome)
        except Exception:
            _log.exception("a sink failed to take the end of a pass")


def _extend(clock: asyncio.Timeout, limit: float) -> None:
    """Lets a limit begin anew. Setting a timer for every read would cost as much as reading, so it is set ahead."""
    now = asyncio.get_running_loop().time()
    due = clock.when()
    if due is None or due - now < limit or due - now > _AHEAD * limit:
        clock.reschedule(now + _AHEAD * limit)
