"""Calls that have to be made, in the events of llama.cpp."""

from __future__ import annotations

import pytest

from turnwire.server.engine.chat.stream import ChatStream
from turnwire.server.engine.local.answers import ChatAnswer
from turnwire.server.session.chunks import CallDelta, CallStart, Finish, FinishReason

from .scene import text_event, usage_event


def test_events_of_a_forced_answer_become_those_of_a_call() -> None:
    answer = ChatAnswer(ChatStream({}, forced=True))
    assert answer.feed([text_event(None)]) == []
    [start] = answer.feed([text_event('{"name": "look", ')])
    assert isinstance(start, CallStart)
    assert start.name == "look"
    [arguments] = answer.feed([text_event('"arguments": {}}')])
    assert isinstance(arguments, CallDelta)
    assert arguments.text == "{}"
    answer.feed([text_event(None, "stop")])
    answer.end()
    assert isinstance(answer.outcome, Finish)
    assert answer.outcome.reason is FinishReason.STOP


@pytest.mark.parametrize("event", [usage_event(), b'{"error": {"message": "no"}}', b"garbage", b"{}"])
def test_other_events_are_read_as_ever(event: bytes) -> None:
    forced, free = (ChatAnswer(ChatStream({}, forced=held)) for held in (True, False))
    assert forced.feed([event]) == free.feed([event])
    assert forced.end() == free.end()
    assert forced.outcome == free.outcome
