"""The official mode without a socket: what is remembered, and what is said last."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from turnwire.server.doors.websocket.dialect import Answered, closing
from turnwire.server.doors.websocket.official import OfficialSession
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import ERRORS, make_error
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent


def take(session: OfficialSession, **event: Any) -> Any:
    return session.take(session.read(json.dumps({"type": "response.create", **event}).encode()))


def said(session: OfficialSession, *events: dict[str, Any]) -> list[dict[str, Any]]:
    batch = ConnectResponse(events=[ServerEvent(**event) for event in events])
    return [json.loads(message) for message in session.messages(batch)]


def created(request_id: str, handle: int, lane: str = "") -> dict[str, Any]:
    return {
        "response": handle,
        "created": {"response": {"id": f"resp_{handle}"}, "request_id": request_id, "lane": lane},
    }


def done(handle: int, sequence_number: int = 1) -> dict[str, Any]:
    return {"response": handle, "sequence_number": sequence_number, "done": {"reason": "DONE_REASON_COMPLETED"}}


def test_every_request_has_an_id_of_its_own() -> None:
    session = OfficialSession()
    ids = [take(session, input=str(index)).request_id for index in range(3)]
    assert len(set(ids)) == 3
    assert take(session, type="response.cancel", response_id="resp_1").request_id not in ids


def test_only_held_responses_repeat_their_whole_request() -> None:
    session = OfficialSession()
    assert not take(session, input="hi").create.echo
    assert take(session, input="hi", hold=True).create.echo


def test_nothing_is_kept_of_what_is_over() -> None:
    session = OfficialSession()
    ended, refused, invalid = (take(session, input="x", stream_id=lane).request_id for lane in ("a", "b", "not good"))
    said(session, created(ended, 1, "a"), done(1))
    said(session, {"rejected": {"request_id": refused, "lane": "b", "error": {"code": "invalid_value"}}})
    said(session, {"rejected": {"request_id": invalid, "error": {"code": "invalid_stream_id"}}})
    assert not session.farewell(make_error("server_error", "?"))
    with pytest.raises(Answered):
        take(session, type="response.cancel", stream_id="a")


def test_a_large_input_is_not_kept_beyond_the_announcement() -> None:
    session = OfficialSession()
    request = take(session, input="x" * 100_000)
    create = request.create
    kept = sys.getrefcount(create)
    said(session, created(request.request_id, 1))
    assert sys.getrefcount(create) == kept - 1


def test_the_oldest_create_of_a_lane_is_the_one_that_runs() -> None:
    session = OfficialSession()
    first = take(session, input="1").request_id
    take(session, input="2")
    assert take(session, type="response.cancel").cancel.target_request_id == first
    said(session, created(first, 1), done(1))
    assert take(session, type="response.cancel").cancel.target_request_id == "2"


def test_what_concerns_the_session_alone_is_not_told() -> None:
    session = OfficialSession()
    events: list[dict[str, Any]] = [
        {"opened": {"session_id": "sess_1"}},
        {"queued": {"request_id": "1"}},
        {"progress": {}},
        {"pong": {}},
        {"go_away": {"reason": "shutdown"}},
        {"done": {"reason": "DONE_REASON_COMPLETED", "response_id": "resp_1"}},
        {"response": 9, "output_text_delta": {"delta": "of nobody"}},
    ]
    assert said(session, *events) == []
    assert session.going == "shutdown"


def test_each_create_that_is_not_over_gets_the_error_that_ends_the_session() -> None:
    session = OfficialSession()
    first = take(session, input="1", stream_id="a").request_id
    take(session, input="2", stream_id="a")
    take(session, input="3", stream_id="not good")
    said(session, created(first, 1, "a"), {"response": 1, "sequence_number": 1, "in_progress": {}})
    words = [json.loads(each) for each in session.farewell(make_error("session_lost", "Lost."))]
    assert [(each.get("stream_id"), each["status"]) for each in words] == [
        ("a", 503),
        ("a", 503),
        (None, 503),
    ]
    assert [each.get("sequence_number") for each in words] == [2, None, None]
    assert not session.farewell(make_error("session_lost", "Lost."))


def test_a_limit_that_will_pass_says_when_as_the_headers_of_http_do() -> None:
    session = OfficialSession()
    request_id = take(session, input="hi", stream_id="a").request_id
    error = make_error("rate_limit_exceeded", "Slow down.", retry_after=1.5)
    (word,) = said(session, {"rejected": {"request_id": request_id, "lane": "a", "error": error}})
    assert (word["status"], word["stream_id"]) == (429, "a")
    assert word["headers"] == {"retry-after": "2", "retry-after-ms": "1500"}


def test_the_age_limit_is_told_as_configured() -> None:
    session = OfficialSession()
    said(session, {"opened": {"limits": {"max_age": {"seconds": 600}}}}, {"go_away": {"reason": "max_age"}})
    (word,) = (json.loads(each) for each in session.farewell(None))
    assert word["error"]["code"] == "websocket_connection_limit_reached"
    assert "(10 minutes)" in word["error"]["message"]
    assert "stream_id" not in word


def test_an_answer_to_a_steer_finds_its_input_in_order() -> None:
    session = OfficialSession()
    for text in ("one", "two"):
        take(session, type="response.steer", previous_response_id="resp_1", input=text, stream_id="a")
    failed = {
        "steer_failed": {"steer": {"previous_response_id": "resp_1"}, "error": {"code": "steering_not_supported"}}
    }
    for text in ("one", "two"):
        (word,) = said(session, failed)
        assert (word["steer"]["input"], word["stream_id"]) == (text, "a")


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_error_can_close_a_socket(code: str) -> None:
    said = closing(Error(code=code), "")
    assert said.code in {1007, 1008, 1011, 1012}
    assert len(said.reason.encode()) <= 123


def test_reasons_of_orderly_ends_have_codes_that_clients_answer_by_reconnecting() -> None:
    assert [closing(None, reason).code for reason in ("", "idle", "max_age", "shutdown", "rebalance")] == [
        1000,
        1001,
        1001,
        1012,
        1012,
    ]
