"""The official SDK for Python over WebSocket: lanes, warm-up, continuation and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.resources.responses.responses import AsyncResponsesConnection, ResponsesConnection
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponsesServerEvent,
)
from openai.types.responses.responses_server_event import ResponseWsError

from .harness.server import Server

MODEL = "scripted"
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": None,
}
CREATE: dict[str, Any] = {"type": "response.create", "model": MODEL, "input": "x"}
TERMINAL = ("response.completed", "response.failed", "response.incomplete", "error")


@pytest.fixture
def connection(client: OpenAI) -> Iterator[ResponsesConnection]:
    with client.responses.connect() as connection:
        yield connection


@pytest.fixture
async def async_connection(sdk_server: Server) -> AsyncIterator[AsyncResponsesConnection]:
    async with (
        AsyncOpenAI(base_url=sdk_server.base_url, api_key="a-key", timeout=20) as client,
        client.responses.connect() as connection,
    ):
        yield connection


def turn(connection: ResponsesConnection) -> list[ResponsesServerEvent]:
    """Reads up to the event that ends a response, and checks how the events are numbered."""
    events: list[ResponsesServerEvent] = []
    while not events or events[-1].type not in TERMINAL:
        events.append(connection.recv())
    if events[-1].type != "error":
        assert [event.to_dict()["sequence_number"] for event in events] == list(range(len(events)))
    return events


def completed(events: list[ResponsesServerEvent]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent), last
    return last.response


def failure(events: list[ResponsesServerEvent]) -> ResponseWsError:
    (event,) = events
    assert isinstance(event, ResponseWsError), event
    return event


def test_turns_of_one_socket_go_on_without_being_stored(connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, input="What is the weather?", tools=[WEATHER], store=False)
    first = completed(turn(connection))
    calls = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Oslo", "Rome"]
    connection.response.create(
        model=MODEL,
        previous_response_id=first.id,
        input=[
            {"type": "function_call_output", "call_id": call.call_id, "output": "70.7 fahrenheit"} for call in calls
        ],
        tools=[WEATHER],
        store=False,
    )
    second = completed(turn(connection))
    assert second.output_text == "Rome has 70.7 degrees Fahrenheit, Oslo is colder."
    assert second.previous_response_id == first.id


def test_a_warm_up_says_nothing_and_can_be_gone_on_from(connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, input="Say hello", generate=False, store=False)
    events = turn(connection)
    warm = completed(events)
    assert [event.type for event in events] == ["response.created", "response.in_progress", "response.completed"]
    assert warm.output == []
    assert warm.usage is not None
    assert warm.usage.output_tokens == 0
    connection.response.create(model=MODEL, previous_response_id=warm.id, input=[], store=False)
    assert completed(turn(connection)).output_text == "Hello! I play a scenario."


def test_lanes_run_at_once_and_their_events_say_whose_they_are(connection: ResponsesConnection) -> None:
    for lane in ("left", "right"):
        connection.response.create(model=MODEL, input="Go on for long", stream_id=lane, store=False)
    connection.response.create(model=MODEL, input="Say hello", stream_id="quick", store=False)
    started: set[Any] = set()
    while True:
        event = connection.recv()
        started.add(event.to_dict()["stream_id"])
        if event.type == "response.completed":
            break
    # The long ones had begun before, and are not done.
    assert event.to_dict()["stream_id"] == "quick"
    assert started == {"left", "right", "quick"}
    assert event.response.output_text == "Hello! I play a scenario."


def test_a_fork_into_another_lane_leaves_the_parent_in_its_own(connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, input="Say hello", stream_id="trunk", store=False)
    parent = completed(turn(connection))
    for lane in ("branch", "trunk"):
        connection.response.create(
            model=MODEL, previous_response_id=parent.id, input="Think first", stream_id=lane, store=False
        )
        events = turn(connection)
        assert completed(events).output_text == "It is 42."
        assert {event.to_dict()["stream_id"] for event in events} == {lane}


def test_creates_of_the_default_lane_wait_for_each_other(connection: ResponsesConnection) -> None:
    for text in ("Say hello", "Think first", "Refuse"):
        connection.response.create(model=MODEL, input=text)
    answers = [completed(turn(connection)) for _ in range(3)]
    assert [answer.output_text for answer in answers] == ["Hello! I play a scenario.", "It is 42.", ""]


def test_what_was_stored_can_be_retrieved_over_http(client: OpenAI, connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, input="Say hello", store=True)
    stored = completed(turn(connection))
    assert client.responses.retrieve(stored.id).output == stored.output
    with client.responses.connect() as another:
        another.response.create(model=MODEL, previous_response_id=stored.id, input="Think first")
        assert completed(turn(another)).output_text == "It is 42."


def test_an_unknown_parent_is_refused_and_the_socket_stays_usable(connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, previous_response_id="resp_unknown", input="Say hello")
    refused = failure(turn(connection))
    assert refused.status == 400
    assert (refused.error.code, refused.error.param) == ("previous_response_not_found", "previous_response_id")
    assert refused.error.message == "Previous response with id 'resp_unknown' not found."
    connection.response.create(model=MODEL, input="Say hello")
    assert completed(turn(connection)).output_text == "Hello! I play a scenario."


def test_what_was_not_stored_is_gone_with_its_socket(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="Say hello", store=False)
        lost = completed(turn(connection))
    with client.responses.connect() as another:
        another.response.create(model=MODEL, previous_response_id=lost.id, input="Think first")
        assert failure(turn(another)).error.code == "previous_response_not_found"


def test_a_continuation_that_was_refused_takes_its_parent_with_it(connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, input="Say hello", store=False)
    parent = completed(turn(connection))
    connection.response.create(
        model=MODEL,
        previous_response_id=parent.id,
        input=[{"type": "function_call_output", "call_id": "call_unknown", "output": "?"}],
        store=False,
    )
    assert failure(turn(connection)).error.param == "input"
    connection.response.create(model=MODEL, previous_response_id=parent.id, input="Think first", store=False)
    assert failure(turn(connection)).error.code == "previous_response_not_found"


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        (
            {"type": "response.create", "model": MODEL, "input": "x", "stream_id": "a b"},
            "invalid_stream_id",
            "stream_id",
        ),
        ({"type": "response.create", "model": MODEL, "input": "x", "background": True}, None, "background"),
        ({"type": "response.create", "model": MODEL, "input": "x", "top_p": 7}, "invalid_value", "top_p"),
        ({"type": "response.unheard_of"}, None, "type"),
        ({"model": MODEL}, None, "type"),
    ],
)
def test_a_bad_message_is_answered_by_an_error_that_names_it(
    connection: ResponsesConnection, message: dict[str, Any], code: str | None, param: str
) -> None:
    connection.send_raw(json.dumps(message))
    refused = failure(turn(connection))
    assert refused.status == 400
    assert refused.error.param == param
    assert isinstance(refused.error.code, str)
    assert code in (None, refused.error.code)
    connection.response.create(model=MODEL, input="Say hello")
    assert completed(turn(connection)).output_text == "Hello! I play a scenario."


def test_what_is_no_json_is_answered_by_an_error_too(connection: ResponsesConnection) -> None:
    connection.send_raw("{")
    assert failure(turn(connection)).status == 400


def test_a_broken_engine_fails_the_response_and_nothing_else(connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, input="Break")
    events = turn(connection)
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.code == "server_error"
    connection.response.create(model=MODEL, input="Say hello")
    assert completed(turn(connection)).output_text == "Hello! I play a scenario."


def test_steering_is_answered_as_not_supported(connection: ResponsesConnection) -> None:
    connection.response.create(model=MODEL, input="Go on for long", store=False)
    created = connection.recv()
    assert created.type == "response.created"
    connection.response.steer(previous_response_id=created.response.id, input="Stop it")
    while (event := connection.recv()).type != "response.steer.failed":
        assert event.type.startswith("response.")
    assert event.error.code == "steering_not_supported"


def test_handlers_hear_events_and_errors(client: OpenAI) -> None:
    heard: list[str] = []
    with client.responses.connect() as connection:

        def on_error(event: ResponseWsError) -> None:
            heard.append(event.error.code or "")
            connection.response.create(model=MODEL, input="Say hello")

        def on_completed(event: ResponseCompletedEvent) -> None:
            heard.append(event.response.output_text)
            connection.close()

        connection.on("error", on_error)
        connection.on("response.completed", on_completed)
        connection.response.create(model=MODEL, previous_response_id="resp_unknown", input="Say hello")
        connection.dispatch_events()
    assert heard == ["previous_response_not_found", "Hello! I play a scenario."]


async def test_the_asynchronous_connection_does_the_same(async_connection: AsyncResponsesConnection) -> None:
    await async_connection.response.create(model=MODEL, input="Say hello", stream_id="a", store=False)
    await async_connection.response.create(model=MODEL, input="Think first", stream_id="b", store=False)
    texts: dict[Any, str] = {}
    async for event in async_connection:
        if event.type == "response.completed":
            texts[event.to_dict()["stream_id"]] = event.response.output_text
            if len(texts) == 2:
                break
    assert texts == {"a": "Hello! I play a scenario.", "b": "It is 42."}
    await async_connection.response.create(model=MODEL, previous_response_id="resp_unknown", input="Say hello")
    refused = await async_connection.recv()
    assert refused.type == "error"
    assert refused.error.code == "previous_response_not_found"


async def test_permessage_deflate_is_negotiated(sdk_server: Server) -> None:
    async with (
        AsyncOpenAI(base_url=sdk_server.base_url, api_key="a-key", timeout=20) as client,
        client.responses.connect(websocket_connection_options={"compression": "deflate"}) as connection,
    ):
        await connection.response.create(model=MODEL, input="Say hello")
        async for event in connection:
            if event.type == "response.completed":
                assert event.response.output_text == "Hello! I play a scenario."
                break
