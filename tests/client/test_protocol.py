"""The client's half of the protocol, without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turnwire.client import function_call_output
from turnwire.client.exceptions import ProtocolError, RequestRejectedError
from turnwire.client.testing import function_call, message
from turnwire.v1.errors import Remedy
from turnwire.v1.response_pb2 import DoneReason, Input, Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import (
    ResponseCreated,
    ResponseDone,
    ServerEvent,
    Steer,
    SteerAccepted,
    SteerFailed,
)
from turnwire.v1.session_pb2 import Pong, RequestQueued, SessionGoAway

if TYPE_CHECKING:
    from tests.client.conftest import Wire


def test_the_opening_goes_first_and_is_settled_by_opened(unopened_wire: Wire) -> None:
    unopened_wire.opened()
    assert unopened_wire.protocol.opened is not None
    assert not list(unopened_wire.protocol.requests)


def test_a_create_is_settled_by_the_response_it_became(wire: Wire) -> None:
    request = wire.protocol.create(ResponseCreate(model="m"), lane="a")
    [sent] = wire.sent()
    assert (sent.request_id, sent.lane, sent.create.model) == (request.id, "a", "m")
    wire.created(1, request.id, "a")
    assert request.settled
    assert request.response is not None
    assert (request.response.id, request.response.lane) == ("resp_1", "a")


def test_the_default_lane_is_left_unset(wire: Wire) -> None:
    wire.protocol.create(ResponseCreate())
    [sent] = wire.sent()
    assert not sent.HasField("lane")


def test_a_rejected_create_carries_what_the_table_says(wire: Wire) -> None:
    request = wire.protocol.create(ResponseCreate())
    wire.rejected(request.id, "previous_response_not_found")
    assert request.settled
    assert request.rejection is not None
    assert request.rejection.code == "previous_response_not_found"
    assert request.rejection.remedy is Remedy.RESEND
    assert request.rejection.request_id == request.id


def test_a_rejection_of_nothing_known_is_ignored(wire: Wire) -> None:
    wire.rejected("", "invalid_value")
    wire.rejected("req_999", "invalid_value")


def test_a_request_id_in_flight_cannot_be_used_again(wire: Wire) -> None:
    wire.protocol.create(ResponseCreate(), request_id="mine")
    with pytest.raises(ValueError, match="'mine' has not been answered"):
        wire.protocol.create(ResponseCreate(), request_id="mine")


def test_queued_tells_the_position(wire: Wire) -> None:
    request = wire.protocol.create(ResponseCreate(), lane="a")
    wire.send(ServerEvent(queued=RequestQueued(request_id=request.id, lane="a", position=2)))
    assert request.queue_position == 2
    assert not request.settled


def test_a_gap_in_event_ids_is_a_protocol_error(wire: Wire) -> None:
    with pytest.raises(ProtocolError, match="event 2 should follow, but 3 came"):
        wire.protocol.receive(ConnectResponse(first_event_id=3, events=[ServerEvent(pong=Pong())]))


def test_a_repeated_sequence_number_is_a_protocol_error(wire: Wire) -> None:
    wire.start()
    wire.delta(1, "a")
    wire.sequence[1] -= 1
    with pytest.raises(ProtocolError, match="resp_1: event 1"):
        wire.delta(1, "b")


def test_holes_in_sequence_numbers_are_lower_verbosity(wire: Wire) -> None:
    wire.start()
    wire.sequence[1] += 5
    wire.delta(1, "a")
    assert len(wire.protocol.responses[1].events) == 2


def test_an_event_for_a_response_never_announced_is_a_protocol_error(wire: Wire) -> None:
    with pytest.raises(ProtocolError, match="response 7, which was never announced"):
        wire.delta(7, "a")


def test_events_after_the_end_are_not_looked_at(wire: Wire) -> None:
    wire.start()
    wire.complete(1)
    wire.complete(1)
    assert not wire.protocol.responses


def test_unknown_events_are_counted_and_ignored(wire: Wire) -> None:
    wire.start()
    wire.send(ServerEvent(response=1, sequence_number=1), ServerEvent())
    wire.sequence[1] = 2
    wire.delta(1, "a")
    assert wire.protocol.last_event_id == wire.event_id


def test_an_empty_batch_is_harmless(wire: Wire) -> None:
    wire.protocol.receive(ConnectResponse())


def test_appends_are_numbered_and_confirmed(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    wire.item(1, 1, function_call("f", {}, call_id="c2"))
    first = wire.protocol.append(response, [function_call_output("c1", "x")])
    second = wire.protocol.append(response, [function_call_output("c2", "y")])
    sent = [(one.append.response_id, one.append.append_index) for one in wire.sent()]
    assert sent == [("resp_1", 0), ("resp_1", 1)]
    wire.appended(1, 0, ["c2"], first.id)
    assert (first.settled, second.settled) == (True, False)
    wire.appended(1, 1, [], second.id)
    assert second.settled
    assert not response.open_calls()


def test_a_refused_append_gives_its_index_back(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    refused = wire.protocol.append(response, [function_call_output("c9", "x")])
    wire.rejected(refused.id, "invalid_request_error", "resp_1")
    assert refused.rejection is not None
    assert refused.rejection.response_id == "resp_1"
    assert wire.protocol.append(response, [function_call_output("c1", "x")]).append_index == 0


def test_appends_on_their_way_behind_a_refused_one_go_again_under_the_right_index(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wrong = wire.protocol.append(response, [function_call_output("c9", "x")])
    right = wire.protocol.append(response, [function_call_output("c1", "x")])
    wire.sent()
    old_id = right.id
    wire.rejected(wrong.id, "invalid_request_error")
    fresh = wire.protocol.append(response, [function_call_output("c2", "x")])
    wire.rejected(old_id, "append_index_gap")
    assert not right.settled
    assert right.id != old_id
    assert [(one.request_id, one.append.append_index) for one in wire.sent()] == [(fresh.id, 0), (right.id, 1)]
    wire.appended(1, 0, ["c1"], fresh.id)
    wire.appended(1, 1, [], right.id)
    assert right.rejection is None
    assert right.settled


def test_a_gap_that_is_nobodys_fault_is_reported(wire: Wire) -> None:
    wire.start(hold=True)
    append = wire.protocol.append(wire.protocol.responses[1], [function_call_output("c1", "x")])
    wire.rejected(append.id, "append_index_gap")
    assert append.rejection is not None


def test_cancel_is_settled_by_the_end(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    request = wire.protocol.cancel(response)
    [sent] = wire.sent()
    assert sent.cancel.response_id == "resp_1"
    assert not request.settled
    wire.done(1, DoneReason.DONE_REASON_CANCELLED, void=["c1"])
    assert request.settled


def test_cancelling_what_has_ended_sends_nothing(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    wire.complete(1)
    assert wire.protocol.cancel(response).settled
    assert not wire.sent()


def test_a_cancel_that_came_late_is_settled_by_the_repeated_end(wire: Wire) -> None:
    wire.start()
    request = wire.protocol.cancel(wire.protocol.responses[1])
    wire.complete(1)
    assert request.settled
    done = ResponseDone(reason=DoneReason.DONE_REASON_COMPLETED, response_id="resp_1", request_id=request.id)
    wire.send(ServerEvent(done=done))


def test_an_abandoned_create_is_withdrawn_and_its_response_cancelled(wire: Wire) -> None:
    request = wire.protocol.create(ResponseCreate())
    wire.sent()
    wire.protocol.abandon(request)
    [withdrawn] = wire.sent()
    assert withdrawn.cancel.target_request_id == request.id
    wire.created(1, request.id)
    [cancelled] = wire.sent()
    assert cancelled.cancel.response_id == "resp_1"
    wire.delta(1, "nobody reads this")
    assert not wire.protocol.responses[1].events


def test_an_abandoned_response_returns_its_credit(unopened_wire: Wire) -> None:
    wire = unopened_wire
    wire.opened(response_credit=64)
    wire.start()
    wire.protocol.abandon_response(wire.protocol.responses[1])
    wire.sent()
    wire.delta(1, "x" * 100)
    [credit] = wire.sent()
    assert credit.credit.bytes > 100


def test_a_steer_is_settled_by_its_answer(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    accepted = wire.protocol.steer(response, Input(text="be brief"))
    steer = Steer(previous_response_id="resp_1")
    wire.send(ServerEvent(response=1, steer_accepted=SteerAccepted(steer=steer)))
    assert accepted.settled
    assert accepted.rejection is None
    assert [item.WhichOneof("kind") for item in response.output()] == ["message"]
    refused = wire.protocol.steer(response, Input(text="be brief"))
    failed = SteerFailed(steer=steer)
    failed.error.code = "steering_not_supported"
    wire.send(ServerEvent(steer_failed=failed))
    assert refused.rejection is not None
    assert refused.rejection.code == "steering_not_supported"


def test_a_repeated_create_finds_the_response_at_work(wire: Wire) -> None:
    wire.start()
    request = wire.protocol.create(ResponseCreate(), request_id="again")
    created = ResponseCreated(response=Response(id="resp_1"), request_id="again", duplicate=True)
    wire.send(ServerEvent(created=created))
    assert request.response is wire.protocol.responses[1]


def test_a_repeated_create_of_an_ended_response_ends_at_once(wire: Wire) -> None:
    request = wire.protocol.create(ResponseCreate(), request_id="again")
    created = ResponseCreated(response=Response(id="resp_0"), request_id="again", duplicate=True)
    done = ResponseDone(reason=DoneReason.DONE_REASON_COMPLETED, response_id="resp_0")
    wire.send(ServerEvent(created=created), ServerEvent(done=done))
    assert request.response is not None
    assert request.response.duplicate
    assert request.response.ended


def test_after_go_away_creates_are_refused_and_appends_are_not(wire: Wire) -> None:
    wire.start(hold=True)
    wire.send(ServerEvent(go_away=SessionGoAway(reason="shutdown")))
    with pytest.raises(RequestRejectedError, match="shutdown") as caught:
        wire.protocol.create(ResponseCreate())
    assert caught.value.remedy is Remedy.RECONNECT
    wire.protocol.append(wire.protocol.responses[1], [function_call_output("c1", "x")])
    assert len(wire.sent()) == 1


def test_pongs_find_their_pings(wire: Wire) -> None:
    first, second = wire.protocol.ping(), wire.protocol.ping()
    nonces = [one.ping.nonce for one in wire.sent()]
    wire.send(ServerEvent(pong=Pong(nonce=0)), ServerEvent(pong=Pong(nonce=nonces[1])))
    assert (first.settled, second.settled) == (False, True)


def test_listeners_are_called_once_per_batch(wire: Wire) -> None:
    wire.start()
    calls: list[int] = []
    wire.protocol.responses[1].listener = lambda: calls.append(1)
    deltas = [ServerEvent(response=1, sequence_number=n) for n in range(10, 20)]
    for delta in deltas:
        delta.output_text_delta.delta = "x"
    wire.send(*deltas)
    assert len(calls) == 1


def test_the_session_ack_comes_at_a_quarter_of_the_credit(unopened_wire: Wire) -> None:
    wire = unopened_wire
    wire.opened(session_credit=400)
    wire.start()
    assert not wire.sent()
    wire.delta(1, "x" * 100)
    [ack] = wire.sent()
    assert ack.ack.last_event_id == wire.event_id


def test_flush_returns_what_is_too_little(unopened_wire: Wire) -> None:
    wire = unopened_wire
    wire.opened(session_credit=1 << 20, response_credit=1 << 20)
    wire.start()
    wire.delta(1, "abc")
    response = wire.protocol.responses[1]
    taken = [proto for proto, kind in iter(response.take, None) if kind == "output_text_delta"]
    assert not wire.sent()
    assert wire.protocol.flush()
    assert not wire.sent()
    assert not wire.protocol.flush()
    ack, credit = wire.sent()
    assert ack.ack.last_event_id == wire.event_id
    assert (credit.credit.response, credit.credit.bytes) == (1, taken[0].ByteSize())
    assert not wire.protocol.flush()
    assert not wire.sent()


def test_flush_leaves_what_grows_and_returns_what_stands_still(unopened_wire: Wire) -> None:
    wire = unopened_wire
    wire.opened(session_credit=1 << 20, response_credit=1 << 20)
    for handle in (1, 2):
        wire.start(handle)
        wire.delta(handle, "abc")
    for response in wire.protocol.responses.values():
        while response.take() is not None:
            pass
    assert wire.protocol.flush()
    wire.delta(2, "d")
    # Something comes for the session and for one response: the other one's server may wait for its credit.
    assert wire.protocol.flush()
    assert [(sent.WhichOneof("event"), sent.credit.response) for sent in wire.sent()] == [("credit", 1)]
    assert not wire.protocol.flush()
    assert [sent.WhichOneof("event") for sent in wire.sent()] == ["ack", "credit"]


def test_credit_is_returned_only_for_what_was_taken(unopened_wire: Wire) -> None:
    wire = unopened_wire
    wire.opened(response_credit=400)
    wire.start()
    wire.delta(1, "x" * 200)
    response = wire.protocol.responses[1]
    wire.protocol.flush()
    assert not wire.sent()
    response.take()
    response.take()
    wire.protocol.credit.taken(response)
    [credit] = wire.sent()
    assert credit.credit.bytes > 200


def test_credit_is_not_returned_after_the_end(unopened_wire: Wire) -> None:
    wire = unopened_wire
    wire.opened(response_credit=4)
    wire.start()
    response = wire.protocol.responses[1]
    wire.delta(1, "x" * 200)
    wire.complete(1)
    while response.take():
        wire.protocol.credit.taken(response)
    assert not wire.sent()


def test_a_lane_goes_on_from_what_runs_there_else_from_its_last_checkpoint(wire: Wire) -> None:
    last = wire.protocol.lanes.last_response_id
    assert last("a") is None
    wire.start(1, "a")
    assert last("a") == "resp_1"
    wire.complete(1)
    assert last("a") == "resp_1"
    wire.start(2, "a")
    assert last("a") == "resp_2"
    wire.done(2, DoneReason.DONE_REASON_FAILED)
    assert last("a") == "resp_1"
    assert last("") is None


def test_a_loss_says_what_is_needed_to_go_on(wire: Wire) -> None:
    wire.start(1, "a")
    wire.complete(1)
    wire.start(2, "b", hold=True)
    wire.item(2, 0, function_call("f", {}, call_id="c1"))
    wire.item(2, 1, function_call("f", {}, call_id="c2"))
    wire.pause(2, "c1", "c2")
    wire.protocol.append(wire.protocol.responses[2], [function_call_output("c1", "x")])
    wire.protocol.create(ResponseCreate(), lane="c", request_id="waiting")
    loss = wire.protocol.loss("UNAVAILABLE", "gone")
    assert loss.last_response_ids == {"a": "resp_1", "b": "resp_2"}
    assert [call.function_call.call_id for call in loss.open_calls["resp_2"]] == ["c1", "c2"]
    [append] = loss.unacknowledged_appends
    assert (append.response_id, append.append_index) == ("resp_2", 0)
    assert append.input[0].function_call_output.call_id == "c1"
    assert [(one.lane, one.response_id) for one in loss.in_flight] == [("b", "resp_2"), ("c", None)]
    assert loss.in_flight[1].request_id == "waiting"


def test_a_confirmed_append_closes_its_calls_for_the_loss(wire: Wire) -> None:
    wire.start(1, hold=True)
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    wire.pause(1, "c1")
    append = wire.protocol.append(wire.protocol.responses[1], [function_call_output("c1", "x")])
    wire.appended(1, 0, [], append.id)
    loss = wire.protocol.loss("UNAVAILABLE", "gone")
    assert not loss.open_calls
    assert not loss.unacknowledged_appends


def test_calls_of_an_ended_response_stay_open_for_its_next_create(wire: Wire) -> None:
    wire.start(1)
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    wire.complete(1, "c1")
    assert "resp_1" in wire.protocol.loss("UNAVAILABLE", "gone").open_calls


def test_close_is_sent_once(wire: Wire) -> None:
    wire.protocol.close(drain=True)
    wire.protocol.close()
    [sent] = wire.sent()
    assert sent.close.drain
    with pytest.raises(RequestRejectedError, match="closed"):
        wire.protocol.create(ResponseCreate())


def test_a_settled_request_lets_its_message_go(wire: Wire) -> None:
    request = wire.protocol.create(ResponseCreate(model="m"))
    assert request.message is not None
    wire.created(1, request.id)
    assert request.message is None
    assert message("x")
