"""What llama.cpp answers, as chunks: one reader for chat completions, one for completions of ids.

Above it: `passes`, which feeds them on the event loop. Below it: the chat engine's stream, and the token engines' pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from turnwire.server.engine.chat import errors
from turnwire.server.engine.chat.stream import ChatStream
from turnwire.server.engine.local.spelling import spelled_by
from turnwire.server.engine.tokens.logprobs import finite
from turnwire.server.engine.tokens.parsing import ChunkMapper
from turnwire.server.engine.tokens.passes import CacheReport, PassPlan, RenderedPass
from turnwire.server.engine.tokens.port import UNKNOWN_LOGPROB, TokenDelta, TokenEnd
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish, FinishReason

_REASONS: Final = {"length": FinishReason.LENGTH}
"""What cuts an answer short; everything else is the model's own end."""


class Answer(Protocol):
    """Reads one answer."""

    outcome: Finish | EngineFailure | None
    """How it ended; known once `end` has returned, or `complete` is true."""

    @property
    def complete(self) -> bool:
        """Whether nothing that llama.cpp may still say belongs to it."""
        ...

    def feed(self, events: Sequence[bytes]) -> list[Chunk]:
        """Takes the next events."""
        ...

    def end(self) -> list[Chunk]:
        """Hears that no more will come."""
        ...


class ChatAnswer:
    """Reads a chat completion."""

    complete = False

    def __init__(self, stream: ChatStream) -> None:
        """Takes the reader of streams."""
        self._stream = stream
        self.outcome: Finish | EngineFailure | None = None

    def feed(self, events: Sequence[bytes]) -> list[Chunk]:
        """See `Answer`."""
        return self._stream.feed(b"".join([b"data: %b\n\n" % event for event in events]))

    def end(self) -> list[Chunk]:
        """See `Answer`."""
        chunks = self._stream.end()
        self.outcome = self._stream.outcome
        return chunks


class _Alternative(msgspec.Struct):
    id: int
    logprob: float | None = None


class _Token(msgspec.Struct):
    id: int
    logprob: float | None = None
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(msgspec.Struct):
    text: str = ""
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details = msgspec.field(default_factory=_Details)


class _Progress(msgspec.Struct):
    cache: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    prompt_progress: _Progress | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class _Gathered:
    """The ids of some events."""

    ids: list[int]
    logprobs: list[float]
    alternatives: list[list[tuple[int, float]]]


