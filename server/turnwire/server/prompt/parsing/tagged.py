"""Reads output in which marks set off reasoning and calls from text: every dialect of `dialects.py`.

Above it: the factory. Below it: readers of calls, the ledger of ids. Text is held back only while it may turn out to be
something else: the beginning of a mark, blanks that may stand before one, or a call whose name has not come.
"""

from __future__ import annotations

import codecs
import enum
import re
from collections.abc import Sequence
from typing import Final

from turnwire.server.prompt.parsing.calls import Completing, Offered, Progress, Reader
from turnwire.server.prompt.parsing.dialects import Dialect, MakeReader
from turnwire.server.prompt.parsing.events import (
    Event,
    ParsedCallDelta,
    ParsedCallEnd,
    ParsedCallStart,
    ParsedText,
    ParsedTextEnd,
)
from turnwire.server.prompt.parsing.ledger import Ledger
from turnwire.server.prompt.parsing.marks import Marks, mark_sets
from turnwire.server.prompt.parsing.token_table import TokenTable

MOST_UNDECIDED: Final = 65_536
"""Characters that wait for a call to begin; then they are text."""
MOST_FALSE_CALLS: Final = 64
"""Marks without a call behind them in one pass; then such marks are text, so that no output is read again and again."""
MOST_BLANKS: Final = 1_024
"""Blanks that wait for what follows them; more are text, whatever follows: models that loop write endless blanks."""

_BLANK: Final = re.compile(r"\s*")
_PROMPT_TAIL: Final = 32
_NOTHING: Final = Offered()


class _Mode(enum.Enum):
    TEXT = 0
    THINK = 1
    CALL = 2


