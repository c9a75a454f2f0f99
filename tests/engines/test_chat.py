"""The chat engine against a real llama.cpp, over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from turnwire.client import ResponseFailedError
from turnwire.client.session import Session
from turnwire.client.stream import ResponseStream
from turnwire.server.engine.chat.config import ChatEngineConfig
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.v1.response_pb2 import Response, ResponseStatus

PATIENCE = 50

ADD: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 0, "maximum": 9},
            "b": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}

ENDLESS: dict[str, Any] = {
    "format": {
        "type": "json_schema",
        "name": "numbers",
        "schema": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 900},
    }
}


async def create(session: Session, **fields: Any) -> ResponseStream:
    options: dict[str, Any] = {"model": "small", "temperature": 0, "max_output_tokens": 16, "stop": ["\nQuestion:"]}
    return await session.create(**(options | fields))


async def ask(session: Session, **fields: Any) -> Response:
    async with asyncio.timeout(PATIENCE):
        return await (await create(session, **fields)).get_final_response()


def exchange(number: int) -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": f"c{number}", "name": "add", "arguments": f'{{"a": {number}, "b": 1}}'}
    output = {"type": "function_call_output", "call_id": f"c{number}", "output": str(number + 1)}
    return [{"role": "user", "content": f"{number} + 1 = ?"}, call, output, {"role": "assistant", "content": "Done."}]


async def test_the_models_are_those_of_the_server(llama_url: str) -> None:
    engine = ChatEngine(ChatEngineConfig(llama_url, flavour="llamacpp"))
    try:
        assert await engine.open() is None
        assert len(engine.models()) == 1
    finally:
        await engine.aclose()


async def test_text_streams_and_usage_tells_what_was_cached(chat_session: Session) -> None:
    story = "The ship sailed seven miles and saw three birds. " * 20
    async with asyncio.timeout(PATIENCE):
        stream = await create(chat_session, input=story)
        deltas = [delta async for delta in stream.text_deltas()]
        first = await stream.get_final_response()
    assert stream.output_text == "".join(deltas)
    assert len(deltas) > 1
    assert first.usage.output_tokens <= 16
    second = await ask(chat_session, input="Go on.", previous_response_id=first.id)
    assert second.usage.input_tokens > first.usage.input_tokens > 150
    assert second.usage.input_tokens_details.cached_tokens > 150


async def test_an_answer_keeps_to_its_schema(chat_session: Session) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    text = {"format": {"type": "json_schema", "name": "place", "schema": schema, "strict": True}}
    async with asyncio.timeout(PATIENCE):
        stream = await create(chat_session, input="Name a city.", text=text, max_output_tokens=200)
        await stream.get_final_response()
    jsonschema.validate(json.loads(stream.output_text), schema)


async def test_a_call_in_the_templates_own_format_is_a_call(chat_session: Session) -> None:
    # Nothing holds a model to calling; three examples convince even this one.
    items = [each for number in (1, 2, 3, 4) for each in exchange(number)]
    async with asyncio.timeout(PATIENCE):
        stream = await create(
            chat_session,
            input=[*items, {"role": "user", "content": "5 + 1 = ?"}],
            tools=[ADD],
            max_output_tokens=60,
        )
        response = await stream.get_final_response()
    calls = [item.function_call for item in response.output if item.HasField("function_call")]
    assert calls
    assert calls[0].name == "add"
    jsonschema.validate(json.loads(calls[0].arguments), ADD["parameters"])


LOOK: dict[str, Any] = {
    "type": "function",
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"at": {"enum": ["stars", "birds"]}},
        "required": ["at"],
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"add", "look"}), ({"type": "function", "name": "look"}, {"look"})],
    ids=["any", "one"],
)
async def test_a_call_that_has_to_be_made_is_made(chat_session: Session, choice: Any, names: set[str]) -> None:
    # Nobody showed the model how, and nothing was asked that a call would answer.
    async with asyncio.timeout(PATIENCE):
        stream = await create(
            chat_session, input="Tell me a story.", tools=[ADD, LOOK], tool_choice=choice, max_output_tokens=200
        )
        response = await stream.get_final_response()
    [item] = response.output
    assert item.function_call.name in names
    schemas = {tool["name"]: tool["parameters"] for tool in (ADD, LOOK)}
    jsonschema.validate(json.loads(item.function_call.arguments), schemas[item.function_call.name])


async def test_a_free_text_tool_that_has_to_be_called_is_called(chat_session: Session) -> None:
    tools = [{"type": "custom", "name": "note", "description": "Takes a note."}]
    async with asyncio.timeout(PATIENCE):
        response = await ask(
            chat_session, input="Hi.", tools=tools, tool_choice={"type": "custom", "name": "note"}, max_output_tokens=60
        )
    [item] = response.output
    assert item.custom_tool_call.name == "note"


async def test_an_overflow_of_the_context_is_named(chat_session: Session) -> None:
    with pytest.raises(ResponseFailedError) as caught:
        await ask(chat_session, input="word " * 2500)
    assert caught.value.code == "context_length_exceeded"


async def test_a_cancel_frees_the_server(chat_session: Session, chat_engine: ChatEngine) -> None:
    async with asyncio.timeout(PATIENCE):
        streams = [
            await create(chat_session, lane=lane, input="Count.", text=ENDLESS, max_output_tokens=1900) for lane in "ab"
        ]
        for stream in streams:
            async for _ in stream.text_deltas():
                break
        for stream in streams:
            await stream.cancel()
        await ask(chat_session, lane="c", input="Hello?")
    assert chat_engine.running == 0
    assert all(
        stream.response.status == ResponseStatus.RESPONSE_STATUS_CANCELLED and len(stream.output_text) < 1800
        for stream in streams
    )
