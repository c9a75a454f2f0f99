"""Tool calls in the order in which they were begun, one after the other, however their pieces are interleaved.

Above it: `stream`. Below it: `custom_input`. The call that was begun first is passed on as it comes, the others wait.
A call is over when another begins and its arguments are a whole object, so that its tool can start; else when the
model stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnwire.server.engine.chat.custom_input import CustomInput
from turnwire.server.engine.chat.tools import Target
from turnwire.server.session.chunks import CallDelta, CallEnd, CallKind, CallStart, Chunk, TextChunk

_NO_ARGUMENTS: Final = "{}"


class BrokenCalls(Exception):
    """The pieces do not make calls; the text says why."""


class _Text:
    """Text that came behind a call."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: list[TextChunk] = []


class _Call:
    """One call."""

    __slots__ = ("arguments", "id", "index", "input", "name", "pending", "started", "tokens")

    def __init__(self, index: int | None, call_id: str) -> None:
        self.index = index
        self.id = call_id
        self.name = ""
        self.arguments: list[str] = []
        """All pieces, to see whether they are whole."""
        self.pending: list[str] = []
        """Pieces that were not passed on."""
        self.started = False
        self.input: CustomInput | None = None
        self.tokens = 0

    @property
    def whole(self) -> bool:
        """Whether the arguments are a JSON object."""
        if not self.name or not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except (msgspec.DecodeError, UnicodeError):
            return False


class CallQueue:
    """The calls of one answer."""

    __slots__ = ("_by_index", "_head", "_slots", "_targets")

    def __init__(self, targets: Mapping[str, Target]) -> None:
        """Takes what the functions' names stand for."""
        self._targets = targets
        self._slots: list[_Call | _Text] = []
        self._head = 0
        self._by_index: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        """Whether a call was begun."""
        return bool(self._slots)

    def text(self, chunk: TextChunk, out: list[Chunk]) -> None:
        """Takes text that came behind a call."""
        last = self._slots[-1]
        if not isinstance(last, _Text):
            last = _Text()
            self._slots.append(last)
            self._advance(out)
        if last is self._slots[self._head]:
            out.append(chunk)
        else:
            last.chunks.append(chunk)

    def delta(self, index: int | None, call_id: str, name: str, arguments: Any, out: list[Chunk]) -> None:
        """Takes a piece of a call.

        Raises:
            BrokenCalls: It belongs to a call that is over.
        """
        call = self._find(index, call_id, name)
        if call is None:
            call = _Call(index, call_id)
            self._slots.append(call)
            if index is not None:
                self._by_index[index] = call
            self._advance(out)
        if name and not call.name:
            call.name = name
        if not call.id:
            call.id = call_id
        text = _text_of(arguments)
        head = self._slots[self._head]
        if text:
            if call is not head and self._slots.index(call) < self._head:
                if text.strip():
                    msg = f"went on with the call of '{call.name}' after its arguments were complete"
                    raise BrokenCalls(msg)
                return
            call.arguments.append(text)
            call.pending.append(text)
        if call is head:
            self._pass_on(call, out)
            self._advance(out)

    def finish(self, *, cut: bool, out: list[Chunk]) -> None:
        """Passes everything on, since the model has stopped; where it was cut short, the last call stays open.

        Raises:
            BrokenCalls: A call has no name.
        """
        while self._head < len(self._slots):
            slot = self._slots[self._head]
            last = self._head == len(self._slots) - 1
            if isinstance(slot, _Call):
                if not slot.name:
                    msg = "called a tool without saying which"
                    raise BrokenCalls(msg)
                self._pass_on(slot, out)
                if not (cut and last):
                    self._end(slot, out)
            else:
                out.extend(slot.chunks)
                slot.chunks.clear()
            self._head += 1

    def _find(self, index: int | None, call_id: str, name: str) -> _Call | None:
        if index is not None:
            call = self._by_index.get(index)
            # Some upstreams number all calls 0.
            if call is not None and name and call_id and call.id and call_id != call.id:
                return None
            return call
        calls = [slot for slot in self._slots if isinstance(slot, _Call)]
        if call_id:
            return next((call for call in calls if call.id == call_id), None)
        return calls[-1] if calls and not name else None

    def _advance(self, out: list[Chunk]) -> None:
        """Goes on to later calls as long as the first that is not over is whole."""
        while self._head < len(self._slots) - 1:
            slot = self._slots[self._head]
            if isinstance(slot, _Call):
                if not slot.whole:
                    return
                self._pass_on(slot, out)
                self._end(slot, out)
            self._head += 1
            following = self._slots[self._head]
            if isinstance(following, _Call):
                self._pass_on(following, out)
            else:
                out.extend(following.chunks)
                following.chunks.clear()

    def _pass_on(self, call: _Call, out: list[Chunk]) -> None:
        if not call.name:
            return
        if not call.started:
            call.started = True
            target = self._targets.get(call.name)
            kind = target.kind if target else CallKind.FUNCTION
            if kind is CallKind.CUSTOM:
                call.input = CustomInput()
            out.append(CallStart(target.name if target else call.name, kind, call.id))
        for text in call.pending:
            if call.input is not None:
                text = call.input.feed(text)
            if text:
                out.append(CallDelta(text))
        call.pending.clear()

    def _end(self, call: _Call, out: list[Chunk]) -> None:
        if call.input is not None:
            rest = call.input.finish()
            if rest:
                out.append(CallDelta(rest))
        elif not "".join(call.arguments).strip():
            # Clients parse arguments; a tool that takes none is called with an empty object.
            out.append(CallDelta(_NO_ARGUMENTS, tokens=0))
        out.append(CallEnd())


def _text_of(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()
