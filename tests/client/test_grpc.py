"""The client over real gRPC, against a small server in the same process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from grpc import aio

from turnwire.client import (
    AuthenticationError,
    ChannelOptions,
    Client,
    ConnectError,
    RequestRejectedError,
    RpcFailedError,
    SessionLost,
    connect,
    function_call_output,
)
from turnwire.client.testing import function_call, message
from turnwire.v1.errors import Remedy
from turnwire.v1.response_pb2 import DoneReason, Response
from turnwire.v1.server_event_pb2 import OutputItemTruncated, ResponseDone, ServerEvent

if TYPE_CHECKING:
    from tests.client.conftest import GrpcFake


async def test_a_held_response_runs_over_grpc(grpc_fake: GrpcFake) -> None:
    grpc_fake.fake.answer(function_call("f", {}, call_id="c1"))
    grpc_fake.fake.answer(message("It works"))
    async with asyncio.timeout(10), connect(grpc_fake.address) as session:
        stream = await session.create(model="m", input="x", hold=True)
        async for call in stream.calls():
            await stream.append(function_call_output(call.call_id, "y"))
        await stream.get_final_response()
        assert stream.output_text == "It works"
        assert await session.ping() > 0
    assert grpc_fake.fake.requests[-1].HasField("close")


async def test_streams_are_connections_of_their_own(grpc_fake: GrpcFake) -> None:
    for _ in range(8):
        grpc_fake.fake.answer(message("x"))
    async with asyncio.timeout(10), connect(grpc_fake.address, streams=3) as session:
        await asyncio.gather(*(session.create(model="m", lane=f"l{n}") for n in range(8)))
    assert len(grpc_fake.fake.sessions) == 3


async def test_nobody_listening_is_said_plainly() -> None:
    with pytest.raises(ConnectError, match=r"cannot reach 127\.0\.0\.1:1: .*check the address"):
        async with asyncio.timeout(10), connect("127.0.0.1:1"):
            pass


async def test_another_service_is_said_plainly() -> None:
    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(ConnectError, match=r"does not speak turnwire\.v1"):
            await connect(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)


async def test_a_key_is_sent_and_its_absence_explained(grpc_fake: GrpcFake) -> None:
    grpc_fake.servicer.api_key = "secret"
    with pytest.raises(AuthenticationError, match="wants an API key"):
        await connect(grpc_fake.address)
    async with connect(grpc_fake.address, api_key="secret") as session:
        assert session.id


async def test_a_broken_stream_is_a_loss(grpc_fake: GrpcFake) -> None:
    grpc_fake.fake.hang()
    async with asyncio.timeout(10), connect(grpc_fake.address) as session:
        stream = await session.create(model="m")
        grpc_fake.fake.drop(RpcFailedError("RESOURCE_EXHAUSTED", "too slow"))
        with pytest.raises(SessionLost, match="too slow") as caught:
            await stream.get_final_response()
        assert caught.value.reason == "RESOURCE_EXHAUSTED"


async def test_a_reset_stream_is_a_loss_not_a_cancellation(grpc_fake: GrpcFake) -> None:
    grpc_fake.fake.hang()
    async with asyncio.timeout(10), connect(grpc_fake.address) as session:
        stream = await session.create(model="m")
        grpc_fake.fake.drop(RpcFailedError("CANCELLED", "reset"))
        with pytest.raises(SessionLost) as caught:
            await stream.get_final_response()
        assert caught.value.reason == "CANCELLED"


async def test_a_server_that_dies_is_a_loss(grpc_fake: GrpcFake) -> None:
    grpc_fake.fake.hang()
    async with asyncio.timeout(10), connect(grpc_fake.address) as session:
        stream = await session.create(model="m")
        await grpc_fake.server.stop(None)
        with pytest.raises(SessionLost):
            await stream.get_final_response()


async def test_one_shot_methods_carry_the_error_of_the_table(grpc_fake: GrpcFake) -> None:
    async with asyncio.timeout(10), connect(grpc_fake.address) as session:
        assert [model.id for model in await session.list_models()] == ["m"]
        with pytest.raises(RequestRejectedError, match="no response resp_x") as caught:
            await session.get_response("resp_x")
        error = caught.value
        assert (error.code, error.param, error.retry_after) == ("response_not_found", "response_id", 2.0)
        assert error.error.metadata == {"a": "b"}
        assert error.remedy is Remedy.FIX
        with pytest.raises(RpcFailedError) as failed:
            await session.get_capabilities()
        assert failed.value.status == "UNIMPLEMENTED"


async def test_one_shot_methods_need_no_session(grpc_fake: GrpcFake) -> None:
    async with asyncio.timeout(10), Client(grpc_fake.address) as client:
        assert [model.id for model in await client.rpc.list_models()] == ["m"]
        async with client.connect() as session:
            assert session.id
    assert len(grpc_fake.fake.sessions) == 1


async def test_many_lanes_share_one_stream(grpc_fake: GrpcFake) -> None:
    for _ in range(50):
        grpc_fake.fake.answer(message("word " * 100))
    async with asyncio.timeout(20), connect(grpc_fake.address) as session:

        async def run(lane: str) -> str:
            stream = await session.create(model="m", lane=lane)
            return "".join([text async for text in stream.text_deltas()])

        texts = await asyncio.gather(*(run(f"l{n}") for n in range(50)))
    assert set(texts) == {"word " * 100}
    assert len(grpc_fake.fake.sessions) == 1


async def test_a_create_that_is_cancelled_leaves_the_stream_whole(grpc_fake: GrpcFake) -> None:
    grpc_fake.fake.hang()
    grpc_fake.fake.answer(message("ok"))
    async with asyncio.timeout(10), connect(grpc_fake.address) as session:
        task = asyncio.create_task(session.create(model="m"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await (await session.create(model="m", lane="b")).get_final_response()


async def test_items_too_large_to_send_are_fetched(grpc_fake: GrpcFake) -> None:
    fake = grpc_fake.fake
    fake.hang()
    call = function_call("write", {"text": "x" * 5000}, call_id="c1")
    async with asyncio.timeout(10), connect(grpc_fake.address) as session:
        stream = await session.create(model="m", hold=True)
        grpc_fake.servicer.stored[stream.id] = Response(id=stream.id, output=[call])
        truncated = OutputItemTruncated(output_index=0, type="function_call", call_id="c1")
        done = ResponseDone(reason=DoneReason.DONE_REASON_TOOL_CALLS, awaiting_call_ids=["c1"], continuable=True)
        fake.sessions[0].send(
            ServerEvent(response=1, sequence_number=5, output_item_truncated=truncated),
            ServerEvent(response=1, sequence_number=6, done=done),
        )
        fake.sessions[0].responses[stream.id].sequence = 7
        [fetched] = [found async for found in stream.calls()]
        assert fetched == call.function_call
        assert stream.open_calls == [call.function_call]
        await stream.cancel()
        response = await stream.get_final_response()
        assert list(response.output) == [call]


async def test_a_unix_socket_serves_as_well(grpc_fake: GrpcFake) -> None:
    async with asyncio.timeout(10), connect(grpc_fake.socket) as session:
        assert await session.ping() > 0


async def test_options_reach_the_session(grpc_fake: GrpcFake) -> None:
    options = ChannelOptions(session_credit_bytes=0, response_credit_bytes=0)
    async with connect(f"grpc://{grpc_fake.address}", options=options):
        pass
    assert grpc_fake.fake.requests[0].open.HasField("session_credit_bytes")