class TaggedParser:
    """Reads one pass of a model that writes a dialect."""

    def __init__(
        self, dialect: Dialect, tokenizer: TokenTable | None, *, thinking: bool = False, offered: Offered = _NOTHING
    ) -> None:
        """Begins a pass.

        Args:
            dialect: What the model writes.
            tokenizer: Decodes ids that come without text.
            thinking: Whether the prompt ends inside reasoning.
            offered: The tools offered.
        """
        self._dialect = dialect
        self._offered = offered
        self._marks_by_place = sets = mark_sets(dialect.name, True)
        self._pieces = tokenizer.visible(sets.visible) if tokenizer else None
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = False

        self._events: list[Event] = []
        self._ledger = Ledger()
        self._buffer = ""
        self._position = 0
        self._origin = 0

        self._mode = self._before = _Mode.THINK if thinking else _Mode.TEXT
        self._reasoned = thinking
        self._running = False
        self._said = False
        self._drop_blank = False
        self._in_blanks = False

        self._reader: Reader | None = None
        self._call_open = False
        self._undecided = 0
        self._resume = 0
        self._marked = False
        self._called = False
        self._false_calls = 0
        self.reasoning_tokens = 0

    def feed(self, ids: Sequence[int], text: str | None = None) -> list[Event]:
        """Takes the next sampled ids, with their text where the engine says it."""
        if text is None:
            if not ids:
                return []
            return self._feed_ids(tuple(ids))
        if not text.isascii():
            # Half a character can come out of an engine's JSON; no protobuf string holds it.
            text = text.encode("utf-8", "replace").decode()
        event = self._plain(text, tuple(ids))
        if event is not None:
            return [event]
        self._append(text, tuple(ids))
        return self._advance()

    def finish(self, reason: str) -> list[Event]:
        """Ends the pass."""
        rest = self._utf8.decode(b"", True)
        if rest:
            self._append(rest, ())
        self._events = self._advance()
        stopped = reason == "stop"
        while self._mode is _Mode.CALL:
            self._finish_call(stopped)
            self._events = self._advance()
        self._finish_text()
        if stopped:
            self._end_text()
        return self._taken()

    # What comes in.

    def _feed_ids(self, ids: tuple[int, ...]) -> list[Event]:
        pieces = self._pieces
        if pieces is None:
            msg = "ids came without text: give the parser the model's tokenizer"
            raise ValueError(msg)
        size = len(pieces)
        raws = [pieces[token] if 0 <= token < size else b"" for token in ids]
        if self._running and not self._buffer and not self._pending and b"" not in raws:
            try:
                text = raws[0].decode() if len(raws) == 1 else b"".join(raws).decode()
            except UnicodeDecodeError:
                pass
            else:
                event = self._plain(text, ids)
                if event is not None:
                    return [event]
        for token, raw in zip(ids, raws, strict=True):
            self._append(self._utf8.decode(raw) if raw else "", (token,))
        self._pending = bool(self._utf8.getstate()[0])
        return self._advance()

    def _plain(self, text: str, ids: tuple[int, ...]) -> ParsedText | None:
        """The hot path: text in the middle of text, in which nothing can begin."""
        if not self._said or self._buffer or self._pending or not text or text[-1].isspace():
            return None
        marks = self._marks()
        if marks is not None and not marks.absent(text):
            return None
        ledger = self._ledger
        if ledger.waiting:
            return None
        self._in_blanks = False
        self._origin += len(text)
        tokens, start = ledger.pass_through(self._origin, ids)
        if self._mode is _Mode.THINK:
            self.reasoning_tokens += tokens
            return ParsedText("reasoning", text, ids, tokens, start)
        return ParsedText("text", text, ids, tokens, start)

    def _append(self, text: str, ids: tuple[int, ...]) -> None:
        self._buffer += text
        if ids:
            self._ledger.add(self._origin + len(self._buffer), ids)

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # What is read.

    def _advance(self) -> list[Event]:
        going = True
        while going:
            if self._mode is _Mode.CALL:
                going = self._read_call()
            elif self._running:
                going = self._read_text()
            else:
                going = self._begin_run()
        if self._mode is not _Mode.CALL or self._call_open:
            self._buffer = self._buffer[self._position :]
            self._origin += self._position
            self._position = 0
        return self._taken()

    def _marks(self) -> Marks | None:
        if self._mode is _Mode.THINK:
            return self._marks_by_place.think
        return self._marks_by_place.text if self._reasoned else self._marks_by_place.first

    def _begin_run(self) -> bool:
        """Reads blanks and what may stand only where text would begin."""
        buffer, position = self._buffer, self._position
        blank = _BLANK.match(buffer, position)
        begin = blank.end() if blank else position
        thinking = self._mode is _Mode.THINK
        if self._drop_blank or thinking:
            self._position = begin
        elif begin - position > MOST_BLANKS:
            self._running = True
            return True
        if begin == len(buffer):
            return False
        marks = self._marks_by_place.think if thinking else self._marks_by_place.begin
        mark = marks.pattern.match(buffer, begin)
        if mark:
            self._take_mark(mark)
            return True
        if marks.held_from(buffer, begin) == begin:
            return False
        make = self._dialect.first.get(buffer[begin])
        if thinking or self._false_calls >= MOST_FALSE_CALLS:
            make = None
        if make:
            self._open_call(make, self._position, begin)
        else:
            self._running = True
        return True

    def _read_text(self) -> bool:
        buffer, marks = self._buffer, self._marks()
        mark = marks.pattern.search(buffer, self._position) if marks else None
        if mark:
            self._say(self._without_blanks(mark.start()))
            self._take_mark(mark)
            return True
        end = marks.held_from(buffer, self._position) if marks else len(buffer)
        self._say(self._without_blanks(end))
        return False

    def _without_blanks(self, end: int) -> tuple[int, int]:
        """Cuts the blanks off the end of the stretch up to `end`, unless they belong to too many."""
        start = self._position
        stretch = self._buffer[start:end]
        stripped = len(stretch.rstrip())
        if len(stretch) - stripped > MOST_BLANKS or (stripped == 0 and self._in_blanks):
            return start, end
        return start, start + stripped

    def _take_mark(self, mark: re.Match[str]) -> None:
        text = mark.group()
        make = self._dialect.openers.get(text)
        if make:
            # Should no call follow, all of it is text, with the blanks before it.
            self._open_call(make, self._position, mark.end())
            self._marked = True
            return
        self._end_text()
        self._running, self._drop_blank = False, True
        self._position = mark.end()
        if text == self._dialect.think[0]:
            self._mode, self._reasoned = _Mode.THINK, True
        elif text == self._dialect.think[1]:
            # Also where none was open: the reasoning was begun by a prompt that nobody showed us.
            self._mode, self._reasoned = _Mode.TEXT, True

    def _open_call(self, make: MakeReader, start: int, position: int) -> None:
        self._before, self._mode = self._mode, _Mode.CALL
        self._reader = make(self._offered)
        self._undecided = self._origin + start
        self._resume = self._origin + position
        self._marked = self._called = False
        self._position = position

    def _read_call(self) -> bool:
        reader = self._reader
        if reader is None:
            return False
        self._position = reader.read(self._buffer, self._position, self)
        if reader.progress is Progress.DONE:
            self._leave_call()
            return True
        if self._call_open:
            return False
        size = len(self._buffer) + self._origin - self._undecided
        if reader.progress is Progress.FAILED or size > MOST_UNDECIDED:
            self._give_up()
            return True
        return False

    def _leave_call(self) -> None:
        self._mode, self._reader = _Mode.TEXT, None
        self._running = False
        self._drop_blank = True

    def _give_up(self) -> None:
        """Makes text of what was no call."""
        self._false_calls += 1
        if self._false_calls == MOST_FALSE_CALLS:
            self._marks_by_place = mark_sets(self._dialect.name, False)
        # A call in reasoning ends it; what is no call is still reasoning.
        self._mode, self._reader = _Mode.TEXT if self._called else self._before, None
        self._running = True
        self._position = self._undecided - self._origin
        if self._marked and not self._called:
            # The mark itself must not be found again.
            self._say((self._position, self._resume - self._origin))

    # What goes out.

    def _say(self, span: tuple[int, int]) -> None:
        start, end = span
        self._position = end
        if start == end:
            return
        self._in_blanks = self._buffer[end - 1].isspace()
        ids, tokens, first = self._ledger.take(self._origin + start, self._origin + end)
        channel = "text"
        if self._mode is _Mode.THINK:
            channel = "reasoning"
            self.reasoning_tokens += tokens
        self._said = True
        self._events.append(ParsedText(channel, self._buffer[start:end], ids, tokens, first))

    def _end_text(self) -> None:
        if self._said:
            self._said = False
            self._events.append(ParsedTextEnd())

    def start(self, name: str, position: int, call_id: str = "") -> bool:
        """Begins a call, for readers."""
        if self._origin + position - self._undecided > MOST_UNDECIDED:
            return False
        self._end_text()
        self._call_open = True
        ledger = self._ledger
        self._events.append(ParsedCallStart(name, "function", call_id, ledger.framing))
        ledger.framing = 0
        return True

    def arguments(self, text: str, start: int, end: int) -> None:
        """Says arguments, for readers."""
        ids, tokens, first = self._ledger.take(self._origin + start, self._origin + end)
        self._undecided = self._origin + end
        self._events.append(ParsedCallDelta(text, ids, tokens, first))

    def end(self) -> None:
        """Ends the call, for readers."""
        self._call_open = False
        self._called = True
        self._events.append(ParsedCallEnd())

    # What is left.

    def _finish_call(self, stopped: bool) -> None:
        reader = self._reader
        if self._call_open:
            if stopped and isinstance(reader, Completing):
                reader.finish(self._buffer, self._position, self)
            self._position = len(self._buffer)
            if stopped and self._call_open:
                self.end()
            self._leave_call()
        elif reader is not None and reader.may_end():
            self._leave_call()
        else:
            behind = self._buffer[(self._undecided if self._called else self._resume) - self._origin :]
            if (self._marked or self._called) and (not stopped or not behind.strip()):
                # The beginning of a call that was cut, or a mark with nothing behind it, is nothing to show.
                self._position = len(self._buffer)
                self._leave_call()
            else:
                self._give_up()

    def _finish_text(self) -> None:
        """Says what was held back."""
        rest = self._buffer[self._position :]
        if not rest.strip():
            if self._said and self._mode is _Mode.TEXT:
                self._say((self._position, len(self._buffer)))
            return
        self._say((self._position, len(self._buffer)))


def thinking_is_open(dialect: Dialect, tokenizer: TokenTable | None, prompt: Sequence[int], prompt_text: str) -> bool:
    """Tells whether a prompt ends inside reasoning, as templates of reasoning models do."""
    if not prompt_text and tokenizer is not None:
        pieces = tokenizer.visible(dialect.think)
        tail = prompt[-_PROMPT_TAIL:]
        prompt_text = b"".join(pieces[token] for token in tail if 0 <= token < len(pieces)).decode("utf-8", "replace")
    return prompt_text.rstrip().endswith(dialect.think[0])
