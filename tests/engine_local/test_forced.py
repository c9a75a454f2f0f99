"""Calls that have to be made, in the events of llama.cpp."""

from __future__ import annotations

import json

import pytest

from turnwire.server.engine.local.forced import ForcedCalls

from .scene import text_event, usage_event


def test_events_of_a_forced_answer_become_events_of_a_call() -> None:
    forced = ForcedCalls()
    events = [
        text_event(None),
        text_event('{"name": "look", '),
        text_event('"arguments": {}}'),
        text_event(None, "stop"),
    ]
    rewritten = [json.loads(forced.rewrite(event)) for event in events]
    deltas = [event["choices"][0]["delta"] for event in rewritten]
    assert deltas[0] == {"content": None}
    assert deltas[1]["tool_calls"] == [{"index": 0, "function": {"arguments": "", "name": "look"}}]
    assert deltas[2]["tool_calls"] == [{"index": 0, "function": {"arguments": "{}"}}]
    assert rewritten[3]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("event", [usage_event(), b'{"error": {"message": "no"}}', b"garbage", b"{}"])
def test_other_events_stay_as_they_are(event: bytes) -> None:
    assert ForcedCalls().rewrite(event) == event
