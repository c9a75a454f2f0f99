"""The local engine through a whole server: text, state, calls, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from turnwire.client import RequestRejectedError, ResponseFailedError, function_call_output
from turnwire.client.session import Session
from turnwire.client.stream import ResponseStream
from turnwire.server.engine.local.config import LocalConfig, LocalEngineError
from turnwire.server.engine.local.engine import LocalEngine
from turnwire.server.engine.local.llama import LlamaServer
from turnwire.server.engine.local.model import find_model
from turnwire.server.engine.local.speech import Speech
from turnwire.server.engine.local.vocabulary import LlamaTokenizer
from turnwire.server.prompt.template import TemplateRenderer
from turnwire.v1.response_pb2 import Response, ResponseStatus

MODEL = "gemma-3-270m"
PATIENCE = 50

STORY = " ".join(f"On day {day} the ship sailed {day * 7} miles and saw {day * 3} birds." for day in range(1, 25))
"""Several hundred tokens."""

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
ADD: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/digit"}, "b": {"$ref": "#/$defs/digit"}},
        "required": ["a", "b"],
        "additionalProperties": False,
        "$defs": {"digit": {"type": "integer", "minimum": 0, "maximum": 9}},
    },
}
TOOLS = [WEATHER, ADD]

ENDLESS: dict[str, Any] = {
    "format": {
        "type": "json_schema",
        "name": "numbers",
        "schema": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 900},
    }
}
"""Keeps the model at it for 1,800 tokens: only a cancel ends that within a test's time."""


async def create(session: Session, **fields: Any) -> ResponseStream:
    options: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 16}
    return await session.create(**(options | fields))


async def ask(session: Session, **fields: Any) -> Response:
    async with asyncio.timeout(PATIENCE):
        return await (await create(session, **fields)).get_final_response()


def computed(response: Response) -> int:
    """Tokens of the prompt that were not kept from before."""
    return response.usage.input_tokens - response.usage.input_tokens_details.cached_tokens


def text_of(response: Response) -> str:
    return "".join(part.output_text.text for item in response.output for part in item.message.content.parts.parts)


def calls_of(response: Response) -> list[tuple[str, Any]]:
    return [
        (item.function_call.name, json.loads(item.function_call.arguments))
        for item in response.output
        if item.HasField("function_call")
    ]


async def test_text_comes_in_pieces_and_tokens_are_counted(session: Session) -> None:
    async with asyncio.timeout(PATIENCE):
        stream = await create(session, input="What is the capital of France?", max_output_tokens=30)
        deltas = [delta async for delta in stream.text_deltas()]
        response = await stream.get_final_response()
    assert text_of(response) == "".join(deltas)
    assert response.status in (
        ResponseStatus.RESPONSE_STATUS_COMPLETED,
        ResponseStatus.RESPONSE_STATUS_INCOMPLETE,
    )
    assert 0 < response.usage.output_tokens <= 30
    assert len(deltas) <= response.usage.output_tokens
    assert response.usage.input_tokens > 5


async def test_the_limit_of_output_is_kept(session: Session) -> None:
    response = await ask(session, input="Count to a thousand.", text=ENDLESS, max_output_tokens=16)
    assert response.status == ResponseStatus.RESPONSE_STATUS_INCOMPLETE
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 16


async def test_a_turn_computes_only_what_is_new(session: Session, engine: LocalEngine) -> None:
    response = await ask(session, input=f"{STORY} What happened on day 1?")
    first = response.usage.input_tokens
    assert first > 400
    for day in range(2, 8):
        response = await ask(session, input=f"And on day {day}?", previous_response_id=response.id)
        # The question, and at most the answer before it, should it read otherwise than it was sampled.
        assert computed(response) <= 40
    assert response.usage.input_tokens > first + 60
    assert engine.slots.stayed == 6


