"""Lanes: side by side by name, one after the other within a name, and tagged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Peer


async def test_lanes_run_at_the_same_time_and_every_event_is_tagged(door: Door, peer: Peer) -> None:
    first = await peer.create("one", stream_id="a")
    second = await peer.create("two", stream_id="b.2_c-d")
    third = await peer.create("three")
    # All three are at work: none of them has been let go on.
    assert {each.prompt.response_id for each in door.engine.passes} == {first, second, third}
    for response_id, lane in ((second, "b.2_c-d"), (third, None), (first, "a")):
        door.finish(response_id, "done")
        events = await peer.turn(lane)
        assert events[-1]["response"]["id"] == response_id
        assert all(event.get("stream_id") == lane for event in events)
        mine = [event for event in peer.seen if event.get("stream_id") == lane]
        assert [event["sequence_number"] for event in mine] == list(range(len(mine)))


async def test_events_of_lanes_interleave(door: Door, peer: Peer) -> None:
    first = await peer.create(stream_id="a")
    second = await peer.create(stream_id="b")
    for piece in ("x", "y"):
        for response_id in (first, second):
            door.say(response_id, piece)
            lane = "a" if response_id == first else "b"
            assert (await peer.until("response.output_text.delta"))["stream_id"] == lane
    for response_id in (first, second):
        door.finish(response_id)
    await peer.until("response.completed")
    await peer.until("response.completed")


async def test_the_default_lane_is_first_in_first_out_and_nobody_is_told_of_the_queue(door: Door, peer: Peer) -> None:
    running = await peer.create("0")
    for text in ("1", "2", "3"):
        await peer.send(input=text)
    # Answered after the creates were taken, so that they are known to wait.
    assert (await peer.refusal("response.invent"))["type"] == "error"
    assert len(door.engine.passes) == 1
    for text in ("0", "1", "2", "3"):
        assert door.read_by(running) == [text]
        door.finish(running, "ok")
        assert (await peer.turn())[-1]["response"]["id"] == running
        if text != "3":
            begun = await peer.next()
            assert begun["type"] == "response.created"
            running = begun["response"]["id"]
            await peer.until("response.in_progress")
    assert len(door.engine.passes) == 4


async def test_a_named_lane_does_not_overlap_either(door: Door, peer: Peer) -> None:
    first = await peer.create("1", stream_id="a")
    await peer.send(input="2", stream_id="a")
    assert (await peer.refusal("response.invent"))["type"] == "error"
    assert len(door.engine.passes) == 1
    door.finish(first)
    await peer.turn("a")
    begun = await peer.until("response.in_progress", "a")
    door.finish(begun["response"]["id"])
    await peer.turn("a")


async def test_sixteen_responses_are_at_work_and_the_seventeenth_waits_for_room(door: Door, peer: Peer) -> None:
    running = [await peer.create(stream_id=f"lane-{index}") for index in range(16)]
    await peer.send(input="waits", stream_id="lane-16")
    await peer.send(input="waits too")
    assert (await peer.refusal("response.invent"))["type"] == "error"
    assert len(door.engine.passes) == 16
    door.finish(running[3])
    await peer.turn("lane-3")
    begun = await peer.until("response.in_progress", "lane-16")
    assert len(door.engine.passes) == 17
    door.finish(running[0])
    last = await peer.until("response.in_progress")
    assert "stream_id" not in last
    for response_id in (*running[1:3], *running[4:], begun["response"]["id"], last["response"]["id"]):
        door.finish(response_id)
        await peer.until("response.completed")


async def test_a_lane_that_is_used_again_without_a_parent_begins_anew(door: Door, peer: Peer) -> None:
    await door.completes(peer, stream_id="a")
    again = await peer.create("second", stream_id="a")
    assert door.read_by(again) == ["second"]
    door.finish(again)
    await peer.turn("a")


async def test_a_failure_in_one_lane_leaves_the_others_alone(door: Door, peer: Peer) -> None:
    running = await peer.create(stream_id="a")
    refused = await peer.refusal(input="hi", stream_id="b", previous_response_id="resp_none")
    assert refused["stream_id"] == "b"
    door.finish(running, "fine")
    assert (await peer.turn("a"))[-1]["type"] == "response.completed"