class TokenAnswer:
    """Reads a completion of ids: the sink of the token engines' pass, which parses them.

    llama.cpp names the id of each token that ends a piece of text. Of a character made of several tokens it names the
    last, so that the others are found by the bytes they have to spell.
    """

    def __init__(
        self,
        plan: PassPlan,
        mapper: ChunkMapper,
        pieces: Sequence[bytes],
        parts: Callable[[], Mapping[bytes, int]],
        *,
        stops: Collection[int] = (),
        alternatives: int = 0,
        on_cached: Callable[[CacheReport], None] = lambda _: None,
    ) -> None:
        """Takes what is known of the pass.

        Args:
            plan: The plan.
            mapper: Reads the ids.
            pieces: The bytes of each id.
            parts: Returns the ids that are parts of characters, by their bytes; asked only where they occur.
            stops: Ids that end an answer, whether or not llama.cpp knows them all.
            alternatives: Alternatives to pass on for each token.
            on_cached: Hears what the slot had kept of the prompt.
        """
        self._pieces = pieces
        self._parts = parts
        self._stops = frozenset(stops)
        self._most = alternatives
        self._chunks: list[Chunk] = []
        self._end: TokenEnd | EngineFailure | None = None
        self._at_stop = False
        """Whether the last id ends the answer."""
        self._found = 0
        self._kept: int | None = None
        """Ids of the prompt that were kept before a probe."""
        self.outcome: Finish | EngineFailure | None = None
        self._pass: Final = RenderedPass(plan, self, mapper, self._piece, on_cached)

    @property
    def complete(self) -> bool:
        """Whether a stop string or a stop token ended it."""
        return self.outcome is not None

    def begin_with(self, events: Sequence[bytes]) -> str:
        """Takes the answer to a probe of the same prompt, and returns its text.

        What of the prompt is found to be kept afterwards is what the probe computed, and was not kept before.

        Raises:
            msgspec.MsgspecError: An event is none of llama.cpp's.
        """
        text: list[str] = []
        for event in events:
            read = _decode(event)
            if read.prompt_progress is not None:
                self._kept = min(self._kept or read.prompt_progress.cache, read.prompt_progress.cache)
            text += [choice.text for choice in read.choices or ()]
        return "".join(text)

    def output(self, chunks: Sequence[Chunk]) -> None:
        """Takes what the pass has parsed."""
        self._chunks += chunks

    def ended(self, outcome: Finish | EngineFailure) -> None:
        """Takes the pass's end."""
        self.outcome = outcome

    def feed(self, events: Sequence[bytes]) -> list[Chunk]:
        """See `Answer`.

        Raises:
            msgspec.MsgspecError: An event is none of llama.cpp's.
        """
        gathered = _Gathered([], [], [])
        for event in events:
            read = _decode(event)
            if read.error is not None:
                self._end = errors.of_frame(read.error)
            if read.prompt_progress is not None:
                self._found = self._cached(read.prompt_progress.cache)
                self._pass.note_cached(self._found)
            for choice in read.choices or ():
                if self._at_stop and choice.logprobs is not None:
                    # llama.cpp goes on where the template says that a message ends.
                    self._over_by_itself(gathered)
                    return self._taken()
                self._gather(choice, gathered)
                if choice.finish_reason is not None and self._end is None:
                    self._end = self._ended(choice.finish_reason, read.usage or _Usage())
        self._put_out(gathered)
        return self._taken()

    def end(self) -> list[Chunk]:
        """See `Answer`."""
        if self._end is not None:
            self._pass.ended(self._end)
        return self._taken()

    def _put_out(self, gathered: _Gathered) -> None:
        if gathered.ids:
            self._pass.output(TokenDelta(gathered.ids, gathered.logprobs, gathered.alternatives))

    def _over_by_itself(self, gathered: _Gathered) -> None:
        self._put_out(gathered)
        self._pass.ended(TokenEnd(FinishReason.STOP, cached_tokens=self._found))

    def _taken(self) -> list[Chunk]:
        chunks, self._chunks = self._chunks, []
        return chunks

    def _gather(self, choice: _Choice, gathered: _Gathered) -> None:
        tokens = (choice.logprobs.content if choice.logprobs else None) or ()
        for token in tokens:
            for missing in self._missing(choice.text, token.id) if len(tokens) == 1 else ():
                gathered.ids.append(missing)
                gathered.logprobs.append(UNKNOWN_LOGPROB)
                gathered.alternatives.append([])
            gathered.ids.append(token.id)
            self._at_stop = token.id in self._stops
            gathered.logprobs.append(UNKNOWN_LOGPROB if token.logprob is None else finite(token.logprob))
            others = (token.top_logprobs or ())[: self._most]
            gathered.alternatives.append([(each.id, finite(each.logprob or 0.0)) for each in others])

    def _missing(self, text: str, last: int) -> list[int]:
        """Returns the ids of the tokens before the last of a character."""
        spelled, piece = text.encode(), self._piece(last)
        if len(spelled) <= len(piece) or not piece or not spelled.endswith(piece):
            return []
        return spelled_by(spelled[: -len(piece)], self._parts())

    def _piece(self, token: int) -> bytes:
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""

    def _cached(self, found: int) -> int:
        return found if self._kept is None else min(found, self._kept)

    def _ended(self, reason: str, usage: _Usage) -> TokenEnd:
        return TokenEnd(
            _REASONS.get(reason, FinishReason.STOP),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=self._cached(usage.prompt_tokens_details.cached_tokens),
            output_tokens=usage.completion_tokens,
        )