async def test_a_late_turn_gives_the_tokenizer_only_what_is_new(session: Session, speech: Speech) -> None:
    renderer = speech.chains.renderer
    assert isinstance(renderer, TemplateRenderer)
    assert isinstance(renderer.tokenizer, LlamaTokenizer)
    response = await ask(session, input=f"{STORY} What happened on day 1?")
    for day in range(2, 12):
        before = renderer.tokenizer.tokenized
        response = await ask(session, input=f"And on day {day}?", previous_response_id=response.id)
        # The question, the answer before it, and what stands around them.
        assert renderer.tokenizer.tokenized - before <= 150
    assert response.usage.input_tokens > 650


async def test_a_conversation_is_answered_as_llamas_own_chat_answers_it(session: Session, chatting: Session) -> None:
    found: list[list[object]] = []
    for each in (session, chatting):
        said: list[object] = []
        last = None
        for question in ("What is the capital of France?", "And of Spain?", "Naïve 日本語 🫨?"):
            response = await ask(each, instructions="Be brief.", input=question, previous_response_id=last)
            said.append((text_of(response), response.status, response.usage.input_tokens, response.usage.output_tokens))
            last = response.id
        call = await ask(
            each, input="Add 1 and 2.", tools=[ADD], tool_choice="required", max_output_tokens=80, lane="calls"
        )
        found.append([*said, calls_of(call)[0][0]])
    assert found[0] == found[1]


async def test_text_that_reads_like_a_control_token_is_text(session: Session) -> None:
    plain = await ask(session, input="And?")
    marked = await ask(session, input="And<end_of_turn>?")
    # A control token would be one.
    assert marked.usage.input_tokens > plain.usage.input_tokens + 4


async def test_characters_of_several_tokens_arrive_whole(session: Session) -> None:
    text = {"format": {"type": "json_schema", "name": "x", "schema": {"const": "🫨🪼 naïve"}}}
    response = await ask(session, input="Repeat: 🫨🪼 naïve", text=text, max_output_tokens=40)
    assert json.loads(text_of(response)) == "🫨🪼 naïve"


async def test_chains_do_not_take_each_others_state(session: Session, engine: LocalEngine) -> None:
    lanes = ("one", "two")
    last = {lane: await ask(session, lane=lane, input=f"I am {lane}. {STORY}") for lane in lanes}
    for _ in range(3):
        for lane in lanes:
            last[lane] = await ask(session, lane=lane, input="Go on.", previous_response_id=last[lane].id)
            assert computed(last[lane]) <= 40
    assert engine.slots.evicted == 0


async def test_a_fork_uses_its_parents_state(session: Session) -> None:
    parent = await ask(session, input=f"{STORY} Summarize.")
    for lane in ("left", "right"):
        fork = await ask(session, lane=lane, input=f"Go {lane}.", previous_response_id=parent.id)
        assert computed(fork) <= 40


async def test_a_chain_that_lost_its_slot_gets_its_state_back(session: Session, engine: LocalEngine) -> None:
    first = await ask(session, lane="0", input=f"Alpha. {STORY}")
    for lane in ("1", "2"):
        await ask(session, lane=lane, input=f"Number {lane}. {STORY}")
    assert engine.slots.evicted == 1
    again = await ask(session, lane="0", input="Go on.", previous_response_id=first.id)
    assert engine.slots.fresh == 4
    assert computed(again) <= 60


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("required", {"weather", "add"}),
        ({"type": "function", "name": "add"}, {"add"}),
        ({"type": "function", "name": "weather"}, {"weather"}),
    ],
)
async def test_a_forced_call_is_valid(session: Session, choice: object, allowed: set[str]) -> None:
    response = await ask(
        session, input="How warm is it in Oslo?", tools=TOOLS, tool_choice=choice, max_output_tokens=80
    )
    assert response.status == ResponseStatus.RESPONSE_STATUS_COMPLETED
    [(name, arguments)] = calls_of(response)
    assert name in allowed
    jsonschema.validate(arguments, {"weather": WEATHER, "add": ADD}[name]["parameters"])
    assert text_of(response) == ""


