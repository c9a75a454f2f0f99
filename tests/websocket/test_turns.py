"""One turn over the socket: order, numbers, echo, and what is tolerated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from turnwire.server.runtime.threads import PARSE_BYTES

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Event, Peer

_TEXT = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def numbers(events: list[Event]) -> list[int]:
    return [event["sequence_number"] for event in events]


async def test_a_text_turn_has_all_its_events_in_order_and_numbers_without_a_gap(door: Door, peer: Peer) -> None:
    for _ in range(2):
        response_id = await peer.create("hi", store=False)
        begun, peer.seen = peer.seen, []
        door.say(response_id, "Hel")
        door.finish(response_id, "lo")
        events = begun + await peer.turn()
        peer.seen = []
        assert [event["type"] for event in events] == _TEXT
        assert numbers(events) == list(range(len(_TEXT)))
        assert not any("stream_id" in event for event in events)
        opening, end = events[0]["response"], events[-1]["response"]
        assert (opening["status"], opening["output"], opening["usage"]) == ("in_progress", [], None)
        assert end["id"] == response_id
        assert end["store"] is False
        assert end["output"] == [events[-2]["item"]]
        assert end["output"][0]["content"][0]["text"] == "Hello"
        assert end["output"][0]["content"][0]["annotations"] == []


async def test_a_call_comes_as_a_whole_item_and_its_output_continues_the_turn(door: Door, peer: Peer) -> None:
    first = await peer.create("look", store=False)
    door.call(first, "call_1", '{"at":1}')
    door.finish(first)
    end = (await peer.turn())[-1]
    assert end["type"] == "response.completed"
    (call,) = end["response"]["output"]
    assert (call["type"], call["call_id"], call["arguments"]) == ("function_call", "call_1", '{"at":1}')

    outputs = [{"type": "function_call_output", "call_id": "call_1", "output": "seen"}]
    second = await peer.create(outputs, previous_response_id=first, store=False)
    door.finish(second, "done")
    whole = (await peer.turn())[-1]["response"]
    assert whole["previous_response_id"] == first
    assert door.read_by(second) == ["look", 'look\n{"at":1}', "seen"]


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"stream": False},
        {"stream_options": {"include_obfuscation": False}},
        {"background": False},
        {"background": None},
        {"client_metadata": {"session": "a"}},
        {"nobody_knows": {"this": ["key"]}, "event_id": "evt_1"},
        {"generate": True},
        {"stream_id": None, "previous_response_id": None},
        {"include": []},
    ],
)
async def test_what_clients_send_besides_is_accepted(door: Door, peer: Peer, fields: dict[str, Any]) -> None:
    await door.completes(peer, **fields)


async def test_obfuscation_comes_only_where_it_is_asked_for(door: Door, peer: Peer) -> None:
    await door.completes(peer)
    assert not any("obfuscation" in event for event in peer.seen)
    await door.completes(peer, stream_options={"include_obfuscation": True})
    deltas = [event for event in peer.seen if event["type"] == "response.output_text.delta"]
    assert "obfuscation" in deltas[-1]


async def test_nothing_follows_the_end_of_a_turn(door: Door, peer: Peer) -> None:
    await door.completes(peer)
    count = len(peer.seen)
    response_id = await peer.create()
    following = peer.seen[count]
    assert following["type"] == "response.created"
    assert following["response"]["id"] == response_id
    door.finish(response_id)
    await peer.turn()


async def test_a_model_that_fails_ends_the_turn_with_a_whole_failed_response(door: Door, peer: Peer) -> None:
    response_id = await peer.create()
    door.say(response_id, "so f")
    door.engine.fail(response_id, "server_is_overloaded", "too much to do")
    end = (await peer.turn())[-1]
    assert end["type"] == "response.failed"
    assert end["response"]["id"] == response_id
    assert end["response"]["status"] == "failed"
    assert end["response"]["error"]["code"] == "server_is_overloaded"
    assert "too much to do" in end["response"]["error"]["message"]
    await door.completes(peer)


async def test_the_end_of_a_turn_can_be_continued_at_once(door: Door, peer: Peer) -> None:
    """Also in the same write: a client need not wait for anything after the terminal event."""
    before: str | None = None
    for _ in range(5):
        response_id = await peer.create(previous_response_id=before, store=False)
        door.finish(response_id, "go on")
        await peer.turn()
        before = response_id


async def test_a_response_of_many_megabytes_arrives_whole(door: Door, peer: Peer) -> None:
    """In several frames, since some clients take messages but no frames of such a size."""
    response_id = await peer.create()
    for _ in range(9):
        door.say(response_id, "x" * 1_000_000)
    door.finish(response_id)
    end = (await peer.turn())[-1]
    assert end["response"]["output"][0]["content"][0]["text"] == "x" * 9_000_000


async def test_items_with_the_same_id_are_all_kept(door: Door, peer: Peer) -> None:
    """What belongs together is paired by call ids."""
    call = {"type": "function_call", "id": "fc_1", "name": "look", "arguments": "{}"}
    items = [
        {**call, "call_id": "call_1"},
        {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "one"},
        {**call, "call_id": "call_2"},
        {"type": "function_call_output", "id": "fco_1", "call_id": "call_2", "output": "two"},
    ]
    response_id = await peer.create(items)
    assert door.read_by(response_id)[1::2] == ["one", "two"]
    door.finish(response_id)
    await peer.turn()


async def test_a_big_message_is_not_overtaken_by_a_small_one(door: Door, peer: Peer) -> None:
    tokens: list[int] = []
    await peer.send(input="many words " * PARSE_BYTES)
    await peer.send(input="few words")
    for _ in range(2):
        running = await peer.until("response.in_progress")
        door.finish(running["response"]["id"], "said")
        tokens.append((await peer.turn())[-1]["response"]["usage"]["input_tokens"])

    assert tokens[0] > PARSE_BYTES > tokens[1]
