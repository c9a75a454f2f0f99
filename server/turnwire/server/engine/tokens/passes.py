"""One pass between a token engine and the session: ids come in, chunks and the record of the pass go out.

Above it: `rendered`, which starts it. Below it: the output's mapper, the scanner for stop strings and the pass of the
token engine.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnwire.server.engine.port import Sink
from turnwire.server.engine.tokens.failures import broken
from turnwire.server.engine.tokens.parsing import ChunkMapper
from turnwire.server.engine.tokens.port import UNKNOWN_LOGPROB, TokenDelta, TokenEnd, TokenPass
from turnwire.server.engine.tokens.stops import StopScanner
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish, FinishReason, PassUsage, TokenRecord
from turnwire.v1.item_pb2 import Logprob, TopLogprob

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What a pass should have found in the engine's prefix cache, and what the engine says it found."""

    expected: int
    """Ids of the prompt that the engine saw with the chain's previous pass, sampled ones included."""
    reported: int

    @property
    def missing(self) -> int:
        """Ids computed again. Engines cache whole blocks, so that some 16 to 64 of them are nothing to look into."""
        return max(0, self.expected - self.reported)


@dataclass(frozen=True, slots=True)
class PassPlan:
    """What is known of a pass before it runs."""

    engine: str
    """Label of the engine, for messages."""
    prompt_tokens: int
    expected_cached: int
    new: array[int]
    """What the prompt holds beyond the chain's previous pass."""
    stops: tuple[str, ...]
    text_logprobs: bool
    """Whether text carries log-probabilities."""
    record_logprobs: bool
    """Whether the record carries log-probabilities."""
    template_hash: str
    tokenizer_hash: str
    weight_version: str
    """As the engine said when it was first asked."""
    verbatim: bool = True
    """Whether later prompts hold what this pass samples as it is."""
    keeps_stops: bool = True
    """Whether they do so even where a stop string ended it, which is then part of them."""


_NO_LOGPROBS: Final = array("f")
"""Those of every pass that records none, since each record is kept for as long as its conversation."""


