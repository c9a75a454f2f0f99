"""Safety through the doors: what clients see of flags, when inference starts, and what never leaves."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from turnwire.v1.client_event_pb2 import ResponseAppend
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, ToolOutput
from turnwire.v1.response_pb2 import DoneReason, Input, ResponseCreate
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

if TYPE_CHECKING:
    from tests.safety.conftest import Classifier, Doors, OpenDoors, Peer

RULES = """
[[category]]
name = "weapons"
literals = ["pipe bomb"]

[[category]]
name = "intrusion"
direction = "input"
code = "cyber_policy"
patterns = ['\\bbreak into (?:the |a )?server\\b']
"""

REMOTE = """
[remote]
url = "{url}"
api_key_env = "KEY"
timeout = "{timeout}"
direction = "{direction}"
on_failure = "{on_failure}"
code = "bio_policy"
"""


def remote(classifier: Classifier, timeout: str = "5s", direction: str = "input", on_failure: str = "closed") -> str:
    return REMOTE.format(url=classifier.url, timeout=timeout, direction=direction, on_failure=on_failure)


def asking(text: str = "hello", **more: Any) -> ResponseCreate:
    return ResponseCreate(model="stepped", input=Input(text=text), **more)


def kinds(events: list[ServerEvent]) -> list[str | None]:
    return [event.WhichOneof("event") for event in events]


async def taken(peer: Peer) -> None:
    """Waits until everything that was sent before has arrived."""
    await peer.send(ping={"nonce": 7})
    await peer.until("pong")


async def test_flagged_input_is_refused_with_the_code_of_its_category(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES)
    peer = await doors.peer()
    await peer.send(create=asking("how to make a Pipe\u200b Bo\u0301mb"), request_id="1")
    assert (await peer.until("rejected")).error.code == "invalid_prompt"
    await peer.send(create=asking("break  into\nthe SERVER"), request_id="2")
    assert (await peer.until("rejected")).error.code == "cyber_policy"
    assert not doors.engine.passes
    answer = await doors.post(input="break into a server")
    assert answer.status == 400
    error = (await answer.json())["error"]
    assert (error["code"], error["type"]) == ("cyber_policy", "invalid_request_error")
    assert doors.metric("turnwire_flags_total", category="intrusion", direction="input", action="stopped") == 2


async def test_instructions_and_tools_are_input_too(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES)
    refused = await doors.post(instructions="You know how to build a pipe bomb.")
    assert (await refused.json())["error"]["code"] == "invalid_prompt"
    function = {"type": "function", "name": "f", "description": "Helps to break into a server.", "parameters": None}
    refused = await doors.post(tools=[function])
    assert (await refused.json())["error"]["code"] == "cyber_policy"


async def test_a_phrase_over_two_turns_is_found_though_only_the_new_turn_is_looked_at(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES)
    peer = await doors.peer()
    await peer.send(create=asking("what is a pipe"), request_id="1")
    response = (await peer.until("created")).response.id
    doors.say(await doors.sampling(), "a tube")
    doors.engine.finish(0)
    await peer.until("done")
    before = dict(doors.services.visits.items)
    await peer.send(create=asking("bomb", previous_response_id=response), request_id="2")
    assert (await peer.until("rejected")).error.code == "invalid_prompt"
    assert doors.services.visits.since(before)["classify"] == 1


async def test_a_resent_history_costs_what_is_new(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES)
    history: list[dict[str, Any]] = []
    looks: list[int] = []
    for turn in range(4):
        history.append({"role": "user", "content": f"question {turn}"})
        before = dict(doors.services.visits.items)
        asked = asyncio.create_task(doors.post(input=history))
        doors.say(await doors.sampling(turn + 1), f"answer {turn}")
        doors.engine.finish(turn)
        answer = await (await asked).json()
        history.append({"role": "assistant", "content": answer["output"][0]["content"]})
        looks.append(doors.services.visits.since(before)["classify"])
    assert looks == [1, 1, 1, 1]


async def test_without_the_optimization_a_turn_costs_its_history(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES, "incremental-safety")
    peer = await doors.peer()
    response, looks = "", list[int]()
    for turn in range(3):
        before = dict(doors.services.visits.items)
        await peer.send(create=asking("question", previous_response_id=response), request_id=f"{turn}")
        response = (await peer.until("created")).response.id
        looks.append(doors.services.visits.since(before)["classify"])
        doors.say(await doors.sampling(turn + 1), "answer")
        doors.engine.finish(turn)
        await peer.until("done")
    assert looks == [1, 3, 5]


async def test_flagged_output_ends_the_response_and_half_of_the_phrase_has_not_left(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES)
    peer = await doors.peer()
    await peer.send(create=asking(), request_id="1")
    sampling = await doors.sampling()
    doors.say(sampling, "First ", "take a ", "pi")
    await taken(peer)
    assert peer.text == "First take a "
    doors.say(sampling, "pe bo", "mb", " and")
    done = await peer.until("done")
    assert sampling.aborted
    assert done.reason == DoneReason.DONE_REASON_INCOMPLETE
    assert done.incomplete_details.reason == "content_filter"
    assert peer.text == "First take a "
    item = next(event.output_item_done.item for event in peer.seen if event.HasField("output_item_done"))
    assert item.message.content.parts.parts[0].output_text.text == "First take a "


async def test_flagged_output_is_an_incomplete_response_over_http(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES)
    asked = asyncio.create_task(doors.post(stream=True))
    sampling = await doors.sampling()
    doors.say(sampling, "Sure. A pipe", " bomb", ".")
    events = await doors.events(await asked)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "content_filter"}
    assert "bomb" not in str(events)
    assert sampling.aborted
    asked = asyncio.create_task(doors.post())
    doors.say(await doors.sampling(2), "A pipe bomb.")
    answer = await asked
    assert answer.status == 200
    body = await answer.json()
    assert (body["status"], body["incomplete_details"]["reason"]) == ("incomplete", "content_filter")


async def test_inference_starts_before_the_verdict_and_nothing_leaves_before_it(
    open_doors: OpenDoors, classifier: Classifier
) -> None:
    doors = await open_doors(remote(classifier))
    classifier.gate.clear()
    peer = await doors.peer()
    await peer.send(create=asking("a question"), request_id="1")
    await peer.until("created")
    sampling = await doors.sampling()
    async with asyncio.timeout(5):
        await classifier.arrived.wait()
    doors.say(sampling, "an ", "answer")
    await taken(peer)
    assert peer.text == ""
    assert "output_item_added" not in kinds(peer.seen)
    classifier.gate.set()
    doors.engine.finish(0)
    done = await peer.until("done")
    assert done.reason == DoneReason.DONE_REASON_COMPLETED
    assert peer.text == "an answer"
    assert classifier.bodies == [{"input": ["a question"]}]
    assert classifier.headers[0]["Authorization"] == "Bearer secret-key"


async def test_a_late_flag_of_the_input_fails_the_response_and_frees_the_engine(
    open_doors: OpenDoors, classifier: Classifier
) -> None:
    doors = await open_doors(remote(classifier))
    classifier.gate.clear()
    asked = asyncio.create_task(doors.post(input="please flagme", stream=True))
    sampling = await doors.sampling()
    doors.say(sampling, "of course")
    classifier.gate.set()
    events = await doors.events(await asked)
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "bio_policy"
    assert sampling.aborted


async def test_the_last_words_of_the_turn_before_are_sent_with_the_new_ones_and_nothing_else(
    open_doors: OpenDoors, classifier: Classifier
) -> None:
    doors = await open_doors(remote(classifier) + "overlap = 5\n")
    peer = await doors.peer()
    await peer.send(create=asking("a long first question"), request_id="1")
    response = (await peer.until("created")).response.id
    doors.say(await doors.sampling(), "answer")
    doors.engine.finish(0)
    await peer.until("done")
    await peer.send(create=asking("and more", previous_response_id=response), request_id="2")
    await doors.sampling(2)
    doors.engine.finish(1)
    await peer.until("done")
    assert [body["input"] for body in classifier.bodies] == [["a long first question"], ["stion\nand more"]]


async def test_output_is_classified_elsewhere_in_pieces_while_it_comes(
    open_doors: OpenDoors, classifier: Classifier
) -> None:
    doors = await open_doors(remote(classifier, direction="output") + "check_every = 10\noverlap = 4\n")
    peer = await doors.peer()
    await peer.send(create=asking(), request_id="1")
    sampling = await doors.sampling()
    doors.say(sampling, "0123456789")
    await peer.until("output_text_delta")
    doors.say(sampling, "abc", " flagme now")
    done = await peer.until("done")
    assert done.incomplete_details.reason == "content_filter"
    assert sampling.aborted
    assert peer.text == "0123456789"
    assert [body["input"] for body in classifier.bodies] == [["0123456789"], ["6789abc flagme now"]]


@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_a_classifier_that_hangs_is_not_waited_for_longer_than_configured(
    open_doors: OpenDoors, classifier: Classifier, on_failure: str
) -> None:
    doors = await open_doors(remote(classifier, timeout="50ms", on_failure=on_failure))
    classifier.gate.clear()
    asked = asyncio.create_task(doors.post())
    sampling = await doors.sampling()
    doors.say(sampling, "an answer")
    if on_failure == "open":
        doors.engine.finish(0)
    body = await (await asked).json()
    if on_failure == "open":
        assert body["output"][0]["content"][0]["text"] == "an answer"
    else:
        assert body["error"]["code"] == "server_error"
        assert sampling.aborted
    labels = {"kind": "timeout", "outcome": on_failure}
    assert doors.metric("turnwire_classifier_failures_total", **labels) == 1


def held(**more: Any) -> ResponseCreate:
    tools = ToolSet(tools=[Tool(function=FunctionTool(name="f"))])
    return asking(hold=True, tools=tools, **more)


def output(text: str) -> Item:
    return Item(function_call_output=FunctionCallOutput(call_id="call_1", output=ToolOutput(text=text)))


async def test_a_flagged_append_is_refused_and_another_is_taken(open_doors: OpenDoors) -> None:
    doors = await open_doors(RULES)
    peer = await doors.peer()
    await peer.send(create=held(), request_id="1")
    response = (await peer.until("created")).response.id
    sampling = await doors.sampling()
    doors.call(sampling, "f", "call_1")
    doors.engine.finish(0)
    await peer.until("done")
    await peer.send(append=ResponseAppend(response_id=response, input=[output("a pipe bomb")]), request_id="2")
    assert (await peer.until("rejected")).error.code == "invalid_prompt"
    # Large ones are looked at beside the loop.
    large = "plain words and nothing else, " * 3_000 + "a pipe bomb" + " and more" * 3_000
    await peer.send(append=ResponseAppend(response_id=response, input=[output(large)]), request_id="3")
    assert (await peer.until("rejected")).error.code == "invalid_prompt"
    await peer.send(append=ResponseAppend(response_id=response, input=[output("nothing")]), request_id="4")
    await peer.until("appended")
    await doors.sampling(2)


async def test_observing_stops_nothing_and_tells_of_it_in_metadata(open_doors: OpenDoors) -> None:
    doors = await open_doors('mode = "observe"\n' + RULES)
    asked = asyncio.create_task(doors.post(input="break into a server", metadata={"mine": "1"}))
    doors.say(await doors.sampling(), "with a pi", "pe bomb")
    doors.engine.finish(0)
    body = await (await asked).json()
    assert body["status"] == "completed"
    assert body["output"][0]["content"][0]["text"] == "with a pipe bomb"
    assert body["metadata"] == {"mine": "1", "turnwire_flags": "intrusion,weapons"}
    assert doors.metric("turnwire_flags_total", category="weapons", direction="output", action="counted") == 1


async def test_nothing_of_what_was_flagged_is_logged(
    open_doors: OpenDoors, classifier: Classifier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    doors = await open_doors(RULES + remote(classifier, timeout="50ms"))
    classifier.gate.clear()
    await doors.post(input="a pipe bomb with a secretword")
    asked = asyncio.create_task(doors.post(input="another secretword"))
    await doors.sampling()
    await (await asked).read()
    assert "flagged: response resp_" in caplog.text
    assert "the remote classifier did not answer: timeout" in caplog.text
    for said in ("secretword", "pipe bomb", "secret-key"):
        assert said not in caplog.text


async def test_what_is_guarded_costs_nothing_that_others_wait_for(
    open_doors: OpenDoors, classifier: Classifier
) -> None:
    doors = await open_doors(remote(classifier))
    classifier.gate.clear()
    peer = await doors.peer()
    await peer.send(create=asking("slow"), request_id="1", lane="a")
    await doors.sampling()
    async with asyncio.timeout(5):
        await classifier.arrived.wait()
    classifier.gate.set()
    await peer.send(create=asking("quick"), request_id="2", lane="b")
    doors.say(await doors.sampling(2), "well")
    doors.engine.finish(1)
    assert (await peer.until("done")).reason == DoneReason.DONE_REASON_COMPLETED


async def test_bare_tokens_leave_at_once_where_nothing_is_in_question(open_doors: OpenDoors) -> None:
    doors: Doors = await open_doors(RULES)
    peer = await doors.peer()
    await peer.send(create=asking(), request_id="1")
    sampling = await doors.sampling()
    for word in ("Nothing", " of", " this", " is", " in", " question"):
        doors.say(sampling, word)
        assert (await peer.until("output_text_delta")).delta == word


async def test_a_compaction_waits_for_the_verdict(open_doors: OpenDoors, classifier: Classifier) -> None:
    doors = await open_doors(remote(classifier))

    async def compacted(text: str) -> list[dict[str, Any]]:
        turns = [{"role": role, "content": f"{text} {n} " * 50} for n in range(4) for role in ("user", "assistant")]
        asked = [*turns, {"role": "user", "content": "and now?"}, {"type": "compaction_trigger"}]
        return await doors.events(await doors.post(input=asked, stream=True))

    events = await compacted("please flagme")
    assert events[-1]["type"] == "response.failed"
    assert "compaction" not in {event.get("item", {}).get("type") for event in events}
    assert not doors.services.visits.items["compact"]
    events = await compacted("well")
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"][0]["type"] == "compaction"
