"""The official SDK for Python over gRPC: all that it does over HTTP, and what is particular to this way."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from agents import OpenAIProvider, RunConfig, Runner
from openai import AsyncOpenAI, OpenAI

from turnwire.client import _loop_thread
from turnwire.client.openai import async_http_client, http_client

from .harness.server import Server, serving
from .test_openai_agents import ANSWER, Trip
from .test_openai_agents import WEATHER as QUESTION
from .test_openai_http import *  # noqa: F403 - the same tests, with the clients below

HELLO = "Hello! I play a scenario."
NOBODY = "grpc://127.0.0.1:1"


@pytest.fixture
def client(sdk_server: Server) -> Iterator[OpenAI]:
    http = http_client(f"grpc://{sdk_server.grpc}")
    with OpenAI(http_client=http, api_key="a-key", max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture  # type: ignore[no-redef]
async def async_client(sdk_server: Server) -> AsyncIterator[AsyncOpenAI]:
    http = async_http_client(f"grpc://{sdk_server.grpc}")
    async with AsyncOpenAI(http_client=http, api_key="a-key", max_retries=0, timeout=20) as client:
        yield client


def long_stream(client: OpenAI) -> Any:
    return client.responses.create(model="scripted", input="Go on for long", stream=True)


@pytest.mark.parametrize("base_url", [None, "http://nowhere.invalid", "https://nowhere.invalid/openai/v1"])
def test_the_base_url_may_be_anything(sdk_server: Server, base_url: str | None) -> None:
    http = http_client(f"grpc://{sdk_server.grpc}")
    with OpenAI(http_client=http, base_url=base_url, api_key="a-key", max_retries=0) as client:
        assert client.responses.create(model="scripted", input="Say hello").output_text == HELLO
        assert client.models.retrieve("scripted").id == "scripted"


def test_a_chain_finds_its_state_though_nothing_was_stored(client: OpenAI) -> None:
    first = client.responses.create(model="scripted", input="Think first", store=False)
    second = client.responses.create(model="scripted", input="Say hello", previous_response_id=first.id, store=False)
    assert second.output_text == HELLO
    assert second.previous_response_id == first.id
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.total_tokens


def test_a_stream_arrives_while_it_is_made(client: OpenAI) -> None:
    with long_stream(client) as stream:
        texts = (event.delta for event in stream if event.type == "response.output_text.delta")
        assert len([next(texts) for _ in range(20)]) == 20


def test_threads_share_a_client(client: OpenAI) -> None:
    texts: list[str] = []

    def ask() -> None:
        texts.append(client.responses.create(model="scripted", input="Think first").output_text)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert texts == ["It is 42."] * 8


def test_nobody_listening_is_a_connection_error() -> None:
    with (
        OpenAI(http_client=http_client(NOBODY), api_key="a-key", max_retries=1) as client,
        pytest.raises(openai.APIConnectionError) as caught,
    ):
        client.responses.create(model="scripted", input="Say hello")
    assert isinstance(caught.value.__cause__, httpx2.ConnectError)
    assert "check the address" in str(caught.value.__cause__)


async def test_nobody_listening_is_a_connection_error_for_the_asynchronous_client() -> None:
    async with AsyncOpenAI(http_client=async_http_client(NOBODY), api_key="a-key", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            await client.responses.create(model="scripted", input="Say hello")


def test_the_time_outs_of_the_sdk_hold(client: OpenAI) -> None:
    hurried = client.with_options(timeout=httpx2.Timeout(20, read=0.2))
    with pytest.raises(openai.APITimeoutError):
        hurried.responses.create(model="scripted", input="Go on for long")
    # Between events there is less time than that.
    with long_stream(hurried) as stream:
        texts = (event.delta for event in stream if event.type == "response.output_text.delta")
        assert next(texts)


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    with (
        contextlib.closing(_Silent()) as silent,
        OpenAI(
            http_client=http_client(silent.address),
            api_key="a-key",
            max_retries=0,
            timeout=httpx2.Timeout(20, connect=0.2),
        ) as client,
    ):
        with pytest.raises(openai.APITimeoutError) as caught:
            client.responses.create(model="scripted", input="Say hello")
        assert isinstance(caught.value.__cause__, httpx2.ConnectTimeout)


class _Silent:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        import socket

        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"grpc://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.close()


def test_a_rate_limit_is_waited_out_where_retries_are_allowed(client: OpenAI) -> None:
    begun = time.monotonic()
    with pytest.raises(openai.RateLimitError):
        client.with_options(max_retries=2).responses.create(model="scripted", input="Too fast")
    # Two waits of what the server asks for, 50 ms each, and not of half a second and more.
    assert time.monotonic() - begun >= 0.1


def test_a_server_that_ends_in_the_middle_of_a_stream_is_heard_of(tmp_path: Any) -> None:
    with serving("sdk", tmp_path) as server:
        http = http_client(f"grpc://{server.grpc}")
        with OpenAI(http_client=http, api_key="a-key", max_retries=0) as client, long_stream(client) as stream:
            events = iter(stream)
            while next(events).type != "response.output_text.delta":
                pass
            server.process.kill()
            with pytest.raises(openai.APIError) as caught:
                list(events)
            assert caught.value.code == "session_lost"
            with pytest.raises(openai.APIConnectionError):
                client.responses.create(model="scripted", input="Say hello")


def test_a_key_goes_to_the_server(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("anna:right-key-0123456789\n")
    keys.chmod(0o600)
    with serving("sdk", tmp_path, "--api-key-file", str(keys)) as server:
        http = http_client(f"grpc://{server.grpc}")
        with OpenAI(http_client=http, api_key="wrong-key-0123456789", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                client.responses.create(model="scripted", input="Say hello")
            assert caught.value.code == "invalid_api_key"
            right = client.with_options(api_key="right-key-0123456789")
            assert right.responses.create(model="scripted", input="Say hello").output_text == HELLO


def test_the_thread_ends_with_the_last_client(sdk_server: Server) -> None:
    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    clients = [http_client(f"grpc://{sdk_server.grpc}") for _ in range(2)]
    for client in clients:
        assert "turnwire-client" in names()
        client.close()
        client.close()
    assert "turnwire-client" not in names()


def test_a_reader_that_pauses_holds_the_stream_back_and_reads_it_whole() -> None:
    thread = _loop_thread.acquire()
    made = 0

    async def source() -> AsyncGenerator[bytes, None]:
        nonlocal made
        for _ in range(1000):
            made += 1
            yield b"x" * 1024

    async def opened() -> _loop_thread.Pipe:
        return _loop_thread.Pipe(source(), 5.0, TimeoutError, ConnectionError)

    try:
        pipe = thread.call(opened())
        size = len(pipe.read())
        while data := pipe.read():
            assert made * 1024 <= size + len(data) + 300 * 1024
            size += len(data)
        assert size == 1000 * 1024
    finally:
        _loop_thread.release()


def test_loops_one_after_the_other_use_one_asynchronous_client(sdk_server: Server) -> None:
    http = async_http_client(f"grpc://{sdk_server.grpc}")
    client = AsyncOpenAI(http_client=http, api_key="a-key", max_retries=0)

    async def ask(*, last: bool = False) -> str:
        text = (await client.responses.create(model="scripted", input="Say hello")).output_text
        if last:
            await client.close()
        return text

    assert asyncio.run(ask()) == HELLO
    assert asyncio.run(ask(last=True)) == HELLO


async def test_an_asynchronous_stream_that_is_left_cancels_its_response(async_client: AsyncOpenAI) -> None:
    async with await async_client.responses.create(model="scripted", input="Go on for long", stream=True) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
    answers = await asyncio.gather(
        *(async_client.responses.create(model="scripted", input="Say hello") for _ in range(20))
    )
    assert {answer.output_text for answer in answers} == {HELLO}


async def test_agents_run_over_grpc(async_client: AsyncOpenAI) -> None:
    trip = Trip()
    provider = OpenAIProvider(openai_client=async_client, use_responses=True)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    result = await Runner.run(trip.agent, QUESTION, run_config=config, auto_previous_response_id=True)
    assert result.final_output == ANSWER
    assert sorted(trip.asked) == ["21.5", "Oslo", "Rome"]
    streamed = Runner.run_streamed(Trip().agent, QUESTION, run_config=config)
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == ANSWER


def test_the_example_of_the_client_page_runs_as_it_stands(
    sdk_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    section = page.split("## Official SDKs over gRPC\n", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("localhost:50051", sdk_server.grpc), names)
    names["client"].close()
    assert capsys.readouterr().out == f"{HELLO}\n"


def test_a_missing_sdk_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "turnwire.client.openai")
    with pytest.raises(ImportError, match=r"pip install 'turnwire\[openai\]'"):
        importlib.import_module("turnwire.client.openai")
