"""Clients that send their history with each request pay for what is new, and notice nothing but that."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from turnwire.server.runtime.local import LocalCaller
from turnwire.server.runtime.services import Services
from turnwire.server.session.conversations import ConversationLimits, Conversations
from turnwire.server.session.effects import Prepare
from turnwire.server.session.settings import effective, input_items
from turnwire.server.testing import ManualClock, make_services
from turnwire.v1.errors import RequestError

from .fakes import LOOP, LoopingTokens, scripted_engine, token_engine
from .talk import Resender, Talk, body_of, calls_of, output_for, public

SAYS = """
[model]
names = ["m", "other"]
[[turn]]
reasoning = "Think once."
text = "one"
[[turn]]
reasoning = "Think twice."
text = "two"
[[turn]]
text = "three"
"""


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def cached(services: Services, items: list[dict[str, Any]], **body: Any) -> int:
    """Sends a request of its own and returns how many tokens of its input were known."""
    talk = Talk(services, body.pop("principal", ""))
    done = await talk.create(input=items, store=False, **body)
    talk.leave()
    return done.usage.input_tokens_details.cached_tokens


@pytest.fixture
async def services() -> Services:
    return make_services([scripted_engine(SAYS)])


async def spoken(services: Services, turns: int = 2) -> list[dict[str, Any]]:
    client = Resender(services)
    for number in range(turns):
        await client.turn(user(f"say {number}"))
    return client.history


async def test_a_history_is_known_in_every_form_that_clients_send_it_in(services: Services) -> None:
    history = await spoken(services)
    whole = await cached(services, [*history, user("next")])
    assert whole > 0
    assert await cached(services, [*history, user("other")]) == whole
    bare = copy.deepcopy(history)
    for item in bare:
        for key in ("id", "status"):
            item.pop(key, None)
    assert await cached(services, [*bare, user("next")]) == whole
    easy = [
        {"role": "assistant", "content": item["content"][0]["text"]} if item.get("role") == "assistant" else item
        for item in bare
    ]
    assert await cached(services, [*easy, user("next")]) == whole
    sealed = [
        {key: value for key, value in item.items() if key != "content"} if item.get("type") == "reasoning" else item
        for item in easy
    ]
    assert await cached(services, [*sealed, user("next")]) == whole


async def test_a_history_without_its_reasoning_is_another(services: Services) -> None:
    history = await spoken(services)
    dropped = [item for item in history if item.get("type") != "reasoning"]
    assert await cached(services, [*dropped, user("next")]) == 0


async def test_a_single_changed_character_is_never_matched(services: Services) -> None:
    history = await spoken(services)
    first_turn = await cached(services, [*history[:3], user("another way")])
    for index, item in enumerate(history):
        changed = copy.deepcopy(history)
        if isinstance(item["content"], str):
            changed[index]["content"] += "."
        else:
            changed[index]["content"][0]["text"] += "."
        # A change in the second turn leaves the first one known.
        expected = 0 if index < 3 else first_turn
        assert await cached(services, [*changed, user("next")]) == expected


async def test_usage_says_what_explicit_chaining_says(services: Services) -> None:
    chained = Talk(services)
    await chained.create(input="say 0")
    explicit = await chained.create(input="say 1")
    client = Resender(services)
    await client.turn(user("say 0"))
    implicit = await client.turn(user("say 1"))
    assert implicit.usage == explicit.usage
    assert implicit.usage.input_tokens_details.cached_tokens > 0
    chained.leave()


async def test_the_answer_is_that_of_a_request_that_knows_nothing() -> None:
    outputs: list[list[dict[str, Any]]] = []
    for known in (True, False):
        services = make_services([scripted_engine(SAYS)])
        if not known:
            services.conversations = None
        client = Resender(services)
        for number in range(3):
            await client.turn(user(f"say {number}"))
        outputs.append([item["content"] for item in client.history])
        assert (services.visits.items["validate"] == 3) == known
    assert outputs[0] == outputs[1]


async def test_nobody_is_matched_with_what_others_said(services: Services) -> None:
    history = await spoken(services)
    assert await cached(services, [*history, user("next")], principal="eve") == 0
    assert await cached(services, [*history, user("next")]) > 0


async def test_another_model_is_another_conversation(services: Services) -> None:
    history = await spoken(services)
    assert await cached(services, [*history, user("next")], model="other") == 0


async def test_the_response_names_no_previous_one_and_lists_what_it_was_sent(services: Services) -> None:
    history = await spoken(services)
    talk = Talk(services)
    done = await talk.create(input=[*history, user("next")])
    assert done.usage.input_tokens_details.cached_tokens > 0
    state = talk.runner.session.find(talk.response_id)
    assert state is not None
    assert state.parent_id == ""
    assert not state.response().previous_response_id
    listed = public(state.input_items())
    assert [item["content"] for item in listed] == [item["content"] for item in [*history, user("next")]]
    assert len(state.output) == len(done.output)
    # It can be continued from like any other.
    await talk.create(input="and then")
    talk.leave()


async def test_what_follows_is_checked_and_named_where_it_stands_in_the_request() -> None:
    services = make_services([scripted_engine(LOOP)])
    client = Resender(services)
    done = await client.turn(user("go"))
    good = output_for(calls_of(done)[0])
    bad = {"role": "user", "content": [{"type": "output_text", "text": "x"}]}
    with pytest.raises(RequestError) as refused:
        services.policy.prepare(prepare_of(services, [*client.history, good, bad]))
    assert refused.value.error.param.startswith("input[4].content[0]")


def prepare_of(services: Services, items: list[dict[str, Any]]) -> Prepare:
    create = body_of(input=items)
    settings, tools = effective(create, None, services.tool_sets)
    return Prepare(
        1,
        input_items(create.input),
        settings,
        tools,
        frozenset(),
        create.ByteSize(),
        visits=services.visits,
        conversations=services.conversations,
    )


async def test_an_unanswered_call_of_the_known_part_is_missed() -> None:
    services = make_services([scripted_engine(LOOP)])
    client = Resender(services)
    await client.turn(user("go"))
    with pytest.raises(RequestError) as refused:
        services.policy.prepare(prepare_of(services, [*client.history, user("never mind")]))
    assert refused.value.error.message.startswith("No tool output found for function call")


async def test_the_sampled_ids_of_what_is_known_are_not_said_anew() -> None:
    tokens = LoopingTokens()
    engine = token_engine(tokens)
    services = make_services([engine])
    client = Resender(services)
    done = await client.turn(user("go"))
    for _ in range(3):
        before = services.visits.items["render"]
        done = await client.turn(output_for(calls_of(done)[0]))
        assert services.visits.items["render"] - before == 1
    assert tokens.lengths == sorted(tokens.lengths)
    await engine.aclose()


async def test_what_is_known_is_bounded_in_number_in_bytes_and_in_time() -> None:
    limits = ConversationLimits(max_conversations=2, max_age=60.0)
    clock = ManualClock()
    services = make_services([scripted_engine(SAYS)], clock=clock)
    services.conversations = known = Conversations(bytes(32), limits)
    history = await spoken(services, 1)
    assert await spoken(services, 1) != history
    assert len(known) == 1
    for name in ("a", "b", "c"):
        talk = Talk(services)
        await talk.create(input=[user(name)])
        talk.leave()
    assert len(known) == 2
    assert known.kept_bytes > 0
    assert await cached(services, [*history, user("next")]) == 0
    clock.advance(61)
    known.expire(clock.now())
    assert (len(known), known.kept_bytes) == (0, 0)

    services.conversations = small = Conversations(bytes(32), ConversationLimits(max_bytes=10))
    await spoken(services, 1)
    assert (len(small), small.kept_bytes) == (0, 0)


async def test_who_goes_on_from_a_conversation_keeps_it_known() -> None:
    clock = ManualClock()
    services = make_services([scripted_engine(SAYS)], clock=clock)
    services.conversations = known = Conversations(bytes(32), ConversationLimits(max_age=60.0))
    history = await spoken(services, 1)
    for _ in range(4):
        clock.advance(40)
        assert await cached(services, [*history, user("next")]) > 0
    clock.advance(61)
    assert await cached(services, [*history, user("next")]) > 0
    known.expire(clock.now() + 61)
    assert len(known) == 0


async def test_a_pause_of_a_held_response_is_known_too() -> None:
    services = make_services([scripted_engine(LOOP)])
    talk = Talk(services)
    done = await talk.create(input=[user("go")], hold=True, store=False)
    (call,) = calls_of(done)
    history = [user("go"), *public(done.output), output_for(call)]
    assert await cached(services, history) > 0
    talk.leave()


async def test_what_was_deleted_is_known_no_more(services: Services) -> None:
    kept = await spoken(services, turns=1)
    talk = Talk(services)
    done = await talk.create(input=[user("a private matter")])
    again = [user("a private matter"), *public(done.output), user("next")]
    assert services.conversations is not None
    assert await cached(services, again)
    known = len(services.conversations)

    await LocalCaller(talk.room, "", "http").delete_response(talk.response_id)

    assert len(services.conversations) == known - 1
    assert await cached(services, again) == 0
    assert await cached(services, [*kept, user("next")])


async def test_the_pauses_of_a_deleted_response_are_known_no_more() -> None:
    services = make_services([scripted_engine(LOOP)])
    talk = Talk(services)
    done = await talk.create(input=[user("go")], hold=True)
    for _ in range(2):
        done = await talk.append(calls_of(done)[0])
    assert services.conversations is not None
    assert len(services.conversations) >= 3

    await LocalCaller(talk.room, "", "http").delete_response(talk.response_id)

    assert len(services.conversations) == 0
    assert services.conversations.kept_bytes == 0