async def test_a_call_is_answered_in_a_held_response(session: Session) -> None:
    async with asyncio.timeout(PATIENCE):
        stream = await create(
            session,
            input=f"{STORY} How warm is it?",
            tools=[WEATHER],
            tool_choice={"type": "function", "name": "weather"},
            max_output_tokens=80,
            hold=True,
        )
        first = [call async for call in stream.calls()]
        await stream.append([function_call_output(call.call_id, "12 degrees") for call in first])
        second = [call async for call in stream.calls()]
        usage = stream.usage
        assert usage is not None
        # Both passes were asked the whole prompt; the second computed little of it.
        assert usage.input_tokens_details.cached_tokens > usage.input_tokens / 2 - 150
        await stream.cancel()
    assert len(first) == len(second) == 1


async def test_an_answer_keeps_to_its_schema(session: Session) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "large": {"type": "boolean"}},
        "required": ["city", "large"],
        "additionalProperties": False,
    }
    text = {"format": {"type": "json_schema", "name": "place", "schema": schema, "strict": True}}
    response = await ask(session, input="Name a city.", text=text, max_output_tokens=200)
    jsonschema.validate(json.loads(text_of(response)), schema)


async def test_log_probabilities_come_with_the_tokens(session: Session) -> None:
    response = await ask(
        session,
        input="What is the capital of France?",
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        max_output_tokens=16,
    )
    [item] = response.output
    logprobs = item.message.content.parts.parts[0].output_text.logprobs
    assert "".join(each.token for each in logprobs).startswith(text_of(response))
    assert all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in logprobs)


async def test_lanes_share_the_model(session: Session) -> None:
    order: list[str] = []
    note = order.append

    async def run(lane: str) -> None:
        stream = await create(session, lane=lane, input=f"Count, {lane}.", text=ENDLESS, max_output_tokens=40)
        async for _ in stream.text_deltas():
            note(lane)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for lane in ("a", "b", "c"):
            group.create_task(run(lane))
    # Two at a time, token by token; the third after one of them.
    starts = {lane: order.index(lane) for lane in "abc"}
    ends = {lane: len(order) - order[::-1].index(lane) for lane in "abc"}
    first, second, third = sorted("abc", key=lambda lane: starts[lane])
    assert starts[second] < ends[first]
    assert starts[third] >= min(ends[first], ends[second])


async def test_a_cancel_frees_the_slot(session: Session, engine: LocalEngine) -> None:
    async with asyncio.timeout(PATIENCE):
        streams = [
            await create(session, lane=lane, input="Count.", text=ENDLESS, max_output_tokens=1900) for lane in "ab"
        ]
        for stream in streams:
            async for _ in stream.text_deltas():
                break
        waiting = await create(session, lane="c", input="Hello?")
        for stream in streams:
            await stream.cancel()
        await waiting.get_final_response()
        assert engine.running == 0
    for stream in streams:
        assert stream.response.status == ResponseStatus.RESPONSE_STATUS_CANCELLED
        assert len(stream.output_text) < 1800


async def test_a_cancel_cuts_a_prefill_short(session: Session) -> None:
    words = " ".join(f"word{number}" for number in range(450))
    async with asyncio.timeout(PATIENCE):
        stream = await create(session, lane="a", input=words)
        await stream.cancel()
    # What the slot knows of the prompt now is as far as the prefill came.
    response = await ask(session, lane="a", input=words)
    assert response.usage.input_tokens > 1000
    assert computed(response) > 200


async def test_an_overflow_of_the_context_leaves_the_session_alive(session: Session) -> None:
    # Counted before it is begun, since its ids are known here.
    with pytest.raises(RequestRejectedError) as caught:
        await ask(session, input="word " * 2500)
    assert caught.value.code == "context_length_exceeded"
    await ask(session, input="Hello?")


@pytest.mark.parametrize("schema", [{"$ref": "#/$defs/none"}, {"not": {"type": "string"}}])
async def test_a_schema_that_llama_cannot_follow_is_refused(session: Session, schema: dict[str, Any]) -> None:
    with pytest.raises(ResponseFailedError) as caught:
        await ask(session, input="Hello?", text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
    assert caught.value.code == "invalid_request_error"
    await ask(session, input="Hello?")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    config = LocalConfig(model=path, slots=1, context=512)
    with pytest.raises(LocalEngineError, match="damaged"):
        LlamaServer(config, find_model(config))
