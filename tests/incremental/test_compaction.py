"""Conversations that the server compacts by itself: told in the stream, shorter afterwards, the newest kept."""

from __future__ import annotations

from typing import Any

import pytest

from turnwire.server.engine.port import Engine
from turnwire.server.runtime.services import Services
from turnwire.server.session.state import State
from turnwire.server.testing import make_services
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import DoneReason, Verbosity

from .fakes import LOOP, LoopingTokens, scripted_engine, token_engine
from .talk import Resender, Talk, body_of, calls_of, output_for, public

RULE: list[dict[str, Any]] = [{"type": "compaction", "compact_threshold": 1_000}]
LONG = "result " * 200
TRIGGER = {"type": "compaction_trigger"}


@pytest.fixture
async def services() -> Services:
    return make_services([scripted_engine(LOOP)])


def compactions(items: Any) -> list[Item]:
    return [item for item in items if item.HasField("compaction")]


def newest_state(talk: Talk) -> State:
    state = talk.runner.session.find(talk.response_id)
    assert state is not None
    return state


async def test_a_chain_over_its_threshold_is_compacted_again_and_again(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input="look at everything", context_management=RULE)
    sizes: list[int] = []
    compacted = 0
    for _ in range(30):
        done = await talk.create(input=[output_for(calls_of(done)[0], LONG)], context_management=RULE)
        sizes.append(done.usage.input_tokens)
        compacted += len(compactions(done.output))
        assert done.output[-1].HasField("function_call")
    assert max(sizes) < 1_300
    assert min(sizes[10:]) < 700
    assert 3 <= compacted <= 15
    state = newest_state(talk)
    items = [entry.item() for entry in state.transcript.walk()]
    # What the user asked stays word for word.
    assert items[0].message.content.text == "look at everything"
    assert services.visits.items["compact"] < 30 * 40
    talk.leave()


async def test_the_stream_tells_it_in_order(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input="look", context_management=RULE)
    for _ in range(5):
        create = body_of(
            input=[output_for(calls_of(done)[0], LONG)],
            previous_response_id=talk.response_id,
            context_management=RULE,
        )
        create.verbosity = Verbosity.VERBOSITY_FULL
        talk.events.clear()
        done = await talk.send(ConnectRequest(create=create))
        done.output.extend(event.output_item_done.item for event in talk.events if event.HasField("output_item_done"))
        if compactions(done.output):
            break
    kinds = [event.WhichOneof("event") for event in talk.events]
    assert kinds[:5] == ["created", "in_progress", "output_item_added", "compaction_compacting", "output_item_done"]
    added, done_item = talk.events[2].output_item_added, talk.events[4].output_item_done
    assert added.output_index == done_item.output_index == 0
    assert added.item.compaction.id == done_item.item.compaction.id
    assert done_item.item.compaction.encrypted_content
    assert not added.item.compaction.encrypted_content
    # What the model says follows it.
    assert [event.output_item_done.output_index for event in talk.events if event.HasField("output_item_done")][:2] == [
        0,
        1,
    ]
    talk.leave()


async def test_a_held_response_is_compacted_at_a_pause_and_shows_all_it_said(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input="look", hold=True, context_management=RULE)
    said = len(done.output)
    outputs = 0
    for _ in range(12):
        assert done.reason == DoneReason.DONE_REASON_TOOL_CALLS
        done = await talk.append(calls_of(done)[0], LONG)
        said += len(done.output)
        outputs += 1
    state = newest_state(talk)
    shown = [entry.sent() for entry in state.output]
    assert len(shown) == said + outputs
    assert compactions(shown)
    assert state.transcript.tokens < 1_300
    # It goes on like any other, held or not.
    done = await talk.append(calls_of(done)[0])
    await talk.create(input=[output_for(calls_of(done)[0])])
    talk.leave()


async def test_open_calls_and_the_newest_input_stay_word_for_word(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input="first question")
    for _ in range(8):
        done = await talk.create(input=[output_for(calls_of(done)[0], LONG)])
    call = calls_of(done)[0]
    done = await talk.create(
        input=[output_for(call, "the newest"), {"role": "user", "content": "and now?"}], context_management=RULE
    )
    assert len(compactions(done.output)) == 1
    items = [entry.sent() for entry in newest_state(talk).transcript.walk()]
    kinds = [item.WhichOneof("kind") for item in items]
    assert kinds == [
        "message",
        "compaction",
        "function_call",
        "function_call_output",
        "message",
        "reasoning",
        "function_call",
    ]
    assert items[2].function_call.call_id == items[3].function_call_output.call_id == call
    assert items[3].function_call_output.output.text == "the newest"
    assert items[4].message.content.text == "and now?"
    talk.leave()


async def test_a_trigger_at_the_end_compacts_and_asks_nothing_of_the_model(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input="look")
    for _ in range(6):
        done = await talk.create(input=[output_for(calls_of(done)[0], LONG)])
    done = await talk.create(input=[output_for(calls_of(done)[0], "short"), TRIGGER])
    assert [item.WhichOneof("kind") for item in done.output] == ["compaction"]
    assert done.usage.output_tokens == 0
    state = newest_state(talk)
    assert state.transcript.tokens < 1_300
    assert services.visits.items["compact"] == 23
    done = await talk.create(input="go on")
    assert done.output[-1].HasField("function_call")
    talk.leave()


