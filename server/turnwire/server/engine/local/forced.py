"""Calls that have to be made, in the events of llama.cpp: the answer to a schema as a call. Pure.

Above it: `requests` and `passes`. Below it: the chat engine's `forced`, which tells which call and how it is written.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnwire.server.engine.chat.forced import CallReader, call_schema, forced_names, forcing

__all__ = ["CallReader", "ForcedCalls", "call_schema", "forced_names", "forcing"]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode
_encode: Final = msgspec.json.Encoder().encode


class ForcedCalls:
    """Turns the events of an answer that is a call as JSON into events of that call."""

    def __init__(self) -> None:
        self._reader: Final = CallReader()
        self._begun = False

    def rewrite(self, event: bytes) -> bytes:
        """Returns an event as it is to be read: text becomes a call, everything else stays as it is."""
        try:
            choices = _decode(event).choices
        except msgspec.DecodeError:
            return event
        choice = choices[0] if choices else None
        if choice is None or choice.delta is None or not choice.delta.content:
            return event
        arguments = self._reader.feed(choice.delta.content)
        delta: dict[str, Any] = {}
        if self._reader.name is not None and (arguments or not self._begun):
            function = {"arguments": arguments}
            if not self._begun:
                self._begun = True
                function["name"] = self._reader.name
            delta["tool_calls"] = [{"index": 0, "function": function}]
        return _encode({"choices": [{"index": 0, "delta": delta, "finish_reason": choice.finish_reason}]})
