"""What is not official: held responses over JSON, cancelling, and steering, which is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Peer

_TOOLS = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]


def output(call_id: str, text: str = "seen") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


async def test_a_held_response_takes_tool_outputs_and_goes_on(door: Door, peer: Peer) -> None:
    held = await peer.create("look", hold=True, tools=_TOOLS, store=False, stream_id="a")
    door.call(held, "call_1")
    door.finish(held)
    pause = await peer.until("response.done", "a")
    assert pause["awaiting_call_ids"] == ["call_1"]
    await peer.send("response.append", response_id=held, append_index=0, input=[output("call_1")])
    appended = await peer.until("response.appended", "a")
    assert (appended["append_index"], appended.get("awaiting_call_ids", [])) == (0, [])
    door.finish(held, "I see.")
    end = (await peer.turn("a"))[-1]
    assert end["type"] == "response.completed"
    kinds = [item["type"] for item in end["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert end["response"]["tools"][0]["name"] == "look"
    following = await peer.create("more", previous_response_id=held, store=False, stream_id="a")
    assert door.read_by(following)[-2:] == ["I see.", "more"]
    door.finish(following)
    await peer.turn("a")


async def test_without_hold_there_is_no_event_that_is_not_official(door: Door, peer: Peer) -> None:
    response_id = await peer.create("look", tools=_TOOLS)
    door.call(response_id, "call_1")
    door.finish(response_id)
    await peer.turn()
    assert not {"response.done", "response.appended"} & {event["type"] for event in peer.seen}


async def test_an_append_that_cannot_be_taken_is_refused_by_name_and_the_hold_stays(door: Door, peer: Peer) -> None:
    held = await peer.create("look", hold=True, tools=_TOOLS)
    door.call(held, "call_1")
    door.finish(held)
    await peer.until("response.done")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"response_id": "resp_none", "input": [output("call_1")]}, "response_not_found"),
        ({"response_id": held, "append_index": 7, "input": [output("call_1")]}, "append_index_gap"),
        ({"input": [output("call_1")]}, "missing_required_parameter"),
        ({"response_id": held, "input": []}, "missing_required_parameter"),
    ]
    for fields, code in refused:
        assert (await peer.refusal("response.append", **fields))["error"]["code"] == code
    await peer.send("response.append", response_id=held, input=[output("call_1")])
    await peer.until("response.appended")
    door.finish(held)
    assert (await peer.turn())[-1]["type"] == "response.completed"


async def test_a_cancel_ends_the_turn_as_incomplete(door: Door, peer: Peer) -> None:
    """There is no official event for it, and clients wait for ever for one that they do not know."""
    running = await peer.create(stream_id="a")
    door.say(running, "so f")
    await peer.send("response.cancel", response_id=running)
    end = (await peer.turn("a"))[-1]
    assert end["type"] == "response.incomplete"
    assert end["response"]["incomplete_details"] == {"reason": "cancelled"}
    await door.told(running, "abort")
    await door.completes(peer, stream_id="a")


async def test_a_cancel_without_an_id_means_what_runs_in_the_lane(door: Door, peer: Peer) -> None:
    default, named = await peer.create(), await peer.create(stream_id="a")
    await peer.send("response.cancel")
    assert (await peer.turn())[-1]["response"]["id"] == default
    await peer.send("response.cancel", stream_id="a")
    assert (await peer.turn("a"))[-1]["response"]["id"] == named


async def test_a_cancel_that_follows_its_create_at_once_finds_it(door: Door, peer: Peer) -> None:
    await peer.send(input="hi")
    await peer.send("response.cancel")
    events = await peer.turn()
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.incomplete"]
    await door.completes(peer)


async def test_a_create_that_waits_can_be_cancelled_after_what_runs(door: Door, peer: Peer) -> None:
    running = await peer.create("runs")
    await peer.send(input="waits")
    await peer.send("response.cancel")
    assert (await peer.turn())[-1]["response"]["id"] == running
    waited = (await peer.until("response.in_progress"))["response"]["id"]
    await peer.send("response.cancel")
    assert (await peer.turn())[-1]["response"]["id"] == waited


async def test_cancelling_what_has_ended_says_nothing(door: Door, peer: Peer) -> None:
    ended = await door.completes(peer)
    count = len(peer.seen)
    await peer.send("response.cancel", response_id=ended["id"])
    await door.completes(peer)
    assert peer.seen[count]["type"] == "response.created"


async def test_cancelling_nothing_is_refused(door: Door, peer: Peer) -> None:
    event = await peer.refusal("response.cancel", stream_id="a")
    assert (event["error"]["code"], event["error"]["param"]) == ("response_not_found", "response_id")
    assert event["stream_id"] == "a"
    event = await peer.refusal("response.cancel", response_id="resp_none")
    assert event["error"]["code"] == "response_not_found"
    await door.completes(peer)


async def test_steering_a_running_response_fails_officially(door: Door, peer: Peer) -> None:
    running = await peer.create()
    steered = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "faster"}]}]
    for wish in ("faster", steered):
        await peer.send("response.steer", previous_response_id=running, input=wish)
        failed = await peer.next()
        assert failed["type"] == "response.steer.failed"
        assert failed["steer"]["previous_response_id"] == running
        assert failed["steer"]["input"] == wish
        assert failed["error"]["code"] == "steering_not_supported"
        assert failed["error"]["type"] == "invalid_request_error"
    door.finish(running)
    assert (await peer.turn())[-1]["type"] == "response.completed"


async def test_steering_what_is_not_there_fails_officially(door: Door, peer: Peer) -> None:
    await peer.send("response.steer", previous_response_id="resp_none", input="faster")
    failed = await peer.next()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "response_not_found")
    ended = await door.completes(peer)
    await peer.send("response.steer", previous_response_id=ended["id"], input="faster")
    failed = await peer.next()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "response_already_completed")
