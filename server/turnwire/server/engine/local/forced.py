"""Calls that have to be made, in ids: the answer to a schema as a call. Pure.

Above it: `token_requests`. Below it: the chat engine's `forced`, which tells which call and how it is written.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Final

from turnwire.server.engine.chat.forced import CallReader
from turnwire.server.engine.chat.tools import Target
from turnwire.server.prompt.parsing import Event, ParsedCallDelta, ParsedCallEnd, ParsedCallStart


class ForcedParser:
    """Reads the ids of an answer that is a call as JSON; an output parser, as those of models' own formats."""

    reasoning_tokens = 0

    def __init__(self, pieces: Sequence[bytes], targets: Mapping[str, Target]) -> None:
        """Takes the bytes of each id, and what functions' names stand for."""
        self._pieces = pieces
        self._targets = targets
        self._reader: Final = CallReader()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = False
        self._fed = 0
        self._waiting = 0
        """Ids that no event has accounted for yet."""

    def feed(self, ids: Sequence[int], text: str | None = None) -> list[Event]:
        """See the port."""
        if text is None:
            spelled = b"".join(self._pieces[token] for token in ids if token < len(self._pieces))
            text = self._utf8.decode(spelled)
        self._waiting += len(ids)
        self._fed += len(ids)
        arguments = self._reader.feed(text)
        events: list[Event] = []
        if self._reader.name is not None and not self._begun:
            self._begun = True
            target = self._targets.get(self._reader.name)
            events.append(ParsedCallStart(target.name if target else self._reader.name, tokens=self._counted()))
        if arguments:
            events.append(ParsedCallDelta(arguments, tuple(ids), self._counted(), self._fed - len(ids)))
        return events

    def finish(self, reason: str) -> list[Event]:
        """See the port."""
        return [ParsedCallEnd()] if self._begun and reason == "stop" else []

    def _counted(self) -> int:
        count, self._waiting = self._waiting, 0
        return count