async def test_a_trigger_without_anything_to_compact_is_no_error(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input=[{"role": "user", "content": "hi"}, TRIGGER])
    assert (done.reason, list(done.output)) == (DoneReason.DONE_REASON_COMPLETED, [])
    talk.leave()


async def test_a_trigger_at_the_end_asks_nothing_of_the_model_when_it_is_sent_again(services: Services) -> None:
    ends: dict[tuple[int, int], list[str | None]] = {}
    requests: list[list[dict[str, Any]]] = [[], [{"role": "user", "content": "hi"}]]
    for rest in requests:
        for attempt in range(2):
            talk = Talk(services)
            done = await talk.create(input=[*rest, TRIGGER], store=False)
            ends[len(rest), attempt] = [item.WhichOneof("kind") for item in done.output]
            assert done.usage.output_tokens == 0
            talk.leave()
    assert not any(ends.values())
    assert len(ends) == 4


async def test_a_trigger_that_was_obeyed_is_not_obeyed_again_when_it_is_resent(services: Services) -> None:
    client = Resender(services)
    done = await client.turn({"role": "user", "content": "look"})
    for _ in range(4):
        done = await client.turn(output_for(calls_of(done)[0], LONG))
    done = await client.turn(output_for(calls_of(done)[0], LONG), TRIGGER)
    assert len(compactions(done.output)) == 1
    done = await client.turn({"role": "user", "content": "go on"})
    for known in (True, True, False, False):
        assert not compactions(done.output)
        if not known:
            services.conversations = None
        done = await client.turn(output_for(calls_of(done)[0], "short"))
    assert not compactions(done.output)


async def test_who_resends_the_item_needs_nothing_that_came_before_it(services: Services) -> None:
    client = Resender(services)
    done = await client.turn({"role": "user", "content": "find the blue door"})
    for _ in range(8):
        done = await client.turn(output_for(calls_of(done)[0], LONG), context_management=RULE)
    at = max(index for index, item in enumerate(client.history) if item.get("type") == "compaction")
    # Everything: known by what the client has seen, and as short as the chain is.
    whole = await client.turn(output_for(calls_of(done)[0], "short"), context_management=RULE)
    assert whole.usage.input_tokens < 1_300
    # The item and what follows.
    talk = Talk(services)
    rest = [*client.history[at:], output_for(calls_of(whole)[0], "short")]
    missing = {item["call_id"] for item in rest if item.get("type") == "function_call_output"}
    missing -= {item["call_id"] for item in rest if item.get("type") == "function_call"}
    rest = [item for item in rest if item.get("call_id") not in missing]
    await talk.create(input=rest, store=False)
    prompt = [entry.item() for entry in newest_state(talk).transcript.walk()]
    assert "user: find the blue door" in prompt[0].message.content.text
    talk.leave()


async def test_token_prompts_become_shorter_too() -> None:
    tokens = LoopingTokens()
    engine: Engine = token_engine(tokens)
    services = make_services([engine])
    talk = Talk(services)
    done = await talk.create(input="look", context_management=RULE)
    for _ in range(20):
        done = await talk.create(input=[output_for(calls_of(done)[0], LONG)], context_management=RULE)
    assert max(tokens.lengths) < 2_000
    assert tokens.lengths != sorted(tokens.lengths)
    talk.leave()
    await engine.aclose()


async def test_a_response_that_is_cancelled_meanwhile_hears_no_more_of_it(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input="look")
    for _ in range(8):
        done = await talk.create(input=[output_for(calls_of(done)[0], LONG * 20)])
    create = body_of(
        input=[output_for(calls_of(done)[0], LONG)], previous_response_id=talk.response_id, context_management=RULE
    )
    request = ConnectRequest(create=create, request_id="r")
    talk.runner.receive(request, request.ByteSize())
    cancel = ConnectRequest()
    cancel.cancel.target_request_id = "r"
    done = await talk.send(cancel)
    assert done.reason == DoneReason.DONE_REASON_CANCELLED
    done = await talk.create(
        input=[output_for(calls_of(await last_good(talk))[0], "short")],
        previous_response_id=create.previous_response_id,
    )
    assert done.output[-1].HasField("function_call")
    talk.leave()


async def last_good(talk: Talk) -> Any:
    return next(
        event.done
        for event in reversed(talk.events)
        if event.HasField("done") and event.done.reason == DoneReason.DONE_REASON_COMPLETED
    )


async def test_what_the_seal_holds_is_read_back_as_public_json(services: Services) -> None:
    talk = Talk(services)
    done = await talk.create(input="look")
    done = await talk.create(input=[output_for(calls_of(done)[0], LONG)])
    done = await talk.create(input=[output_for(calls_of(done)[0], LONG), TRIGGER])
    (item,) = public(done.output)
    assert item["type"] == "compaction"
    assert item["id"].startswith("cmp_")
    talk.leave()