class RenderedPass:
    """A running pass: the `TokenSink` of its token engine and the `Generation` of whoever started it."""

    def __init__(
        self,
        plan: PassPlan,
        sink: Sink,
        mapper: ChunkMapper,
        token_bytes: Callable[[int], bytes],
        on_cached: Callable[[CacheReport], None],
    ) -> None:
        """Prepares a pass; `attach` gives it what it reads from.

        Args:
            plan: What is known before.
            sink: Where chunks go.
            mapper: Reads this pass's output, from its first id.
            token_bytes: The bytes of an id, for log-probabilities.
            on_cached: Hears what the engine's cache gave.
        """
        self._plan = plan
        self._sink = sink
        self._mapper = mapper
        self._token_bytes = token_bytes
        self._on_cached = on_cached
        self._scanner = StopScanner(plan.stops) if plan.stops else None
        self._upstream: TokenPass | None = None
        self._over = False
        self._cached: int | None = None
        self._sampled = array("I")
        self._logprobs = array("f") if plan.record_logprobs else _NO_LOGPROBS

    def attach(self, upstream: TokenPass) -> None:
        """Takes the token engine's pass."""
        self._upstream = upstream

    def note_cached(self, tokens: int) -> None:
        """Hears from an engine that says so before the end how much of the prompt it need not compute."""
        self._cached = tokens

    def pause(self) -> None:
        """Pauses the engine."""
        if self._upstream is not None and not self._over:
            self._upstream.pause()

    def resume(self) -> None:
        """Resumes the engine."""
        if self._upstream is not None:
            self._upstream.resume()

    def abort(self) -> None:
        """Frees the engine."""
        if not self._over:
            self._over = True
            self._free()

    def output(self, delta: TokenDelta) -> None:
        """Takes the next ids."""
        if self._over:
            return
        try:
            chunks = self._chunks(delta)
        except Exception:
            _log.exception("engine %s: its output could not be read", self._plan.engine)
            self._fail(broken(self._plan.engine, "sent output that could not be read"))
            return
        if chunks:
            self._sink.output(chunks)
        if self._scanner is not None and self._scanner.stopped:
            # An engine that knows stop strings is at its end too, and this frees one that does not.
            self._free()
            self._finish(TokenEnd(FinishReason.STOP, cached_tokens=self._cached))

    def ended(self, outcome: TokenEnd | EngineFailure) -> None:
        """Takes the end."""
        if self._over:
            return
        if isinstance(outcome, EngineFailure):
            self._over = True
            self._sink.ended(outcome)
            return
        try:
            chunks = self._mapper.finish(outcome.reason)
            if self._scanner is not None:
                chunks = [*self._scanner.feed(chunks), *self._scanner.flush()]
        except Exception:
            _log.exception("engine %s: the end of its output could not be read", self._plan.engine)
            self._fail(broken(self._plan.engine, "sent output that could not be read"))
            return
        if chunks:
            self._sink.output(chunks)
        self._finish(outcome)

    def _chunks(self, delta: TokenDelta) -> list[Chunk]:
        ids = delta.ids
        # Raises for what is no id at all; ids that the tokenizer does not know are the parser's to bear.
        self._sampled.extend(ids)
        if self._plan.record_logprobs:
            self._logprobs.extend(delta.logprobs or [UNKNOWN_LOGPROB] * len(ids))
        logprobs = [self._logprob(delta, at) for at in range(len(ids))] if self._plan.text_logprobs else ()
        chunks = self._mapper.feed(ids, None, logprobs)
        return self._scanner.feed(chunks) if self._scanner is not None else chunks

    def _logprob(self, delta: TokenDelta, at: int) -> Logprob:
        spelled = self._token_bytes(delta.ids[at])
        value = delta.logprobs[at] if at < len(delta.logprobs) else UNKNOWN_LOGPROB
        made = Logprob(token=_text(spelled), logprob=value, bytes=spelled)
        for other, likelihood in delta.alternatives[at] if at < len(delta.alternatives) else ():
            spelled = self._token_bytes(other)
            made.top_logprobs.append(TopLogprob(token=_text(spelled), logprob=likelihood, bytes=spelled))
        return made

    def _finish(self, end: TokenEnd) -> None:
        self._over = True
        plan = self._plan
        if end.stop_id is not None and (not self._sampled or self._sampled[-1] != end.stop_id):
            # Some engines name the id that ended sampling without listing it; the next prompt needs it.
            self._sampled.append(end.stop_id)
            if plan.record_logprobs:
                self._logprobs.append(UNKNOWN_LOGPROB)
        if end.prompt_tokens and end.prompt_tokens != plan.prompt_tokens:
            message = "engine %s counts %d ids of prompt where %d were sent"
            _log.warning(message, plan.engine, end.prompt_tokens, plan.prompt_tokens)
        if end.cached_tokens is not None:
            self._on_cached(CacheReport(plan.expected_cached, end.cached_tokens))
        usage = PassUsage(
            input_tokens=end.prompt_tokens or plan.prompt_tokens,
            cached_tokens=end.cached_tokens or 0,
            output_tokens=end.output_tokens or len(self._sampled),
            reasoning_tokens=end.reasoning_tokens or self._mapper.reasoning_tokens,
        )
        record = TokenRecord(
            rendered=plan.new,
            sampled=self._sampled,
            logprobs=self._logprobs,
            template_hash=plan.template_hash,
            tokenizer_hash=plan.tokenizer_hash,
            weight_version=end.weight_version or plan.weight_version,
            verbatim=plan.verbatim and (plan.keeps_stops or self._scanner is None or not self._scanner.stopped),
        )
        self._sink.ended(Finish(end.reason, usage, record))

    def _fail(self, failure: EngineFailure) -> None:
        self._over = True
        self._free()
        self._sink.ended(failure)

    def _free(self) -> None:
        if self._upstream is not None:
            self._upstream.abort()


def _text(spelled: bytes) -> str:
    return spelled.decode("utf-8", errors="replace")
