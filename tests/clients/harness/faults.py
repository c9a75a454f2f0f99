"""Faults that a proxy can cause at one turn of a client: the fault matrix of what servers do to clients.

Above it: the tests of Codex. Below it: the official error bodies, as the server itself makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a turn instead of being served; the first field that is set says which."""

    change: Callable[[Body], None] | None = None
    """Changes the create on its way to the server, which then really answers with an error."""
    frame: bytes | None = None
    """WebSocket only: answers with this frame; the server does not hear of the turn."""
    status: int | None = None
    """HTTP only: answers with this status, `body` and `headers`."""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    close: int | None = None
    """WebSocket only: closes with this code, after `frame` if there is one."""
    cut_after: int | None = None
    """Lets so many events of the turn through, and drops the connection without a word."""


def says(text: str) -> Fault:
    """Makes the server play the turn of the scenario whose `when` matches a text."""

    def change(body: Body) -> None:
        content = [{"type": "input_text", "text": text}]
        body["input"] = [*body["input"], {"type": "message", "role": "user", "content": content}]

    return Fault(change=change)


def asks_for(**fields: Any) -> Fault:
    """Makes the server refuse a turn: gives the create these fields."""

    def change(body: Body) -> None:
        body.update(fields)

    return Fault(change=change)
