"""The harmony format of gpt-oss, from token ids.

Above it: engines that give ids. Below it: the vocabulary and the reader of headers. Marks are told by their ids, so
text that looks like a mark is text. A message is a header, a mark, content and an end mark; the states are those, and a
mark that comes too early or too late ends what is open.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from typing import Final

from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.parsing.events import (
    Event,
    ParsedCallDelta,
    ParsedCallEnd,
    ParsedCallStart,
    ParsedText,
    ParsedTextEnd,
)
from turnwire.server.prompt.parsing.header import Header, read_header

FIRST_SPECIAL: Final = 199_998
"""Ids from here on are special or unused."""
END_OF_TEXT: Final = 199_999
RETURN: Final = 200_002
CONSTRAIN: Final = 200_003
CHANNEL: Final = 200_005
START: Final = 200_006
END: Final = 200_007
MESSAGE: Final = 200_008
CALL: Final = 200_012

LONGEST_HEADER: Final = 64
"""Tokens after which a header without the mark of content is read as content: the model has forgotten the mark."""

_ENDS: Final = frozenset((END, RETURN, CALL, END_OF_TEXT))
_PHASES: Final = {"commentary": "commentary", "final": "final_answer"}


class _TokenBytes(dict[int, bytes]):
    """The bytes of ordinary tokens, looked up once: three times as quick as asking for them each time."""

    def __missing__(self, token: int) -> bytes:
        raw = self[token] = vocabulary.encoding().decode_single_token_bytes(token)
        return raw


_BYTES: Final = _TokenBytes()


class HarmonyParser:
    """Reads one pass of a harmony model."""

    def __init__(self, prompt: Sequence[int] = (), tools: Collection[str] = ()) -> None:
        """Begins behind a prompt.

        Args:
            prompt: The last ids of the prompt. What follows its last start mark is the beginning of this output;
                without one, the output begins inside the assistant's header.
            tools: Names of the tools offered, to tell calls from other recipients.
        """
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._tools = frozenset(tools)
        self._events: list[Event] = []
        self._fed = 0
        self._framing = 0
        self._in_content = False
        self._open = False
        self._channel = ""
        self._phase = ""
        self._undecoded: list[int] = []
        self._role: list[int] = []
        self._channel_ids: list[int] | None = None
        self._type_ids: list[int] | None = None
        self.reasoning_tokens = 0
        self._read_prompt(_after_last_start(prompt))

    def feed(self, ids: Sequence[int], text: str | None = None) -> list[Event]:
        """Takes the next sampled ids; text is not used."""
        index, count = 0, len(ids)
        if count == 1 and self._in_content and 0 <= ids[0] < FIRST_SPECIAL:
            # Most engines deliver token by token.
            self._content((ids[0],))
            return self._taken()
        while index < count:
            if self._in_content:
                start = index
                while index < count and 0 <= ids[index] < FIRST_SPECIAL:
                    index += 1
                if index > start:
                    self._content(tuple(ids[start:index]))
                    continue
            self._step(ids[index])
            index += 1
        return self._taken()

    def finish(self, reason: str) -> list[Event]:
        """Ends the pass."""
        if reason == "stop":
            self._end_message()
        elif self._in_content:
            # An unfinished header says nothing yet; unfinished content is complete but for its last character.
            self._flush_character()
        return self._taken()

    def _read_prompt(self, ids: Sequence[int]) -> None:
        """Reads what the prompt has begun: it is no output, but a call opened there is this output's call."""
        for token in ids:
            self._step(token)
        self._open = self._in_content and self._channel == "call"
        called = [event for event in self._events if isinstance(event, ParsedCallStart)]
        self._events = [ParsedCallStart(called[-1].name)] if self._open else []
        self._undecoded = []
        self._framing = self._fed = self.reasoning_tokens = 0

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _step(self, token: int) -> None:
        """Takes a mark, or an ordinary token of a header."""
        if self._in_content and 0 <= token < FIRST_SPECIAL:
            self._content((token,))
            return
        self._fed += 1
        self._framing += 1
        if 0 <= token < FIRST_SPECIAL:
            self._header_token(token)
        elif token in _ENDS or token == START:
            self._end_message()
        elif token == CHANNEL:
            if self._in_content:
                self._end_message()
            self._channel_ids, self._type_ids = [], None
        elif token == MESSAGE:
            if not self._in_content:
                self._begin_content(self._header())
        elif token == CONSTRAIN and not self._in_content:
            self._type_ids = []

    def _header_token(self, token: int) -> None:
        if self._type_ids is not None:
            section = self._type_ids
        elif self._channel_ids is not None:
            section = self._channel_ids
        else:
            section = self._role
        section.append(token)
        length = len(self._role) + len(self._channel_ids or ()) + len(self._type_ids or ())
        if length >= LONGEST_HEADER:
            self._begin_content(header := self._header())
            self._say(header.rest)

    def _header(self) -> Header:
        role = self._text(self._role)
        channel = None if self._channel_ids is None else self._text(self._channel_ids)
        content_type = self._text(self._type_ids or ())
        self._role, self._channel_ids, self._type_ids = [], None, None
        return read_header(role, channel, content_type)

    def _text(self, ids: Sequence[int]) -> str:
        return _bytes_of(ids).decode("utf-8", "replace")

    def _begin_content(self, header: Header) -> None:
        self._in_content = True
        tool = "" if header.foreign else header.tool(self._tools)
        if tool:
            self._channel, self._phase = "call", ""
            self._open = True
            self._events.append(ParsedCallStart(tool, tokens=self._framing))
            self._framing = 0
            return
        addressed = header.recipient not in ("", "assistant", "user", "all")
        visible = header.channel in ("", "commentary", "final") and not header.foreign and not addressed
        self._channel = "text" if visible else "reasoning"
        self._phase = _PHASES.get(header.channel, "") if visible else ""

    def _content(self, ids: tuple[int, ...]) -> None:
        start = self._fed
        self._fed += len(ids)
        raw = _BYTES[ids[0]] if len(ids) == 1 else _bytes_of(ids)
        text = self._utf8.decode(raw)
        if self._undecoded:
            start -= len(self._undecoded)
            ids = (*self._undecoded, *ids)
            self._undecoded = []
        if text:
            self._emit(text, ids, start)
        else:
            self._undecoded = list(ids)

    def _say(self, text: str) -> None:
        """Says text that stood in a header: its tokens count, but are not its own."""
        if self._channel != "call":
            text = text.lstrip()
        if text.strip():
            self._emit(text, (), self._fed)

    def _emit(self, text: str, ids: tuple[int, ...], start: int) -> None:
        self._open = True
        tokens = len(ids) + self._framing
        self._framing = 0
        if self._channel == "call":
            self._events.append(ParsedCallDelta(text, ids, tokens, start))
            return
        if self._channel == "reasoning":
            self.reasoning_tokens += tokens
        self._events.append(ParsedText(self._channel, text, ids, tokens, start, self._phase))

    def _flush_character(self) -> None:
        """Says what is left of a character that will not be completed."""
        text = self._utf8.decode(b"", True)
        self._utf8.reset()
        ids, self._undecoded = tuple(self._undecoded), []
        if text or ids:
            self._emit(text, ids, self._fed - len(ids))

    def _end_message(self) -> None:
        if not self._in_content:
            if not (self._role or self._channel_ids or self._type_ids):
                self._channel_ids = self._type_ids = None
                return
            header = self._header()
            if not header.rest.strip():
                return
            self._begin_content(header)
            self._say(header.rest)
        self._flush_character()
        if self._open:
            self._events.append(ParsedCallEnd() if self._channel == "call" else ParsedTextEnd())
        self._open = self._in_content = False


def _bytes_of(ids: Sequence[int]) -> bytes:
    return b"".join([_BYTES[token] for token in ids])


def _after_last_start(prompt: Sequence[int]) -> Sequence[int]:
    for index in range(len(prompt) - 1, -1, -1):
        if prompt[index] == START:
            return prompt[index + 1 :]
    return ()
