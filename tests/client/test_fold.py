"""What is known about a response from the events that arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turnwire.client import function_call_output
from turnwire.client._fold import call_id_of, is_client_call
from turnwire.client.events import EVENT_TYPES, Event
from turnwire.client.testing import custom_tool_call, function_call, message
from turnwire.v1.item_pb2 import Item, LocalShellCallOutput, ToolSearchCall
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, ResponseStatus, Verbosity
from turnwire.v1.server_event_pb2 import OutputItemTruncated, OutputTextDelta, ResponseDone, ServerEvent

if TYPE_CHECKING:
    from tests.client.conftest import Wire


def test_text_is_known_while_it_streams_and_after(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    wire.added(1, 0, Item())
    wire.delta(1, "Hel")
    wire.delta(1, "lo")
    assert response.output_text == "Hello"
    wire.item(1, 0, message("Hello"))
    assert response.output_text == "Hello"


def test_long_text_does_not_pile_up_as_events(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    for _ in range(3000):
        wire.delta(1, "x")
    assert response.output_text == "x" * 3000


def test_a_call_is_known_before_what_stands_in_front_of_it_was_read(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.item(1, 0, message("text"))
    wire.item(1, 1, function_call("f", {}, call_id="c1"))
    assert len(response.events) == 3
    assert [call_id_of(call) for call in response.open_calls()] == ["c1"]


def test_appended_outputs_stand_between_their_calls_and_what_followed(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    wire.item(1, 1, function_call("f", {}, call_id="c2"))
    wire.pause(1, "c1", "c2")
    for index, call_id in enumerate(["c2", "c1"]):
        append = wire.protocol.append(response, [function_call_output(call_id, "x")])
        wire.appended(1, index, [], append.id)
    wire.added(1, 4, Item())
    wire.item(1, 4, message("done"))
    wire.complete(1)
    assert [call_id_of(item) for item in response.snapshot().output] == ["c1", "c2", "c2", "c1", ""]


def test_early_appends_keep_the_order_too(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    append = wire.protocol.append(response, [function_call_output("c1", "x")])
    wire.appended(1, 0, ["c2"], append.id)
    wire.item(1, 1, function_call("f", {}, call_id="c2"))
    append = wire.protocol.append(response, [function_call_output("c2", "y")])
    wire.appended(1, 1, [], append.id)
    wire.item(1, 4, message("done"))
    kinds = [item.WhichOneof("kind") for item in response.output()]
    assert kinds == ["function_call"] * 2 + ["function_call_output"] * 2 + ["message"]


def test_at_the_verbosity_of_done_only_the_output_comes_with_it(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.pause(1, "c1", output=[message("first"), function_call("f", {}, call_id="c1")])
    assert [call_id_of(call) for call in response.open_calls()] == ["c1"]
    append = wire.protocol.append(response, [function_call_output("c1", "x")])
    wire.appended(1, 0, [], append.id)
    wire.complete(1, output=[message(" second")])
    kinds = [item.WhichOneof("kind") for item in response.output()]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert response.output_text == "first second"


def test_a_response_stands_still_only_until_its_outputs_were_sent(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    assert not response.standing
    wire.pause(1, "c1")
    assert response.standing
    append = wire.protocol.append(response, [function_call_output("c1", "x")])
    assert not response.standing
    wire.rejected(append.id, "invalid_request_error")
    assert response.standing


def test_a_confirmation_may_overtake_the_pause_it_answers(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    append = wire.protocol.append(response, [function_call_output("c1", "x")])
    wire.appended(1, 0, [], append.id)
    wire.pause(1, "c1")
    assert not response.paused
    assert not response.standing


def test_void_calls_are_not_open(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    wire.item(1, 0, function_call("f", {}, call_id="c1"))
    wire.done(1, DoneReason.DONE_REASON_CANCELLED, void=["c1"])
    assert not response.open_calls()
    assert response.snapshot().status == ResponseStatus.RESPONSE_STATUS_CANCELLED


def test_the_snapshot_echoes_small_settings_and_leaves_out_large_ones(wire: Wire) -> None:
    body = ResponseCreate(model="asked", instructions="long", previous_response_id="resp_0", temperature=0.5)
    body.metadata["k"] = "v"
    body.reasoning.effort = "low"
    request = wire.protocol.create(body)
    wire.created(1, request.id)
    response = wire.protocol.responses[1]
    snapshot = response.snapshot()
    assert snapshot.model == "m"
    assert (snapshot.previous_response_id, snapshot.temperature) == ("resp_0", 0.5)
    assert snapshot.metadata["k"] == "v"
    assert snapshot.reasoning.effort == "low"
    assert not snapshot.HasField("instructions")


def test_the_snapshot_says_how_it_ended(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    done = ResponseDone(reason=DoneReason.DONE_REASON_INCOMPLETE)
    done.incomplete_details.reason = "max_output_tokens"
    done.usage.total_tokens = 7
    wire.send(wire.number(1, ServerEvent(done=done)))
    snapshot = response.snapshot()
    assert snapshot.status == ResponseStatus.RESPONSE_STATUS_INCOMPLETE
    assert snapshot.incomplete_details.reason == "max_output_tokens"
    assert snapshot.usage.total_tokens == 7


def test_the_snapshot_says_when_it_was_complete(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    done = ResponseDone(reason=DoneReason.DONE_REASON_COMPLETED, completed_at=1_800_000_000)
    wire.send(wire.number(1, ServerEvent(done=done)))
    assert response.snapshot().completed_at == 1_800_000_000


def test_a_full_response_in_done_is_taken_as_it_is(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    full = Response(id="resp_1", instructions="echoed")
    done = ResponseDone(reason=DoneReason.DONE_REASON_COMPLETED, response=full)
    wire.send(wire.number(1, ServerEvent(done=done)))
    assert response.snapshot() == full


def test_a_snapshot_is_the_callers_own(wire: Wire) -> None:
    wire.start()
    response = wire.protocol.responses[1]
    wire.item(1, 0, message("x"))
    response.snapshot().output[0].message.content.parts.parts[0].output_text.text = "changed"
    assert response.output_text == "x"


def test_truncated_calls_are_remembered_until_fetched(wire: Wire) -> None:
    wire.start(hold=True)
    response = wire.protocol.responses[1]
    truncated = OutputItemTruncated(output_index=0, item_id="fc_1", type="function_call", call_id="c1")
    wire.send(wire.number(1, ServerEvent(output_item_truncated=truncated)))
    [waiting] = response.truncated_calls
    response.fetched(waiting, function_call("f", {}, call_id="c1"))
    assert not response.truncated_calls
    assert [call_id_of(call) for call in response.open_calls()] == ["c1"]
    assert len(response.output()) == 1


@pytest.mark.parametrize(
    ("item", "call_id"),
    [
        (function_call("f", {}, call_id="c1"), "c1"),
        (custom_tool_call("f", "x", call_id="c2"), "c2"),
        (Item(local_shell_call_output=LocalShellCallOutput(id="lsh_1")), "lsh_1"),
        (message("x"), ""),
        (Item(), ""),
    ],
)
def test_calls_and_outputs_are_paired_by_call_id(item: Item, call_id: str) -> None:
    assert call_id_of(item) == call_id


def test_a_tool_search_is_the_clients_only_where_it_says_so() -> None:
    assert not is_client_call(Item(tool_search_call=ToolSearchCall(call_id="c")))
    assert is_client_call(Item(tool_search_call=ToolSearchCall(call_id="c", execution="client")))


def test_events_have_their_official_names_and_fields() -> None:
    proto = ServerEvent(sequence_number=4, output_text_delta=OutputTextDelta(delta="x", output_index=1))
    event = Event(proto, "output_text_delta")
    assert event.type == "response.output_text.delta"
    assert (event.delta, event.output_index, event.sequence_number) == ("x", 1, 4)
    assert event.payload == proto.output_text_delta
    assert repr(event) == "<Event response.output_text.delta 4>"
    with pytest.raises(AttributeError, match=r"response\.output_text\.delta has no field 'item'"):
        _ = event.item


def test_every_event_has_a_name() -> None:
    assert EVENT_TYPES["done"] == "response.done"
    assert EVENT_TYPES["output_item_truncated"] == "response.output_item.truncated"
    assert set(EVENT_TYPES) == {field.name for field in ServerEvent.DESCRIPTOR.oneofs_by_name["event"].fields}
    assert Verbosity.VERBOSITY_DONE
