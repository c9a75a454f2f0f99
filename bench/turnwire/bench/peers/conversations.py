"""The conversations that gateways are asked about, and their bodies in both forms.

Above it: `clients`, `checking` and `measuring`. Below it: JSON. A conversation of a size has messages of user and
assistant by turns, an answer of the upstream's, and one new message; so a chained turn asks for the very same as one
that is sent in full. Texts do not repeat themselves, and new messages are all different.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnwire.bench.fakes.upstream import MODEL, Said

MESSAGE: Final = 4096
"""Bytes of text in one message of a long history."""

_WORDS: Final = [
    "the",
    "patch",
    "reads",
    "one",
    "more",
    "line",
    "of",
    "log",
    "and",
    "then",
    "fails",
    "while",
    "parser",
    "tests",
    "pass",
    "on",
    "every",
    "path",
    "that",
    "was",
    "given",
    "to",
    "worker",
    "threads",
    "in",
    "queue",
    "order",
    "because",
    "lock",
    "state",
    "differs",
    "from",
    "what",
    "cache",
    "said",
    "before",
]
_encode: Final = msgspec.json.Encoder().encode


def history(size: int, seed: int = 0) -> list[Said]:
    """Returns messages with so many bytes of text in all, the user's first and last, about `MESSAGE` bytes each.

    Args:
        size: Bytes; ASCII, so characters too.
        seed: Another one gives other texts, from the first message on.

    Raises:
        ValueError: There is no room for a message.
    """
    if size < 1:
        msg = f"expected at least 1 byte of history, found {size}"
        raise ValueError(msg)
    # An odd number, so that the user has the last word.
    messages = max(1, size // MESSAGE - (size // MESSAGE + 1) % 2)
    choice = random.Random(f"{size} {seed}")
    ends = [size * (n + 1) // messages for n in range(messages)]
    return [
        Said("assistant" if n % 2 else "user", _text(choice, end - begin))
        for n, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]


def _text(choice: random.Random, size: int) -> str:
    text = f"{choice.randrange(10**9)} "
    while len(text) < size:
        text += f"{' '.join(choice.choices(_WORDS, k=12))} {choice.randrange(10**6)}\n"
    return text[:size]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What stands before the new item."""

    before: Sequence[Said]
    """What the client said, and what it says was answered."""
    answer: str
    """The upstream's."""

    def whole(self, new: str) -> list[Said]:
        """Returns all that an upstream has to get, with a new message of the user's."""
        return [*self.before, Said("assistant", self.answer), Said("user", new)]


def items(messages: Sequence[Said]) -> list[dict[str, Any]]:
    """Returns messages as items of the Responses API."""
    return [{"type": "message", "role": each.role, "content": each.text} for each in messages]


def chat_body(messages: Sequence[Said]) -> bytes:
    """Returns a body for chat completions."""
    said = [{"role": each.role, "content": each.text} for each in messages]
    return _encode({"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, "messages": said})


def responses_body(messages: Sequence[Said], *, model: str = MODEL, previous: str = "", store: bool = False) -> bytes:
    """Returns a body for responses, as an event stream."""
    return _encode({**create(messages, model=model, previous=previous, store=store), "stream": True})


def socket_body(messages: Sequence[Said], *, model: str = MODEL, previous: str = "", store: bool = False) -> bytes:
    """Returns a message that creates a response over a WebSocket."""
    return _encode({"type": "response.create", **create(messages, model=model, previous=previous, store=store)})


def create(messages: Sequence[Said], *, model: str, previous: str, store: bool) -> dict[str, Any]:
    """Returns what creating a response takes, whatever it goes over."""
    body: dict[str, Any] = {"model": model, "input": items(messages), "store": store}
    if previous:
        body["previous_response_id"] = previous
    return body
