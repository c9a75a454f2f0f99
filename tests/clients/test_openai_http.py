"""The official SDK for Python over HTTP and SSE."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseCompletedEvent,
    ResponseCustomToolCall,
    ResponseFunctionToolCall,
    ResponseInputItemParam,
    ResponseOutputItem,
    ResponseReasoningItem,
    ResponseStreamEvent,
)
from pydantic import BaseModel

from .harness.server import Server

MODEL = "scripted"
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
CONVERT: FunctionToolParam = {
    "type": "function",
    "name": "convert",
    "parameters": {"type": "object", "properties": {"celsius": {"type": "number"}}},
    "strict": None,
}


class Person(BaseModel):
    name: str
    born: int


@pytest.fixture
async def async_client(sdk_server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=sdk_server.base_url, api_key="a-key", max_retries=0, timeout=20) as client:
        yield client


def calls(output: list[ResponseOutputItem]) -> list[ResponseFunctionToolCall]:
    return [item for item in output if isinstance(item, ResponseFunctionToolCall)]


def numbers(events: list[ResponseStreamEvent]) -> list[int]:
    return [event.sequence_number for event in events]


def completed(events: list[ResponseStreamEvent]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    return last.response


def test_a_create_is_answered_with_the_settings_it_had(client: OpenAI) -> None:
    response = client.responses.create(
        model=MODEL,
        input="Say hello",
        instructions="Be brief.",
        metadata={"ticket": "7"},
        temperature=0.5,
        max_output_tokens=500,
    )
    assert response.output_text == "Hello! I play a scenario."
    assert response.id.startswith("resp_")
    assert (response.status, response.model, response.object) == ("completed", MODEL, "response")
    assert (response.instructions, response.temperature, response.max_output_tokens) == ("Be brief.", 0.5, 500)
    assert response.metadata == {"ticket": "7"}
    assert response.usage is not None
    assert response.usage.output_tokens > 0
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_the_helper_folds_a_stream(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="Think first") as stream:
        events = list(stream)
        final = stream.get_final_response()
    types = [event.type for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == "response.completed"
    assert numbers(list(events)) == list(range(len(events)))
    assert final.output_text == "It is 42."
    reasoning = final.output[0]
    assert isinstance(reasoning, ResponseReasoningItem)
    assert [part.text for part in reasoning.summary] == ["Weighing it up"]
    assert client.responses.retrieve(final.id).output_text == "It is 42."


def test_what_a_stream_ends_with_is_what_can_be_retrieved(client: OpenAI) -> None:
    final = completed(list(client.responses.create(model=MODEL, input="Think first", stream=True)))
    assert client.responses.retrieve(final.id).to_dict() == final.to_dict()


def test_a_plain_stream_brings_every_event_of_a_call(client: OpenAI) -> None:
    events = list(client.responses.create(model=MODEL, input="What is the weather?", tools=[WEATHER], stream=True))
    assert numbers(events) == list(range(len(events)))
    joined: dict[str, str] = {}
    for event in events:
        if event.type == "response.function_call_arguments.delta":
            joined[event.item_id] = joined.get(event.item_id, "") + event.delta
    final = completed(events)
    assert {call.id: call.arguments for call in calls(final.output)} == joined
    assert [json.loads(call.arguments) for call in calls(final.output)] == [{"city": "Oslo"}, {"city": "Rome"}]


def test_function_tools_go_on_by_the_id_of_the_response(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="What is the weather?", tools=[WEATHER, CONVERT])
    outputs: list[ResponseInputItemParam] = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "21.5 degrees"}
        for call in calls(first.output)
    ]
    second = client.responses.create(
        model=MODEL, previous_response_id=first.id, input=outputs, tools=[WEATHER, CONVERT]
    )
    (convert,) = calls(second.output)
    assert (convert.name, json.loads(convert.arguments)) == ("convert", {"celsius": 21.5})
    third = client.responses.create(
        model=MODEL,
        previous_response_id=second.id,
        input=[{"type": "function_call_output", "call_id": convert.call_id, "output": "70.7 fahrenheit"}],
        tools=[WEATHER, CONVERT],
    )
    assert third.output_text == "Rome has 70.7 degrees Fahrenheit, Oslo is colder."
    assert third.previous_response_id == second.id


def test_function_tools_go_on_by_replay_where_nothing_is_stored(client: OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    include: list[Any] = ["reasoning.encrypted_content"]
    answers: list[Response] = []
    for _ in range(3):
        response = client.responses.create(
            model=MODEL, input=history, tools=[WEATHER, CONVERT], store=False, include=include
        )
        answers.append(response)
        history += [item.to_dict() for item in response.output]
        for call in calls(response.output):
            text = "21.5 degrees" if call.name == "get_weather" else "70.7 fahrenheit"
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
    assert answers[-1].output_text.startswith("Rome has 70.7")
    reasoning = history[1]
    assert reasoning["type"] == "reasoning"
    assert reasoning["encrypted_content"]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answers[-1].id)


def test_a_custom_tool_takes_free_text(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Patch it", tools=[{"type": "custom", "name": "patch"}])
    (call,) = response.output
    assert isinstance(call, ResponseCustomToolCall)
    assert (call.name, call.input) == ("patch", "*** Begin Patch")
    done = client.responses.create(
        model=MODEL,
        previous_response_id=response.id,
        input=[{"type": "custom_tool_call_output", "call_id": call.call_id, "output": "patched"}],
    )
    assert done.output_text == "All right."


def test_structured_output_is_parsed(client: OpenAI) -> None:
    parsed = client.responses.parse(model=MODEL, input="As JSON", text_format=Person)
    assert parsed.output_parsed == Person(name="Ada", born=1815)
    with client.responses.stream(model=MODEL, input="As JSON", text_format=Person) as stream:
        assert stream.get_final_response().output_parsed == Person(name="Ada", born=1815)


def test_a_refusal_is_a_part_of_its_own(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Refuse")
    (message,) = response.output
    assert message.to_dict()["content"] == [{"type": "refusal", "refusal": "That I will not do."}]


def test_what_was_cut_off_is_incomplete(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Cut it short")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    events = list(client.responses.create(model=MODEL, input="Cut it short", stream=True))
    assert events[-1].type == "response.incomplete"


def test_stored_responses_are_listed_and_deleted(client: OpenAI) -> None:
    items: list[ResponseInputItemParam] = [{"role": "user", "content": f"Note {number}"} for number in range(3)]
    response = client.responses.create(model=MODEL, input=items)
    texts = [item.to_dict()["content"] for item in client.responses.input_items.list(response.id, limit=2, order="asc")]
    assert texts == [[{"type": "input_text", "text": f"Note {number}"}] for number in range(3)]
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError) as gone:
        client.responses.retrieve(response.id)
    assert gone.value.code == "response_not_found"


def test_a_background_response_is_polled_and_resumed(client: OpenAI) -> None:
    stream = client.responses.create(model=MODEL, input="Think first", background=True, stream=True)
    seen = list(stream)
    final = completed(seen)
    assert client.responses.retrieve(final.id).status == "completed"
    rest = list(client.responses.retrieve(final.id, stream=True, starting_after=2))
    assert [event.to_dict() for event in rest] == [event.to_dict() for event in seen[3:]]


def test_a_background_response_can_be_cancelled(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Go on for long", background=True)
    assert response.status in ("queued", "in_progress")
    cancelled = client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    assert client.responses.cancel(response.id).status == "cancelled"
    assert client.responses.retrieve(response.id).status == "cancelled"


def test_only_background_responses_can_be_cancelled(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Say hello")
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(response.id)


def test_input_tokens_are_counted_as_they_are_billed(client: OpenAI) -> None:
    count = client.responses.input_tokens.count(model=MODEL, input="Say hello", tools=[WEATHER])
    response = client.responses.create(model=MODEL, input="Say hello", tools=[WEATHER])
    assert count.object == "response.input_tokens"
    assert response.usage is not None
    assert count.input_tokens == response.usage.input_tokens


def test_a_compacted_conversation_goes_on(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="Say hello")
    window = client.responses.compact(model=MODEL, previous_response_id=first.id)
    assert window.object == "response.compaction"
    assert "compaction" in [item.type for item in window.output]
    # The SDK's type of the window does not foresee the user's messages in it.
    kept: list[Any] = [item.to_dict(warnings=False) for item in window.output]
    after = client.responses.create(model=MODEL, input=[*kept, {"role": "user", "content": "Think first"}])
    assert after.output_text == "It is 42."


def test_models_are_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted", "gpt-5.5"]


@pytest.mark.parametrize(
    ("fields", "kind", "code", "param"),
    [
        ({"model": "unheard-of"}, openai.NotFoundError, "model_not_found", "model"),
        ({"temperature": 9}, openai.BadRequestError, "invalid_value", "temperature"),
        (
            {"previous_response_id": "resp_unknown"},
            openai.BadRequestError,
            "previous_response_not_found",
            "previous_response_id",
        ),
        ({"conversation": "conv_1"}, openai.BadRequestError, "unsupported_parameter", "conversation"),
    ],
)
def test_a_bad_create_raises_the_error_of_the_sdk(
    client: OpenAI, fields: dict[str, Any], kind: type[openai.APIStatusError], code: str, param: str
) -> None:
    create: Any = client.responses.create
    for stream in (False, True):
        with pytest.raises(kind) as refused:
            create(**({"model": MODEL, "input": "Say hello", "stream": stream} | fields))
        assert (refused.value.code, refused.value.param) == (code, param)
        assert refused.value.type == "invalid_request_error"


def test_a_broken_engine_fails_the_response(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="the engine broke on purpose") as broken:
        client.responses.create(model=MODEL, input="Break")
    assert (broken.value.code, broken.value.type) == ("server_error", "server_error")
    events = list(client.responses.create(model=MODEL, input="Break", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.error.message) == ("server_error", "the engine broke on purpose")


def test_a_rate_limit_is_waited_out_by_the_sdk(client: OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as slow:
        client.responses.create(model=MODEL, input="Too fast")
    assert slow.value.code == "rate_limit_exceeded"
    assert float(slow.value.response.headers["retry-after-ms"]) == 50


def test_leaving_a_stream_early_leaves_the_connection_usable(client: OpenAI) -> None:
    with client.responses.create(model=MODEL, input="Go on for long", stream=True) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                break
    assert client.responses.create(model=MODEL, input="Say hello").output_text == "Hello! I play a scenario."


async def test_the_asynchronous_client_does_the_same(async_client: AsyncOpenAI) -> None:
    response = await async_client.responses.create(model=MODEL, input="Say hello")
    assert response.output_text == "Hello! I play a scenario."
    async with async_client.responses.stream(model=MODEL, input="Think first") as stream:
        assert (await stream.get_final_response()).output_text == "It is 42."
    running = await async_client.responses.create(model=MODEL, input="Go on for long", background=True)
    assert (await async_client.responses.cancel(running.id)).status == "cancelled"
    with pytest.raises(openai.NotFoundError):
        await async_client.responses.retrieve("resp_unknown")
