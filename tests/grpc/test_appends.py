"""Appends that cannot be taken: the hold stays as it was, and everything else goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.response_pb2 import DoneReason

if TYPE_CHECKING:
    from tests.grpc.conftest import Created, Door, Doors, Peer


async def _refused(peer: Peer, response: Created | str, *items: Item, **append: Any) -> tuple[str, str | None]:
    response_id = response if isinstance(response, str) else response.id
    code = await peer.refusal(append={"response_id": response_id, "input": items, **append})
    assert peer.seen[-1].rejected.response_id == response_id
    return code


async def _finishes(door: Door, peer: Peer, response: Created) -> None:
    """Shows that a hold is as it was: its output is taken and the response goes on to its end."""
    started = len(door.engine.passes)
    await peer.append(response.id, peer.output("call_1"))
    assert not (await peer.until("appended", response.handle)).awaiting_call_ids
    await door.sampling_again(response, started + 1)
    door.finish(response)
    assert (await peer.until("done", response.handle)).reason == DoneReason.DONE_REASON_COMPLETED


async def test_an_append_to_a_finished_response_is_refused(door: Door, peer: Peer) -> None:
    finished = await door.completes(peer, "a")
    assert await _refused(peer, finished, peer.output("call_1")) == ("response_already_completed", "response_id")
    await door.completes(peer)


async def test_an_append_to_a_response_of_another_session_is_refused_as_unknown(door: Door, peer: Peer) -> None:
    held = await door.paused(peer)
    other = door.connect()
    assert await _refused(other, held, other.output("call_1")) == ("response_not_found", "response_id")
    await door.completes(other)
    await _finishes(door, peer, held)


async def test_an_append_to_a_response_without_hold_is_refused(door: Door, peer: Peer) -> None:
    running = await peer.create("a")
    door.call(running, "call_1")
    assert await _refused(peer, running, peer.output("call_1")) == ("response_not_held", "response_id")
    door.finish(running)
    done = await peer.until("done", running.handle)
    assert list(done.awaiting_call_ids) == ["call_1"]
    await door.completes(peer)


@pytest.mark.parametrize("early", [False, True], ids=["at the pause", "before the pause"])
async def test_repeats_differences_and_gaps_of_the_index_leave_the_hold_as_it_was(
    door: Door, peer: Peer, early: bool
) -> None:
    if early:
        held = await peer.create(hold=True)
        door.call(held, "call_0")
        door.call(held, "call_1")
        await peer.until("output_item_done", held.handle)
    else:
        held = await door.paused(peer, "call_0", "call_1")

    assert await _refused(peer, held, peer.output("call_0"), append_index=1) == ("append_index_gap", "append_index")
    assert await _refused(peer, held, peer.output("call_0"), append_index=7) == (
        "append_index_gap",
        "append_index",
    )
    for duplicate in (False, True):
        await peer.append(held.id, peer.output("call_0"))
        if not duplicate:
            appended = await peer.until("appended", held.handle)
            assert (appended.append_index, appended.duplicate) == (0, False)
            assert list(appended.awaiting_call_ids) == ["call_1"]
        else:
            # Without an index this is another append, for a call that has its output.
            assert (await peer.until("rejected")).error.param == "input"
    await peer.send(append={"response_id": held.id, "append_index": 0, "input": [peer.output("call_0")]})
    again = await peer.until("appended", held.handle)
    assert (again.append_index, again.duplicate) == (0, True)
    assert await _refused(peer, held, peer.output("call_0", "other"), append_index=0) == (
        "append_index_conflict",
        "append_index",
    )
    await door.completes(peer)
    if early:
        door.finish(held)
        assert (await peer.until("done", held.handle)).reason == DoneReason.DONE_REASON_TOOL_CALLS
    await _finishes(door, peer, held)


async def test_what_cannot_be_appended_leaves_the_hold_as_it_was(door: Door, peer: Peer) -> None:
    held = await door.paused(peer)
    message = Item(message=Message(role=Role.ROLE_ASSISTANT, content=MessageContent(text="x")))
    assert await _refused(peer, held) == ("missing_required_parameter", "input")
    assert await _refused(peer, held, peer.output("call_x")) == ("invalid_request_error", "input")
    assert (await _refused(peer, held, message))[0] == "invalid_value"
    assert (await _refused(peer, held, Item()))[0] == "missing_required_parameter"
    assert (await _refused(peer, held, Item(function_call_output={"call_id": "call_1"})))[1] == "input[0].output"  # type: ignore[arg-type]
    # The same, large enough to be checked in a thread.
    assert await _refused(peer, held, peer.output("call_x", "x" * 100_000)) == ("invalid_request_error", "input")
    await door.completes(peer)
    await _finishes(door, peer, held)


async def test_a_create_on_a_held_lane_is_refused_and_the_hold_stays(door: Door, peer: Peer) -> None:
    held = await door.paused(peer, lane="a")
    assert await peer.refusal(lane="a", create=peer.asking()) == ("lane_held", "lane")
    assert await peer.refusal(lane="a", create=peer.asking(previous_response_id="resp_x")) == ("lane_held", "lane")
    await door.completes(peer)
    await _finishes(door, peer, held)


async def test_a_create_that_waits_behind_a_response_that_pauses_is_refused(door: Door, peer: Peer) -> None:
    held = await peer.create("a", hold=True)
    await peer.send(request_id="waits", lane="a", create=peer.asking())
    await peer.until("queued")
    door.call(held, "call_1")
    door.finish(held)
    rejected = await peer.until("rejected")
    assert (rejected.request_id, rejected.error.code) == ("waits", "lane_held")
    await _finishes(door, peer, held)


async def test_a_repeated_append_request_is_answered_once_more_and_not_taken_twice(door: Door, peer: Peer) -> None:
    held = await door.paused(peer, "call_0", "call_1")
    for duplicate in (False, True):
        await peer.append(held.id, peer.output("call_0"), request_id="r")
        assert (await peer.until("appended")).duplicate is duplicate
    assert await peer.refusal(request_id="r", append={"response_id": held.id, "input": [peer.output("call_1")]}) == (
        "request_id_reused",
        "request_id",
    )
    await _finishes(door, peer, held)


async def test_a_hold_that_times_out_stays_continuable_from_its_pause(open_door: Doors) -> None:
    door = await open_door()
    peer = door.connect()
    held = await door.paused(peer, timeouts={"hold": {"seconds": 5}})
    door.clock.advance(6)
    done = await peer.until("done", held.handle)
    assert (done.reason, done.error.code, done.continuable) == (
        DoneReason.DONE_REASON_FAILED,
        "hold_timeout",
        True,
    )
    assert await _refused(peer, held, peer.output("call_1")) == ("response_already_completed", "response_id")
    items = {"items": {"items": [peer.output("call_1")]}}
    again = await peer.create(previous_response_id=held.id, input=items)
    door.finish(again)
    assert (await peer.until("done", again.handle)).reason == DoneReason.DONE_REASON_COMPLETED
