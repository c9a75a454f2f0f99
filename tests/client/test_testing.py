"""The fake server that applications use in their tests."""

from __future__ import annotations

import pytest

from turnwire.client import RequestRejectedError, function_call_output
from turnwire.client.testing import FakeServer, custom_tool_call, function_call, message
from turnwire.v1.client_event_pb2 import ConnectRequest, ResponseAppend
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.server_event_pb2 import ServerEvent


async def test_an_answer_nobody_asked_for_fails_the_test(fake: FakeServer) -> None:
    fake.answer(message("unused"))
    with pytest.raises(AssertionError, match="1 answers were not asked for"):
        async with fake.connect():
            pass


async def test_a_request_without_an_answer_fails_the_test(fake: FakeServer) -> None:
    with pytest.raises(AssertionError, match="no answer was in store for create"):  # noqa: PT012
        async with fake.connect() as session:
            with pytest.raises(RequestRejectedError, match="no answer was in store"):
                await session.create(model="m")


async def test_an_error_in_the_test_is_not_covered_up(fake: FakeServer) -> None:
    fake.answer(message("unused"))
    with pytest.raises(KeyError):
        async with fake.connect():
            raise KeyError


async def test_repeated_appends_are_judged_as_the_protocol_says(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"), custom_tool_call("g", "x", call_id="c2"))
    transport = fake.transport()

    async def ask(request: ConnectRequest) -> ServerEvent:
        await transport.send(request)
        batch = await transport.receive()
        assert batch is not None
        return batch.events[-1]

    def append(index: int, *items: Item) -> ConnectRequest:
        return ConnectRequest(append=ResponseAppend(response_id="resp_1", append_index=index, input=items))

    await ask(ConnectRequest(request_id="r", create=ResponseCreate(hold=True)))
    first = (await ask(append(0, function_call_output("c1", "x")))).appended
    assert (first.duplicate, list(first.awaiting_call_ids)) == (False, ["c2"])
    assert (await ask(append(0, function_call_output("c1", "x")))).appended.duplicate
    conflict = await ask(append(0, function_call_output("c1", "y")))
    assert conflict.rejected.error.code == "append_index_conflict"
    gap = await ask(append(5, function_call_output("c2", "x")))
    assert gap.rejected.error.code == "append_index_gap"
    missing = await ask(ConnectRequest(append=ResponseAppend(response_id="resp_9")))
    assert missing.rejected.error.code == "response_not_found"


async def test_what_has_ended_takes_no_appends(fake: FakeServer) -> None:
    fake.answer(message("x"))
    async with fake.connect() as session:
        stream = await session.create(model="m", hold=True)
        await stream.get_final_response()
        with pytest.raises(RequestRejectedError) as caught:
            await stream.append(function_call_output("c1", "x"))
        assert caught.value.code == "response_already_completed"


async def test_a_steer_is_refused(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    async with fake.connect() as session:
        stream = await session.create(model="m", hold=True)
        with pytest.raises(RequestRejectedError, match="cannot be steered"):
            await stream.steer("be brief")
