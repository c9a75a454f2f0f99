from __future__ import annotations

import pytest

from turnwire.server.session.requests import RequestMemory, check_request_id
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import Input, ResponseCreate


def create(text: str, request_id: str = "r", lane: str = "", trace: str = "") -> ConnectRequest:
    body = ResponseCreate(input=Input(text=text), metadata={"a": "1", "b": "2"})
    return ConnectRequest(request_id=request_id, lane=lane, create=body, context=RequestContext(traceparent=trace))


def test_a_repeat_is_answered_by_the_newest_outcome() -> None:
    memory = RequestMemory(10)
    answers: list[str] = []
    assert not memory.seen(create("x"))
    assert memory.seen(create("x"))
    memory.settle("r", lambda: answers.append("created"), final=False)
    assert memory.seen(create("x", trace="another attempt"))
    memory.settle("r", lambda: answers.append("done"))
    assert memory.seen(create("x"))
    memory.settle("r", lambda: answers.append("too late"))
    assert memory.seen(create("x"))
    assert answers == ["created", "done", "done"]


@pytest.mark.parametrize("other", [create("y"), create("x", lane="b")])
def test_an_id_belongs_to_one_body(other: ConnectRequest) -> None:
    memory = RequestMemory(10)
    memory.seen(create("x"))
    with pytest.raises(RequestError, match="request_id_reused"):
        memory.seen(other)
    memory.settle("r", lambda: None)
    with pytest.raises(RequestError, match="request_id_reused"):
        memory.seen(other)


def test_requests_without_an_id_are_not_remembered() -> None:
    memory = RequestMemory(10)
    assert not memory.seen(create("x", request_id=""))
    assert not memory.seen(create("x", request_id=""))


def test_only_so_many_settled_requests_are_remembered_but_all_that_are_at_work() -> None:
    memory = RequestMemory(3)
    for number in range(10):
        memory.seen(create("x", request_id=f"r{number}"))
    for number in range(9):
        memory.settle(f"r{number}", lambda: None)
    assert not memory.seen(create("other", request_id="r0"))
    assert memory.seen(create("x", request_id="r8"))
    assert memory.seen(create("x", request_id="r9"))


@pytest.mark.parametrize("request_id", ["", "a", "~!{}", "x" * 128])
def test_a_request_id_is_printable_and_short(request_id: str) -> None:
    check_request_id(request_id)


@pytest.mark.parametrize("request_id", [" ", "a b", "é", "x" * 129, "a\n", "\x00"])
def test_other_request_ids_are_refused(request_id: str) -> None:
    with pytest.raises(RequestError):
        check_request_id(request_id)
