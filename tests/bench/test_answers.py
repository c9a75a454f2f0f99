"""Responses that come whole over HTTP: what a driver takes from them, and what it sends again."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from turnwire.bench.drivers.official import encode, take_answer
from turnwire.bench.drivers.port import TEXT_LOGPROBS, Called, Failed, Turn

LIKELY = {"token": "hi", "logprob": -0.5, "bytes": [104, 105], "top_logprobs": []}
PART = {"type": "output_text", "text": "hi hi", "annotations": [], "logprobs": [LIKELY, LIKELY]}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [PART]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}


def answer(**changes: Any) -> bytes:
    return json.dumps({"id": "resp_1", "status": "completed", "output": [SAID, CALL]} | changes).encode()


def test_text_calls_and_log_probabilities_are_taken() -> None:
    turn = Turn(counts={TEXT_LOGPROBS: 0})
    name, _ = take_answer(turn, answer(), 2.5)
    assert (name, turn.done, turn.text) == ("resp_1", 2.5, ["hi hi"])
    assert turn.calls == [Called("call_1", "look", "{}")]
    assert turn.counts == {TEXT_LOGPROBS: 2}


def test_log_probabilities_are_not_sent_again() -> None:
    _, items = take_answer(Turn(counts={TEXT_LOGPROBS: 0}), answer(), 0.0)
    again = msgspec.json.decode(encode({"input": items}))["input"]
    assert again == [SAID | {"content": [PART | {"logprobs": []}]}, CALL]


def test_where_none_were_asked_for_items_are_sent_again_as_they_came() -> None:
    _, items = take_answer(Turn(), answer(), 0.0)
    assert msgspec.json.decode(encode({"input": items}))["input"] == [SAID, CALL]


def test_a_response_that_did_not_complete_fails_with_its_words() -> None:
    broken = answer(status="failed", output=[], error={"code": "server_error", "message": "no turn"})
    with pytest.raises(Failed, match=r"failed: .*no turn"):
        take_answer(Turn(), broken, 0.0)
