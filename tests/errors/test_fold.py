"""Whatever a model says, and however it is cut into pieces: folding the events of a stream gives exactly the response
of its terminal event, and the one that is retrieved later."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.errors.doors import STREAMS, Entrance, entering
from tests.errors.fold import folded

from turnwire.client import connect
from turnwire.server.engine.stepped import SteppedPass
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallKind,
    CallStart,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    PassUsage,
    TextChunk,
)

_bounded = settings(max_examples=40, derandomize=True, deadline=None, database=None)
_CLIENTS = ("grpc", "turnwire.v1")

_text = st.text(st.sampled_from('ab "\\\n\r\t\u2028\x00\x7fé漢🙂{}[],:'), max_size=12)
_pieces = st.lists(_text, max_size=4)


def _saying(channel: Channel, pieces: list[str]) -> list[Chunk]:
    return [TextChunk(channel, piece) for piece in pieces]


def _calling(kind: CallKind, pieces: list[str]) -> list[Chunk]:
    return [CallStart("f", kind), *[CallDelta(piece) for piece in pieces], CallEnd()]


_said = st.builds(_saying, st.sampled_from(list(Channel)), _pieces)
_called = st.builds(_calling, st.sampled_from(list(CallKind)), _pieces)
_usage = st.builds(PassUsage, input_tokens=st.integers(0, 99), output_tokens=st.integers(0, 99))
_stopped = st.builds(
    Finish, st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER]), _usage
)
_failed = st.builds(EngineFailure, st.sampled_from(["server_error", "rate_limit_exceeded"]), st.just("It broke."))
_scripts = st.tuples(st.lists(st.one_of(_said, _called), max_size=5), st.one_of(_stopped, _failed))

_Script = tuple[list[list[Chunk]], Finish | EngineFailure]


async def _play(entrance: Entrance, script: _Script, before: int) -> None:
    engine = entrance.server.engine
    playing: SteppedPass = (await engine.started(before + 1))[before]
    emissions, outcome = script
    for number, chunks in enumerate(emissions):
        if number % 2:
            # Some of it is sent before the rest is known.
            await asyncio.sleep(0)
        playing.emit(chunks)
    playing.end(outcome)


async def _check_official(entrance: Entrance, script: _Script) -> None:
    body: dict[str, Any] = {"model": "stepped", "input": "hello", "metadata": {"k": "v"}, "temperature": 0.5}
    creating = asyncio.create_task(entrance.create(body))
    await _play(entrance, script, len(entrance.server.engine.passes))
    outcome = await creating
    assert folded(outcome.events) == outcome.response
    assert outcome.response is not None
    assert await entrance.retrieve(outcome.response["id"]) == outcome.response


async def _check_client(entrance: Entrance, script: _Script) -> None:
    server = entrance.server
    address = (
        f"ws://127.0.0.1:{server.http_port}" if entrance.name == "turnwire.v1" else f"127.0.0.1:{server.grpc_port}"
    )
    before = len(server.engine.passes)
    async with connect(address, verbosity="full") as session:
        stream = await session.create(model="stepped", input="hello", metadata={"k": "v"}, temperature=0.5)
        playing = asyncio.create_task(_play(entrance, script, before))
        events = [event.proto async for event in stream]
        await playing
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert [event.WhichOneof("event") for event in events].index("done") == len(events) - 1
        indices: list[int] = []
        for event in events:
            said: Any = getattr(event, event.WhichOneof("event") or "")
            if "output_index" in said.DESCRIPTOR.fields_by_name:
                indices.append(said.output_index)
        assert indices == sorted(indices)
        later = await session.get_response(stream.response.id)
        assert MessageToDict(stream.response) == MessageToDict(later)


@pytest.mark.parametrize("door", STREAMS)
def test_folding_the_events_gives_the_response(door: str) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        entrance = runner.run(stack.enter_async_context(entering(door)))

        @given(_scripts)
        @_bounded
        def holds(script: _Script) -> None:
            check = _check_client if door in _CLIENTS else _check_official
            runner.run(check(entrance, script))

        try:
            holds()
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("door", _CLIENTS)
def test_our_own_messages_say_the_same_in_the_official_form(door: str) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        entrance = runner.run(stack.enter_async_context(entering(door)))

        @given(_scripts)
        @_bounded
        def holds(script: _Script) -> None:
            runner.run(_check_official(entrance, script))

        try:
            holds()
        finally:
            runner.run(stack.aclose())
