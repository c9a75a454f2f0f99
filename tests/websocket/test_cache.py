"""What can be continued: the latest response of each lane, what is stored, and nothing after the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Event, Peer

_ORPHAN = [{"type": "function_call_output", "call_id": "call_openresponses_missing", "output": "?"}]


def code(event: Event) -> Any:
    return event["error"]["code"]


async def test_the_latest_response_of_a_lane_continues_without_being_stored(door: Door, peer: Peer) -> None:
    first = await door.completes(peer, "one", input="1", store=False, instructions="Be brief.")
    second = await peer.create("2", previous_response_id=first["id"], store=False)
    assert door.read_by(second) == ["1", "one", "2"]
    # Instructions are of their request alone.
    assert not door.sampling(second).prompt.settings.instructions
    door.finish(second, "two")
    assert (await peer.turn())[-1]["response"]["previous_response_id"] == first["id"]


async def test_an_older_response_of_a_lane_is_gone_unless_it_is_stored(door: Door, peer: Peer) -> None:
    stored = await door.completes(peer, "one", input="1", store=True)
    unstored = await door.completes(peer, "two", input="2", store=False)
    await door.completes(peer, "three", input="3", store=False)
    refused = await peer.refusal(input="4", previous_response_id=unstored["id"], store=False)
    assert code(refused) == "previous_response_not_found"
    again = await peer.create("4", previous_response_id=stored["id"])
    assert door.read_by(again) == ["1", "one", "4"]
    door.finish(again)
    await peer.turn()


async def test_each_lane_has_its_own_latest_response(door: Door, peer: Peer) -> None:
    a = await door.completes(peer, "one", input="1", store=False, stream_id="a")
    b = await door.completes(peer, "two", input="2", store=False, stream_id="b")
    for lane, parent, text in (("a", a, "one"), ("b", b, "two")):
        following = await peer.create("next", previous_response_id=parent["id"], store=False, stream_id=lane)
        assert door.read_by(following)[1] == text
        door.finish(following)
        await peer.turn(lane)


async def test_a_continuation_that_fails_in_its_parents_lane_evicts_the_parent(door: Door, peer: Peer) -> None:
    parent = await door.completes(peer, store=False)
    failed = await peer.refusal(input=_ORPHAN, previous_response_id=parent["id"], store=False)
    assert failed["error"]["param"] == "input"
    blind = await peer.refusal(input="hi", previous_response_id=parent["id"], store=False)
    assert code(blind) == "previous_response_not_found"
    await door.completes(peer, store=False)


async def test_a_model_that_fails_evicts_the_parent_too(door: Door, peer: Peer) -> None:
    parent = await door.completes(peer, store=False)
    child = await peer.create(previous_response_id=parent["id"], store=False)
    door.engine.fail(child)
    assert (await peer.turn())[-1]["type"] == "response.failed"
    for gone in (parent["id"], child):
        assert code(await peer.refusal(input="hi", previous_response_id=gone)) == "previous_response_not_found"


async def test_a_stored_parent_survives_eviction(door: Door, peer: Peer) -> None:
    parent = await door.completes(peer, "one", input="1", store=True)
    await peer.refusal(input=_ORPHAN, previous_response_id=parent["id"])
    again = await peer.create("2", previous_response_id=parent["id"])
    assert door.read_by(again) == ["1", "one", "2"]
    door.finish(again)
    await peer.turn()


async def test_a_fork_that_fails_leaves_its_parent_in_its_own_lane(door: Door, peer: Peer) -> None:
    parent = await door.completes(peer, store=False, stream_id="a")
    failed = await peer.refusal(input=_ORPHAN, previous_response_id=parent["id"], store=False, stream_id="b")
    assert failed["stream_id"] == "b"
    await door.completes(peer, previous_response_id=parent["id"], store=False, stream_id="a")


async def test_a_fork_runs_beside_its_parents_lane_and_both_can_be_continued(door: Door, peer: Peer) -> None:
    parent = await door.completes(peer, "one", input="1", store=False, stream_id="a")
    fork = await peer.create("fork", previous_response_id=parent["id"], store=False, stream_id="b")
    on = await peer.create("on", previous_response_id=parent["id"], store=False, stream_id="a")
    assert door.read_by(fork) == ["1", "one", "fork"]
    assert door.read_by(on) == ["1", "one", "on"]
    for response_id, lane in ((on, "a"), (fork, "b")):
        door.finish(response_id, "so")
        await peer.turn(lane)
        await door.completes(peer, previous_response_id=response_id, store=False, stream_id=lane)


async def test_an_incomplete_response_can_be_continued(door: Door, peer: Peer) -> None:
    """Undocumented: over HTTP it can be, where it is stored."""
    from turnwire.server.session.chunks import FinishReason

    first = await peer.create("1", store=False, max_output_tokens=16)
    door.say(first, "cut")
    door.engine.finish(first, FinishReason.LENGTH)
    end = (await peer.turn())[-1]
    assert end["type"] == "response.incomplete"
    assert end["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    second = await peer.create("go on", previous_response_id=first, store=False)
    assert door.read_by(second) == ["1", "cut", "go on"]
    door.finish(second)
    await peer.turn()


async def test_another_connection_knows_only_what_is_stored(door: Door, peer: Peer) -> None:
    stored = await door.completes(peer, "one", input="1", store=True)
    unstored = await door.completes(peer, store=False)
    await peer.socket.close()
    other = await door.connect()
    refused = await other.refusal(input="hi", previous_response_id=unstored["id"], store=False)
    assert code(refused) == "previous_response_not_found"
    # On the same socket, as clients recover.
    again = await other.create("2", previous_response_id=stored["id"])
    assert door.read_by(again) == ["1", "one", "2"]
    door.finish(again)
    await other.turn()


async def test_another_key_can_continue_nothing(open_door: Any) -> None:
    door = await open_door(keys="alice:sk-alice-000000000000\nbob:sk-bob-00000000000000\n")
    alice = await door.connect(additional_headers={"Authorization": "Bearer sk-alice-000000000000"})
    bob = await door.connect(additional_headers={"Authorization": "Bearer sk-bob-00000000000000"})
    hers = await door.completes(alice, store=True)
    refused = await bob.refusal(input="hi", previous_response_id=hers["id"])
    assert code(refused) == "previous_response_not_found"


async def test_the_same_items_come_done_and_in_the_end(door: Door, peer: Peer) -> None:
    """Clients compare what they replay by these, ids included."""
    response_id = await peer.create()
    door.say(response_id, "look")
    door.call(response_id, "call_1")
    door.finish(response_id)
    events = await peer.turn()
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done


@pytest.mark.parametrize("spelling", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}])
async def test_a_warm_up_completes_without_output_and_is_continued_with_nothing(
    door: Door, peer: Peer, spelling: dict[str, Any]
) -> None:
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    await peer.send(input="Remember me.", store=False, tools=tools, stream_id="a", **spelling)
    events = await peer.turn("a")
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]
    assert [event["sequence_number"] for event in events] == [0, 1, 2]
    warm = events[-1]["response"]
    assert (warm["status"], warm["output"]) == ("completed", [])
    assert warm["usage"]["output_tokens"] == 0
    assert warm["usage"]["input_tokens"] > 0
    assert not door.engine.passes

    response_id = await peer.create([], previous_response_id=warm["id"], store=False, stream_id="a")
    assert door.read_by(response_id) == ["Remember me."]
    # Settings are not remembered: the next create has to say them again.
    assert not door.sampling(response_id).prompt.tools.data
    door.finish(response_id, "I do.")
    assert (await peer.turn("a"))[-1]["response"]["status"] == "completed"


async def test_a_warm_up_may_come_in_the_middle_and_be_empty(door: Door, peer: Peer) -> None:
    first = await door.completes(peer, "one", input="1", store=False)
    await peer.send(input=[], generate=False, previous_response_id=first["id"], store=False)
    warm = (await peer.turn())[-1]["response"]
    second = await peer.create("2", previous_response_id=warm["id"], store=False)
    assert door.read_by(second) == ["1", "one", "2"]
    door.finish(second)
    await peer.turn()


async def test_a_warm_up_without_any_input_is_accepted_as_the_first_message(door: Door, peer: Peer) -> None:
    await peer.send(input=[], generate=False, store=False)
    warm = (await peer.turn())[-1]["response"]
    response_id = await peer.create("hi", previous_response_id=warm["id"], store=False)
    assert door.read_by(response_id) == ["hi"]
    door.finish(response_id)
    await peer.turn()
