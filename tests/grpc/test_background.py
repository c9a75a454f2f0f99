"""Responses that run apart from any connection: created, left, followed, retrieved, cancelled, forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from turnwire.client import Client, RequestRejectedError
from turnwire.server.session.limits import SessionLimits
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.response_pb2 import DoneReason, Input, Response, ResponseCreate, ResponseStatus, Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent

if TYPE_CHECKING:
    from tests.grpc.conftest import Created, Door, Doors, Ended, Peer

_WINDOW = 300.0
_KEYS = "alice:k3y-of-alice-0123456789\nbob:k3y-of-bob-0123456789\n"
_ALICE = ("authorization", "Bearer k3y-of-alice-0123456789")
_BOB = ("authorization", "Bearer k3y-of-bob-0123456789")


def _asking(**more: Any) -> ResponseCreate:
    return ResponseCreate(model="stepped", input=Input(text="hello"), background=True, **more)


async def _begin(door: Door, *metadata: tuple[str, str | bytes], **more: Any) -> Created:
    """Creates a background response, which is answered while it runs."""
    request = pb.CreateResponseRequest(create=_asking(**more))
    answer = await door.ask("CreateResponse", request, *metadata)
    assert isinstance(answer, bytes)
    response = pb.CreateResponseResponse.FromString(answer).response
    assert (response.status, response.background) == (ResponseStatus.RESPONSE_STATUS_IN_PROGRESS, True)
    return door.created(response.id)


async def _get(door: Door, response: Created, *metadata: tuple[str, str | bytes]) -> Response:
    answer = await door.ask("GetResponse", pb.GetResponseRequest(response_id=response.id), *metadata)
    assert isinstance(answer, bytes), answer
    return pb.GetResponseResponse.FromString(answer).response


async def _cancel(door: Door, response_id: str, *metadata: tuple[str, str | bytes]) -> Response | Ended:
    answer = await door.ask("CancelResponse", pb.CancelResponseRequest(response_id=response_id), *metadata)
    return pb.CancelResponseResponse.FromString(answer).response if isinstance(answer, bytes) else answer


def _follow(door: Door, response_id: str, after: int | None = None, *, channel: Any = None, **metadata: Any) -> Peer:
    from tests.grpc.conftest import SERVICE, Peer

    request = pb.FollowResponseRequest(response_id=response_id, starting_after=after)
    through: Any = channel or door.channel
    method = through.unary_stream(f"{SERVICE}FollowResponse")
    return Peer(method(request.SerializeToString(), **metadata), pb.StreamResponseResponse)


async def _over(door: Door) -> None:
    """Lets the time pass for which events are kept."""
    await door.emptied()
    door.clock.advance(_WINDOW)


def _text(response: Response) -> str:
    return "".join(item.message.content.parts.parts[0].output_text.text for item in response.output)


async def test_a_background_response_is_answered_at_once_and_retrieved_later(door: Door) -> None:
    response = await _begin(door, instructions="be brief", metadata={"a": "b"})
    running = await _get(door, response)
    assert (running.status, running.instructions) == (ResponseStatus.RESPONSE_STATUS_IN_PROGRESS, "be brief")
    assert not running.output
    assert not running.HasField("usage")
    door.say(response, "hi")
    door.finish(response)
    await door.emptied()
    ended = await _get(door, response)
    assert (ended.status, _text(ended)) == (ResponseStatus.RESPONSE_STATUS_COMPLETED, "hi")
    assert dict(ended.metadata) == {"a": "b"}
    assert ended.background
    await _over(door)
    assert await _get(door, response) == ended


async def test_output_is_retrieved_as_far_as_it_is_finished(door: Door) -> None:
    response = await _begin(door)
    door.say(response, "thinking aloud")
    door.call(response, "call_1")
    running = await _get(door, response)
    assert [item.WhichOneof("kind") for item in running.output] == ["message", "function_call"]
    door.engine.fail(response.id, "server_error")
    await door.emptied()
    failed = await _get(door, response)
    assert failed.status == ResponseStatus.RESPONSE_STATUS_FAILED
    assert failed.error.code == "server_error"
    assert list(failed.output) == list(running.output)
    await _over(door)
    assert await _get(door, response) == failed


async def test_a_stream_of_a_background_response_may_be_left_and_followed_later(door: Door) -> None:
    stream = door.stream(pb.StreamResponseRequest(create=_asking()))
    created = await stream.until("created")
    response = door.created(created.response.id)
    door.say(response, "a")
    await stream.until("output_text_delta")
    seen = stream.seen[-1].sequence_number
    stream.call.cancel()
    door.say(response, "b")
    follower = _follow(door, response.id, seen)
    assert (await follower.until("created")).response == created.response
    assert (await follower.until("output_text_delta")).delta == "b"
    again = [event.WhichOneof("event") for event in follower.seen if event.sequence_number <= seen]
    assert again == ["created", "output_item_added", "content_part_added"]
    door.finish(response)
    done = await follower.until("done")
    assert (done.reason, _text(done.response)) == (DoneReason.DONE_REASON_COMPLETED, "ab")
    assert (await follower.ended()).code is grpc.StatusCode.OK
    assert [event.sequence_number for event in follower.seen][3:] == list(range(seen + 1, done_number(follower) + 1))
    await _over(door)


def done_number(peer: Peer) -> int:
    return next(event.sequence_number for event in peer.seen if event.WhichOneof("event") == "done")


async def test_every_reader_gets_the_same_whole_stream_at_any_verbosity(door: Door) -> None:
    stream = door.stream(pb.StreamResponseRequest(create=_asking(verbosity=Verbosity.VERBOSITY_DONE)))
    created = await stream.until("created")
    response = door.created(created.response.id)
    live = _follow(door, response.id)
    await live.until("created")
    door.say(response, "hello")
    door.finish(response)
    for peer in (stream, live):
        assert (await peer.ended()).code is grpc.StatusCode.OK
    late = _follow(door, response.id)
    assert (await late.ended()).code is grpc.StatusCode.OK
    assert stream.seen == live.seen == late.seen
    assert [event.sequence_number for event in late.seen] == list(range(len(late.seen)))
    assert late.seen[-1].done.response == await _get(door, response)
    await _over(door)


async def test_a_reader_who_has_seen_the_end_gets_it_again(door: Door) -> None:
    response = await _begin(door)
    door.finish(response)
    await door.emptied()
    follower = _follow(door, response.id, 1_000)
    assert (await follower.ended()).code is grpc.StatusCode.OK
    assert [event.WhichOneof("event") for event in follower.seen] == ["created", "done"]
    await _over(door)


async def test_a_response_can_be_streamed_for_five_minutes_after_its_end(door: Door) -> None:
    response = await _begin(door)
    door.finish(response)
    await door.emptied()
    door.clock.advance(_WINDOW - 1)
    assert (await _follow(door, response.id).ended()).code is grpc.StatusCode.OK
    door.clock.advance(1)
    ended = await _follow(door, response.id).ended()
    assert (ended.code.name, ended.error) == ("INVALID_ARGUMENT", ("invalid_request_error", None))
    assert "can no longer be streamed" in ended.message


async def test_only_background_responses_are_followed_and_cancelled(door: Door) -> None:
    stream = door.stream(pb.StreamResponseRequest(create=ResponseCreate(model="stepped", input=Input(text="hello"))))
    response = door.created((await stream.until("created")).response.id)
    door.finish(response)
    await stream.ended()
    for ended in (await _follow(door, response.id).ended(), await _cancel(door, response.id)):
        assert not isinstance(ended, Response)
        assert (ended.code.name, ended.error) == ("INVALID_ARGUMENT", ("invalid_request_error", None))
        assert "background" in ended.message
    for ended in (await _follow(door, "resp_x").ended(), await _cancel(door, "resp_x")):
        assert not isinstance(ended, Response)
        assert (ended.code.name, ended.error) == ("NOT_FOUND", ("response_not_found", "response_id"))
    refused = await _follow(door, response.id, -1).ended()
    assert refused.error == ("invalid_value", "starting_after")


async def test_a_cancel_ends_a_response_and_may_be_repeated(door: Door) -> None:
    response = await _begin(door)
    door.say(response, "never")
    follower = _follow(door, response.id)
    await follower.until("output_text_delta")
    first = await _cancel(door, response.id)
    assert isinstance(first, Response)
    assert first.status == ResponseStatus.RESPONSE_STATUS_CANCELLED
    await door.told(response, "abort")
    assert (await follower.until("done")).reason == DoneReason.DONE_REASON_CANCELLED
    assert await _cancel(door, response.id) == first
    await _over(door)
    assert await _cancel(door, response.id) == first
    assert await _get(door, response) == first


async def test_a_cancel_of_what_has_completed_returns_it_as_it_is(door: Door) -> None:
    response = await _begin(door)
    door.finish(response)
    await door.emptied()
    ended = await _cancel(door, response.id)
    assert isinstance(ended, Response)
    assert ended.status == ResponseStatus.RESPONSE_STATUS_COMPLETED
    await _over(door)


async def test_what_failed_or_was_cancelled_cannot_be_continued_from_and_what_completed_can(door: Door) -> None:
    failed, cancelled, completed = [await _begin(door) for _ in range(3)]
    door.engine.fail(failed.id, "server_error")
    await _cancel(door, cancelled.id)
    door.say(completed, "hi")
    door.finish(completed)
    await door.emptied()
    for response in (failed, cancelled):
        request = pb.CreateResponseRequest(create=_asking(previous_response_id=response.id))
        ended = await door.ask("CreateResponse", request)
        assert not isinstance(ended, bytes)
        assert ended.error == ("previous_response_not_found", "previous_response_id")
    following = await _begin(door, previous_response_id=completed.id)
    assert door.sampling(following).prompt.transcript.length == 3
    door.finish(following)
    await _over(door)


async def test_deleting_a_running_response_ends_it(door: Door) -> None:
    response = await _begin(door)
    assert await door.ask("DeleteResponse", pb.DeleteResponseRequest(response_id=response.id)) == b""
    await door.told(response, "abort")
    for name, request in (
        ("GetResponse", pb.GetResponseRequest(response_id=response.id)),
        ("DeleteResponse", pb.DeleteResponseRequest(response_id=response.id)),
    ):
        gone = await door.ask(name, request)
        assert not isinstance(gone, bytes)
        assert gone.code is grpc.StatusCode.NOT_FOUND
    assert (await _follow(door, response.id).ended()).code is grpc.StatusCode.NOT_FOUND


async def test_background_responses_of_others_do_not_exist(open_door: Doors) -> None:
    door = await open_door(keys=_KEYS)
    response = await _begin(door, _ALICE)
    for name, request in (
        ("GetResponse", pb.GetResponseRequest(response_id=response.id)),
        ("CancelResponse", pb.CancelResponseRequest(response_id=response.id)),
        ("DeleteResponse", pb.DeleteResponseRequest(response_id=response.id)),
        ("ListInputItems", pb.ListInputItemsRequest(response_id=response.id)),
    ):
        refused = await door.ask(name, request, _BOB)
        assert not isinstance(refused, bytes)
        assert refused.error == ("response_not_found", "response_id")
    assert (await _follow(door, response.id, metadata=(_BOB,)).ended()).code is grpc.StatusCode.NOT_FOUND
    door.finish(response)
    assert (await _follow(door, response.id, metadata=(_ALICE,)).ended()).code is grpc.StatusCode.OK
    await _over(door)


async def test_input_items_are_listed_while_a_response_runs_and_afterwards(door: Door) -> None:
    response = await _begin(door)
    request = pb.ListInputItemsRequest(response_id=response.id)
    running = await door.ask("ListInputItems", request)
    assert isinstance(running, bytes)
    (item,) = pb.ListInputItemsResponse.FromString(running).items
    assert item.message.content.parts.parts[0].input_text.text == "hello"
    door.finish(response)
    await door.emptied()
    assert await door.ask("ListInputItems", request) == running
    for fields, error in (
        ({"limit": 101}, ("invalid_value", "limit")),
        ({"after": "msg_x"}, ("item_not_found", "after")),
        ({"response_id": "resp_x"}, ("response_not_found", "response_id")),
        ({"response_id": ""}, ("missing_required_parameter", "response_id")),
    ):
        asked: dict[str, Any] = {"response_id": response.id, **fields}
        refused = await door.ask("ListInputItems", pb.ListInputItemsRequest(**asked))
        assert not isinstance(refused, bytes)
        assert refused.error == error
    await _over(door)


async def test_a_reader_who_takes_nothing_is_cut_off_and_the_response_goes_on(door: Door) -> None:
    response = await _begin(door)
    pending, quiet = door.clock.pending, 0
    follower = _follow(door, response.id, channel=door.new_channel())
    await follower.until("created")
    sampling = door.sampling(response)
    while quiet < 25:
        # A write that waits has a timer; only silence tells that the buffers on the way are full.
        quiet = quiet + 1 if door.clock.pending > pending else 0
        if not quiet:
            door.say(response, "x" * 65_536)
        await asyncio.sleep(0.002)
    door.clock.advance(SessionLimits().stall_timeout)
    ended = await follower.ended()
    assert (ended.code.name, ended.error[0]) == ("RESOURCE_EXHAUSTED", "slow_consumer")
    assert not sampling.aborted
    door.finish(response)
    await _over(door)


async def test_a_server_that_stops_lets_background_responses_end(door: Door, peer: Peer) -> None:
    await peer.send(ping={})
    await peer.until("pong")
    quick, slow = [await _begin(door) for _ in range(2)]
    stopping = asyncio.create_task(door.server.stop(10.0))
    await peer.until("go_away")
    door.say(quick, "in time")
    door.finish(quick)
    door.clock.advance(10.0)
    async with asyncio.timeout(5):
        await stopping
    store = door.services.store
    states = [await store.get("", response.id) for response in (quick, slow)]
    assert [state.status for state in states if state] == [
        ResponseStatus.RESPONSE_STATUS_COMPLETED,
        ResponseStatus.RESPONSE_STATUS_FAILED,
    ]
    assert states[1] is not None
    assert states[1].error is not None
    assert states[1].error.code == "server_shutting_down"


async def test_a_server_that_stops_at_once_ends_background_responses(door: Door) -> None:
    response = await _begin(door)
    await door.server.stop(0)
    await door.told(response, "abort")


async def test_the_client_library_creates_leaves_follows_and_cancels(door: Door) -> None:
    async with asyncio.timeout(10), Client(door.address) as client:
        begun = await client.rpc.create_response(model="stepped", input="hello", background=True)
        assert begun.status == ResponseStatus.RESPONSE_STATUS_IN_PROGRESS
        response = door.created(begun.id)
        door.say(response, "a")
        last = -1
        async for event in client.rpc.follow_response(begun.id):
            last = event.proto.sequence_number
            if event.kind == "output_text_delta":
                break
        door.say(response, "b")
        rest = client.rpc.follow_response(begun.id, starting_after=last)
        door.finish(response)
        ended = await rest.get_final_response()
        assert (ended.status, _text(ended)) == (ResponseStatus.RESPONSE_STATUS_COMPLETED, "ab")
        assert await client.rpc.get_response(begun.id) == ended
        assert await client.rpc.cancel_response(begun.id) == ended
        items = (await client.rpc.list_input_items(begun.id)).items
        assert items[0].message.content.parts.parts[0].input_text.text == "hello"
        left = ""
        stream = client.rpc.stream_response(model="stepped", input="hello", background=True)
        async for event in stream:
            if event.kind == "created":
                left = event.proto.created.response.id
                break
        stream.cancel()
        cancelled = await client.rpc.cancel_response(left)
        assert cancelled.status == ResponseStatus.RESPONSE_STATUS_CANCELLED
        with pytest.raises(RequestRejectedError) as refused:
            await client.rpc.follow_response("resp_x").get_final_response()
        assert refused.value.code == "response_not_found"
    await _over(door)


@pytest.mark.parametrize("number", [1, 7])
async def test_sequence_numbers_have_no_gap(door: Door, number: int) -> None:
    response = await _begin(door)
    for _ in range(number):
        door.say(response, "a")
    door.call(response, "call_1")
    door.finish(response)
    follower = _follow(door, response.id)
    await follower.ended()
    seen: list[ServerEvent] = follower.seen
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[1].WhichOneof("event") == "in_progress"
    await _over(door)
