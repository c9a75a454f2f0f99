"""From the bytes of an answer to chunks: the one state machine for streams and for whole answers alike.

Above it: `engine`. Below it: `sse`, `frames`, `forced` and `calls`. Sans-I/O. How an answer ends:

- with a `finish_reason`: as it says; usage and `[DONE]` may follow, and need not;
- with `[DONE]` alone: as the model's own end, if it said anything;
- with neither: the upstream died, and what was said may be a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from turnwire.server.engine.chat import errors
from turnwire.server.engine.chat.calls import BrokenCalls, CallQueue
from turnwire.server.engine.chat.forced import ForcedCall
from turnwire.server.engine.chat.frames import CallPiece, Choice, Delta, Frame, logprobs_of, read_frame, usage_of
from turnwire.server.engine.chat.sse import EventTooLarge, SseParser
from turnwire.server.engine.chat.tools import Target
from turnwire.server.session.chunks import (
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    PassUsage,
    TextChunk,
)
from turnwire.v1.item_pb2 import Logprob

_DONE: Final = b"[DONE]"

_REASONS: Final = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
"""What cuts an answer short. Everything else is the model's own end (`stop`, `tool_calls`, `function_call`, `eos`, …)
or a failure."""

_FAILURES: Final = {
    "error": errors.broken("ended the answer with an error"),
    "abort": errors.broken("aborted the answer"),
    "insufficient_system_resource": EngineFailure("server_is_overloaded", "The upstream is overloaded.", 1.0),
}


class ChatStream:
    """Reads one answer."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        *,
        forced: bool = False,
        secrets: Sequence[str] = (),
        max_event_bytes: int = 8 * 1024 * 1024,
        max_answer_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        """Begins an answer.

        Args:
            targets: What functions' names stand for.
            forced: Whether the answer is held to the schema of a call, and is to be read as one.
            secrets: What must not be repeated.
            max_event_bytes: Size of an event to stop at.
            max_answer_bytes: Size to stop at of an answer that is not streamed.
        """
        self.outcome: Finish | EngineFailure | None = None
        """How the answer ended; None while more may come."""
        self.stopped = False
        """Whether the model has stopped, so that only usage and the end of the stream are missing."""
        self.begun = False
        """Whether anything was passed on."""
        self.told = ""
        """What the upstream said about its trouble, for the operator."""
        self._secrets = secrets
        self._max_event = max_event_bytes
        self._max_answer = max_answer_bytes
        self._calls = CallQueue(targets)
        self._forced = ForcedCall() if forced else None
        self._sse: SseParser | None = None
        self._whole: bytearray | None = None
        """The answer of an upstream that does not stream."""
        self._reason = FinishReason.STOP
        self._usage: PassUsage | None = None
        self._over = False
        """Whether the answer has ended well; the outcome is made of it once everything was counted."""
        self._logprobs: tuple[Logprob, ...] = ()
        """Of tokens whose text is still missing."""
        self._tokens = 0
        self._reasoning_tokens = 0

    def feed(self, data: bytes) -> list[Chunk]:
        """Takes bytes of the answer and returns the chunks that they complete; never raises."""
        out: list[Chunk] = []
        if self.outcome is not None or not data:
            return out
        try:
            self._feed(data, out)
        except EventTooLarge:
            self.outcome = errors.broken("sent an event that is too large")
        except BrokenCalls as error:
            self.outcome = errors.broken(str(error))
        self._settle(out)
        return out

    def end(self) -> list[Chunk]:
        """Hears that no more bytes come; sets the outcome and returns the last chunks; never raises."""
        out: list[Chunk] = []
        if self.outcome is not None:
            return out
        try:
            if self._whole is not None:
                self._take(bytes(self._whole), out)
            elif self._sse is not None:
                rest = self._sse.close()
                # A frame that was cut off is part of the death that is reported below.
                if rest is not None and (rest.strip() == _DONE or read_frame(rest) is not None):
                    self._take(rest, out)
        except BrokenCalls as error:
            self.outcome = errors.broken(str(error))
        self._over = self._over or self.stopped
        self._settle(out)
        if self.outcome is None:
            self.outcome = errors.lost(begun=self.begun)
        return out

    def waited(self) -> None:
        """Hears that usage and the end of the stream are not waited for any longer."""
        self._over = self.stopped
        self._settle(())

    def _feed(self, data: bytes, out: list[Chunk]) -> None:
        if self._sse is None and self._whole is None and not self._choose(data):
            return
        if self._whole is not None:
            self._whole += data
            if len(self._whole) > self._max_answer:
                self.outcome = errors.broken("sent an answer that is too large")
            return
        assert self._sse is not None
        for event in self._sse.feed(data):
            self._take(event, out)
            if self._over or self.outcome is not None:
                return

    def _choose(self, data: bytes) -> bool:
        """Decides by the first byte what is being sent: content types lie."""
        beginning = data.lstrip()[:1]
        if beginning == b"<":
            self.outcome = errors.broken("answered with a page instead of a completion")
            return False
        if beginning in (b"{", b"["):
            self._whole = bytearray()
        elif beginning:
            self._sse = SseParser(self._max_event)
        return bool(beginning)

    # Frames

    def _take(self, event: bytes, out: list[Chunk]) -> None:
        if event.strip() == _DONE:
            self._done(out)
            return
        frame = read_frame(event)
        if frame is not None:
            self._frame(frame, out)
        elif b"\n" in event:
            # Events without the empty line that ends them.
            for line in event.split(b"\n"):
                if not self._over and self.outcome is None and line.strip():
                    self._take(line, out)
        elif event.strip():
            self.outcome = errors.broken("sent something that is no completion")

    def _frame(self, frame: Frame, out: list[Chunk]) -> None:
        if frame.error:
            self._fail(frame.error)
            return
        if frame.usage:
            self._usage = usage_of(frame.usage, frame.timings)
        if frame.choices:
            for choice in frame.choices:
                if not choice.index:
                    self._choice(choice, out)
                    if self.outcome is not None:
                        return
        elif frame.usage:
            # The last there is, by the book; some upstreams then leave the connection as it is.
            self._over = self.stopped
        elif frame.message or frame.detail:
            self._fail({"message": frame.message or frame.detail})
            return
        if self._whole is not None and self.outcome is None:
            self._done(out)

    def _choice(self, choice: Choice, out: list[Chunk]) -> None:
        # After the end some upstreams repeat themselves.
        if self.stopped:
            return
        delta = choice.delta
        if delta is not None:
            self._delta(delta, choice, out)
        elif choice.message is not None:
            message = choice.message
            for index, call in enumerate(message.tool_calls or ()):
                call.index = index
            self._delta(message, choice, out)
        if choice.finish_reason:
            self._stop(choice.finish_reason, out)

    def _delta(self, delta: Delta, choice: Choice, out: list[Chunk]) -> None:
        if self._forced is not None:
            delta = self._forced.read(delta)
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._text(Channel.REASONING, reasoning, (), out)
        content = delta.content
        if choice.logprobs is not None and not reasoning and not delta.tool_calls:
            # Tokens that end within a character have no text yet; the next piece has.
            self._logprobs += logprobs_of(choice.logprobs)
        if content:
            if isinstance(content, str):
                logprobs = self._logprobs
                if logprobs:
                    self._logprobs = ()
                self._text(Channel.TEXT, content, logprobs, out)
            else:
                self._parts(content, out)
        if delta.refusal:
            self._text(Channel.REFUSAL, delta.refusal, (), out)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._call(call, out)
        elif delta.function_call is not None:
            self._call(CallPiece(0, None, delta.function_call), out)

    def _text(self, channel: Channel, text: str, logprobs: tuple[Logprob, ...], out: list[Chunk]) -> None:
        chunk = TextChunk(channel, text, len(logprobs) or 1, (), logprobs)
        if self._calls:
            self._calls.text(chunk, out)
        else:
            out.append(chunk)

    def _parts(self, parts: Sequence[object], out: list[Chunk]) -> None:
        """Takes content as a list of parts, as Mistral's service sends it."""
        for part in parts:
            if not isinstance(part, dict):
                continue
            fields = cast("dict[str, Any]", part)
            text = fields.get("text")
            thinking = fields.get("thinking")
            if isinstance(text, str) and text:
                self._text(Channel.TEXT, text, (), out)
            elif isinstance(thinking, str) and thinking:
                self._text(Channel.REASONING, thinking, (), out)
            elif isinstance(thinking, list):
                for each in cast("list[object]", thinking):
                    said = cast("dict[str, Any]", each).get("text") if isinstance(each, dict) else None
                    if isinstance(said, str) and said:
                        self._text(Channel.REASONING, said, (), out)

    def _call(self, piece: CallPiece, out: list[Chunk]) -> None:
        function = piece.function
        name = (function.name if function else None) or ""
        self._calls.delta(piece.index, piece.id or "", name, function.arguments if function else None, out)

    # The end

    def _fail(self, error: object) -> None:
        self.told = errors.words(str(error), self._secrets)
        self.outcome = errors.of_frame(error, self._secrets)

    def _stop(self, reason: str, out: list[Chunk]) -> None:
        failure = _FAILURES.get(reason)
        if failure is not None:
            self.outcome = failure
            return
        self._reason = _REASONS.get(reason, FinishReason.STOP)
        self.stopped = True
        if self._forced is not None and self._reason is FinishReason.STOP and (rest := self._forced.rest()):
            self._text(Channel.TEXT, rest, (), out)
        if self._calls:
            self._calls.finish(cut=self._reason is not FinishReason.STOP, out=out)

    def _done(self, out: list[Chunk]) -> None:
        if not self.stopped:
            if not self.begun and not out and not self._calls:
                self.outcome = errors.broken("ended the answer without a word")
                return
            self._stop("stop", out)
        self._over = self.outcome is None

    def _settle(self, out: Sequence[Chunk]) -> None:
        self._count(out)
        if self._over and self.outcome is None:
            self.outcome = self._finish()

    def _count(self, out: Sequence[Chunk]) -> None:
        if not out:
            return
        self.begun = True
        for chunk in out:
            self._tokens += chunk.tokens
            if isinstance(chunk, TextChunk) and chunk.channel is Channel.REASONING:
                self._reasoning_tokens += chunk.tokens

    def _finish(self) -> Finish:
        usage = self._usage
        if usage is None:
            # Better a count of pieces, which are tokens with most upstreams, than none.
            usage = PassUsage(output_tokens=self._tokens, reasoning_tokens=self._reasoning_tokens)
        return Finish(self._reason, usage)
