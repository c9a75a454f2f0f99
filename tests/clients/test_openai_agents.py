"""The Agents SDK over HTTP and over WebSocket: function tools over several turns, and what errors become."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import openai
import pytest
from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, SQLiteSession, function_tool
from openai import AsyncOpenAI

from .harness.proxy import Proxy
from .harness.server import Server
from .harness.streams import check_stream

MODEL = "scripted"
WEATHER = "What is the weather like, in Fahrenheit?"
ANSWER = "Rome has 70.7 degrees Fahrenheit, Oslo is colder."

pytestmark = pytest.mark.parametrize("websocket", [False, True], ids=["http", "websocket"])


class Trip:
    """An agent with tools, and what its tools were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

        @function_tool
        def get_weather(city: str) -> str:
            """Tells the weather of a city."""
            self.asked.append(city)
            return "21.5 degrees"

        @function_tool
        async def convert(celsius: float) -> str:
            """Converts degrees."""
            self.asked.append(str(celsius))
            return "70.7 fahrenheit"

        self.agent = Agent(
            name="Traveller",
            model=MODEL,
            instructions="Plan trips.",
            tools=[get_weather, convert],
            model_settings=ModelSettings(parallel_tool_calls=True),
        )


@asynccontextmanager
async def running(base_url: str, *, websocket: bool) -> AsyncGenerator[RunConfig]:
    async with AsyncOpenAI(base_url=base_url, api_key="a-key", max_retries=0, timeout=20) as client:
        provider = OpenAIProvider(openai_client=client, use_responses_websocket=websocket)
        try:
            yield RunConfig(model_provider=provider, tracing_disabled=True)
        finally:
            await provider.aclose()


async def test_an_agent_calls_its_tools_over_several_turns(sdk_server: Server, websocket: bool) -> None:
    trip = Trip()
    async with running(sdk_server.base_url, websocket=websocket) as config:
        result = await Runner.run(trip.agent, WEATHER, run_config=config)
    assert result.final_output == ANSWER
    assert sorted(trip.asked) == ["21.5", "Oslo", "Rome"]
    assert len(result.raw_responses) == 3
    assert all(response.usage.output_tokens for response in result.raw_responses)


async def test_turns_that_chain_send_only_what_is_new(sdk_server: Server, websocket: bool) -> None:
    proxy = Proxy(sdk_server.base_url)
    async with proxy.listening(), running(proxy.base_url, websocket=websocket) as config:
        result = await Runner.run(Trip().agent, WEATHER, run_config=config, auto_previous_response_id=True)
    assert result.final_output == ANSWER
    kinds = [_kinds(turn.body["input"]) for turn in proxy.turns]
    assert kinds[1:] == [["function_call_output"] * 2, ["function_call_output"]]
    ids = [response.response_id for response in result.raw_responses]
    assert [turn.body.get("previous_response_id") for turn in proxy.turns] == [None, *ids[:-1]]
    assert proxy.connections == int(websocket)
    if websocket:  # over HTTP this run asks for no streams
        for turn in proxy.turns:
            check_stream(turn.events)


def _kinds(items: Sequence[dict[str, object]]) -> list[object]:
    return [item.get("type") for item in items]


async def test_a_streamed_run_brings_its_text_in_pieces(sdk_server: Server, websocket: bool) -> None:
    trip = Trip()
    async with running(sdk_server.base_url, websocket=websocket) as config:
        result = Runner.run_streamed(trip.agent, WEATHER, run_config=config)
        pieces = [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]
    assert len(pieces) > 1
    assert "".join(pieces) == result.final_output == ANSWER


async def test_a_conversation_kept_by_the_client_is_replayed(sdk_server: Server, websocket: bool) -> None:
    session = SQLiteSession("trip")
    trip = Trip()
    async with running(sdk_server.base_url, websocket=websocket) as config:
        first = await Runner.run(trip.agent, WEATHER, session=session, run_config=config)
        second = await Runner.run(trip.agent, "Say hello", session=session, run_config=config)
    session.close()
    assert first.final_output == ANSWER
    assert second.final_output == "Hello! I play a scenario."
    assert second.raw_responses[0].usage.input_tokens > first.raw_responses[0].usage.input_tokens


async def test_a_refused_turn_is_an_error_of_the_sdk(sdk_server: Server, websocket: bool) -> None:
    async with running(sdk_server.base_url, websocket=websocket) as config:
        with pytest.raises((openai.APIError, RuntimeError), match="resp_unknown"):
            await Runner.run(Trip().agent, "Say hello", previous_response_id="resp_unknown", run_config=config)
        # And the next run has a good connection.
        result = await Runner.run(Trip().agent, "Say hello", run_config=config)
    assert result.final_output == "Hello! I play a scenario."
