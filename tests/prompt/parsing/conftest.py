"""Folds events into items, and cuts outputs into pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from turnwire.server.prompt.parsing import (
    Event,
    OutputParser,
    ParsedCallDelta,
    ParsedCallEnd,
    ParsedCallStart,
    ParsedText,
    ParsedTextEnd,
)


@dataclass
class Folded:
    """One item as a client would see it."""

    kind: str
    text: str = ""
    name: str = ""
    call_id: str = ""
    phase: str = ""
    ended: bool = False
    ids: list[int] = field(default_factory=list[int])
    tokens: int = 0

    def brief(self) -> tuple[str, ...]:
        """What most tests look at."""
        return (self.kind, self.name, self.text) if self.kind == "call" else (self.kind, self.text)


Fold = Callable[[Sequence[Event]], list[Folded]]
Run = Callable[..., list[Folded]]


def fold_events(events: Sequence[Event]) -> list[Folded]:
    items: list[Folded] = []
    current: Folded | None = None
    for event in events:
        match event:
            case ParsedText():
                assert event.text
                if current is None or current.kind != event.channel:
                    assert current is None or current.kind != "call", "text inside a call"
                    current = Folded(event.channel, phase=event.phase)
                    items.append(current)
                current.text += event.text
                current.ids += event.ids
                current.tokens += event.tokens
            case ParsedTextEnd():
                assert current is not None
                assert current.kind != "call"
                current.ended, current = True, None
            case ParsedCallStart():
                assert current is None, "items overlap"
                assert event.name
                current = Folded("call", name=event.name, call_id=event.call_id, tokens=event.tokens)
                items.append(current)
            case ParsedCallDelta():
                assert current is not None
                assert current.kind == "call"
                current.text += event.text
                current.ids += event.ids
                current.tokens += event.tokens
            case ParsedCallEnd():
                assert current is not None
                assert current.kind == "call"
                current.ended, current = True, None
    return items


@pytest.fixture(scope="session")
def fold() -> Fold:
    return fold_events


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs a parser over pieces, each either ids or text, and folds what it says."""

    def run_parser(parser: OutputParser, pieces: Sequence[Sequence[int] | str], reason: str = "stop") -> list[Folded]:
        events: list[Event] = []
        for piece in pieces:
            events += parser.feed((), piece) if isinstance(piece, str) else parser.feed(piece)
        events += parser.finish(reason)
        return fold_events(events)

    return run_parser
