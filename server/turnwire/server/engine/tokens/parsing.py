"""From a parser's events to the chunks that the session core understands.

Above it: the engines that take rendered prompts. Below it: output parsers, which know neither chunks nor tools. Here
calls of custom tools become free text, and ids and log-probabilities are attached where the request wants them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from turnwire.server.prompt.parsing import (
    Event,
    OutputParser,
    ParsedCallDelta,
    ParsedCallStart,
    ParsedText,
    ParsedTextEnd,
)
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallKind,
    CallStart,
    Channel,
    Chunk,
    FinishReason,
    TextChunk,
    TextEnd,
)
from turnwire.v1.item_pb2 import Logprob

_CHANNELS = {"text": Channel.TEXT, "reasoning": Channel.REASONING}
_NO_ARGUMENTS = "{}"


class ChunkMapper:
    """Turns one pass's ids into chunks."""

    def __init__(self, parser: OutputParser, *, custom: Collection[str] = (), ids_in_deltas: bool = False) -> None:
        """Wraps a parser.

        Args:
            parser: A new parser, for this pass alone.
            custom: Names of the tools whose input is free text.
            ids_in_deltas: Whether the request wants ids in deltas.
        """
        self._parser = parser
        self._custom = frozenset(custom)
        self._ids_in_deltas = ids_in_deltas
        self._logprobs: list[Logprob] = []
        self._first_logprob = 0
        self._call: _OpenCall | None = None

    @property
    def reasoning_tokens(self) -> int:
        """Sampled tokens accounted to reasoning so far."""
        return self._parser.reasoning_tokens

    def feed(self, ids: Sequence[int], text: str | None = None, logprobs: Sequence[Logprob] = ()) -> list[Chunk]:
        """Takes the next sampled ids.

        Args:
            ids: What was sampled.
            text: Their text where the engine says it; else the parser decodes.
            logprobs: One for each id where the request wants them in deltas; else none at all, in any call.
        """
        self._logprobs.extend(logprobs)
        return self._chunks(self._parser.feed(ids, text))

    def finish(self, reason: FinishReason) -> list[Chunk]:
        """Ends the pass; a call that was cut stays open, so that it is reported as incomplete."""
        chunks = self._chunks(self._parser.finish("stop" if reason is FinishReason.STOP else "length"))
        call = self._call
        if call is not None and call.held:
            chunks.append(CallDelta("".join(call.held), call.tokens))
        return chunks

    def _chunks(self, events: list[Event]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for event in events:
            if isinstance(event, ParsedText):
                ids = event.ids if self._ids_in_deltas else ()
                logprobs = self._logprobs_of(event) if self._logprobs else ()
                chunks.append(TextChunk(_CHANNELS[event.channel], event.text, event.tokens, ids, logprobs, event.phase))
            elif isinstance(event, ParsedTextEnd):
                chunks.append(TextEnd())
            elif isinstance(event, ParsedCallDelta):
                self._delta(event, chunks)
            elif isinstance(event, ParsedCallStart):
                custom = event.kind == "custom" or event.name in self._custom
                self._call = _OpenCall(custom)
                kind = CallKind.CUSTOM if custom else CallKind.FUNCTION
                chunks.append(CallStart(event.name, kind, event.call_id, event.tokens))
            else:
                self._end(chunks)
        return chunks

    def _logprobs_of(self, event: ParsedText) -> tuple[Logprob, ...]:
        """Returns the log-probabilities of a text's ids, and forgets all before."""
        begin = event.start - self._first_logprob
        end = begin + len(event.ids)
        found = tuple(self._logprobs[begin:end])
        del self._logprobs[:end]
        self._first_logprob += end
        return found

    def _delta(self, event: ParsedCallDelta, chunks: list[Chunk]) -> None:
        call = self._call
        if call is not None and call.custom and call.holds(event.text):
            call.held.append(event.text)
            call.tokens += event.tokens
            return
        if call is not None:
            call.said = True
        chunks.append(CallDelta(event.text, event.tokens, event.ids if self._ids_in_deltas else ()))

    def _end(self, chunks: list[Chunk]) -> None:
        call, self._call = self._call, None
        if call is not None and call.held:
            chunks.append(CallDelta(_free_text("".join(call.held)), call.tokens))
        elif call is not None and not call.said and not call.custom:
            # A function without arguments has an empty object of them, whatever the model left out.
            chunks.append(CallDelta(_NO_ARGUMENTS, 0))
        chunks.append(CallEnd())


class _OpenCall:
    """The call that is being written."""

    __slots__ = ("custom", "held", "said", "tokens")

    def __init__(self, custom: bool) -> None:
        self.custom = custom
        self.held: list[str] = []
        self.tokens = 0
        self.said = False

    def holds(self, text: str) -> bool:
        """Whether a piece of free text must wait: it may be an object around the text."""
        if self.said:
            return False
        return bool(self.held) or not text.strip() or text.lstrip().startswith("{")


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    input: str


def _free_text(text: str) -> str:
    """Unwraps `{"input": "…"}`: models that know functions alone write free text so."""
    try:
        return msgspec.json.decode(text, type=_Wrapped).input
    except msgspec.MsgspecError:
        return text
