"""The public API's JSON: bodies, and the events that answer them.

Above it: `http` and `websocket`. Below it: msgspec. Events are read into a few fields; what is not needed is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnwire.bench.drivers.port import TEXT_LOGPROBS, Called, Failed, New, Turn, UserMessage
from turnwire.bench.scenario.compiling import MODEL, Rollout


class _Item(msgspec.Struct):
    type: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class _Logprob(msgspec.Struct):
    token: str
    logprob: float


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    logprobs: list[_Logprob] = []


class _Said(_Item):
    content: list[_Part] = []


class _Answer(msgspec.Struct):
    id: str
    status: str
    output: list[msgspec.Raw]
    error: msgspec.Raw = msgspec.Raw(b"null")
    incomplete_details: msgspec.Raw = msgspec.Raw(b"null")


class _Response(msgspec.Struct):
    id: str
    error: msgspec.Raw = msgspec.Raw(b"null")
    incomplete_details: msgspec.Raw = msgspec.Raw(b"null")


class Event(msgspec.Struct):
    """What is needed of an event."""

    type: str
    stream_id: str = ""
    delta: str = ""
    item: msgspec.Raw = msgspec.Raw(b"null")
    response: _Response | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_LOGPROBS: Final = "message.output_text.logprobs"
_PAUSED: Final = "response.done"
_ENDS: Final = frozenset(("response.completed", _PAUSED))
_FAILS: Final = frozenset(("response.failed", "response.incomplete", "error"))
_EVENTS: Final = msgspec.json.Decoder(Event)
_ITEMS: Final = msgspec.json.Decoder(_Item)
_SAID: Final = msgspec.json.Decoder(_Said)
_ANSWERS: Final = msgspec.json.Decoder(_Answer)
_ENCODER: Final = msgspec.json.Encoder()


def decode(data: bytes | str) -> Event:
    """Reads one event."""
    return _EVENTS.decode(data)


def encode(body: dict[str, Any]) -> bytes:
    """Writes a body."""
    return _ENCODER.encode(body)


def settings(rollout: Rollout) -> dict[str, Any]:
    """Returns the settings that clients of the public API send with every create, chained or not: they do not carry
    over there."""
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": msgspec.Raw(tool.parameters.encode()),
        }
        for tool in rollout.tools
    ]
    include = {"include": [_LOGPROBS]} if rollout.output.logprobs else {}
    return {"model": MODEL, "instructions": rollout.instructions, "tools": tools, **include}


def history(rollout: Rollout) -> list[Any]:
    """Returns the items that a conversation begins with."""
    return items([UserMessage(text) for text in rollout.history])


def items(new: Sequence[New]) -> list[Any]:
    """Returns what is new as items."""
    return [
        {"type": "message", "role": "user", "content": each.text}
        if isinstance(each, UserMessage)
        else {"type": "function_call_output", "call_id": each.call_id, "output": each.output}
        for each in new
    ]


def take(turn: Turn, event: Event, now: float) -> bool:
    """Puts an event of a response into its turn; returns whether that ends the turn.

    Raises:
        Failed: The response did not end well, or the request was refused.
    """
    kind = event.type
    if kind.endswith(".delta"):
        turn.arrivals.append(now)
        if kind == "response.output_text.delta":
            turn.text.append(event.delta)
    elif kind == "response.output_item.done":
        item = _ITEMS.decode(event.item)
        if item.type == "function_call":
            turn.calls.append(Called(item.call_id, item.name, item.arguments))
    elif kind in _ENDS:
        turn.done = now
        return True
    elif kind in _FAILS:
        details = event.response
        words = event.error if details is None else b" ".join((details.error, details.incomplete_details))
        raise Failed(f"{kind}: {bytes(words).decode()}")
    return False


def asked(rollout: Rollout) -> dict[str, int]:
    """Returns the counts of what is asked for beside text, none of which is there yet."""
    return {TEXT_LOGPROBS: 0} if rollout.output.logprobs else {}


def take_answer(turn: Turn, data: bytes, now: float) -> tuple[str, list[Any]]:
    """Puts a response that came whole into its turn; returns its id, and its items as they are sent again.

    Raises:
        Failed: The response did not end well.
    """
    answer = _ANSWERS.decode(data)
    turn.done = now
    if answer.status != "completed":
        raise Failed(f"{answer.status}: {b' '.join((answer.error, answer.incomplete_details)).decode()}")
    return answer.id, [_take_item(turn, item) for item in answer.output]


def _take_item(turn: Turn, data: msgspec.Raw) -> Any:
    item = _SAID.decode(data)
    if item.type == "function_call":
        turn.calls.append(Called(item.call_id, item.name, item.arguments))
    if item.type != "message":
        return data
    turn.text += [part.text for part in item.content]
    if TEXT_LOGPROBS not in turn.counts:
        return data
    turn.counts[TEXT_LOGPROBS] += sum(len(part.logprobs) for part in item.content)
    # The model reads the text alone: a trainer keeps what it weighs, and does not send it back each turn.
    again = msgspec.json.decode(data)
    for part in again["content"]:
        part["logprobs"] = []
    return again


def paused(event: Event) -> bool:
    """Whether the turn ended in a pause of a held response."""
    return event.type == _PAUSED
