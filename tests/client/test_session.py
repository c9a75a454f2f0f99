"""Sessions, streams and lanes over the fake server."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from turnwire.client import (
    ChannelOptions,
    Client,
    ProtocolError,
    RequestRejectedError,
    ResponseFailedError,
    ResponseStream,
    RpcFailedError,
    SessionLost,
    TurnwireError,
    connect,
    function_call_output,
)
from turnwire.client._body import Seconds
from turnwire.client.testing import FakeServer, function_call, message
from turnwire.v1.errors import Remedy
from turnwire.v1.response_pb2 import DoneReason, ResponseStatus, Verbosity
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent
from turnwire.v1.session_pb2 import Pong
from turnwire.v1.usage_pb2 import Usage

QUICK = ChannelOptions(connect_timeout=0.05, close_timeout=0.05, heartbeat=None, flush_interval=0.001)


async def test_events_come_in_order_under_their_official_names(fake: FakeServer) -> None:
    fake.answer(message("Hello there"))
    async with fake.connect() as session:
        stream = await session.create(model="m", input="hi")
        types = [event.type async for event in stream]
    assert types == [
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_item.done",
        "response.done",
    ]
    assert fake.creates[0].input.text == "hi"


async def test_the_final_response_is_whole(fake: FakeServer) -> None:
    fake.answer(message("Hello"), usage=Usage(total_tokens=9))
    async with fake.connect() as session:
        stream = await session.create(model="m", metadata={"k": "v"})
        response = await stream.get_final_response()
    assert response.id == stream.id
    assert response.status == ResponseStatus.RESPONSE_STATUS_COMPLETED
    assert response.output[0].message.content.parts.parts[0].output_text.text == "Hello"
    assert response.usage.total_tokens == 9
    assert response.metadata["k"] == "v"
    assert stream.ended
    assert stream.output_text == "Hello"
    assert stream.usage == Usage(total_tokens=9)


async def test_a_failed_response_raises_unless_told_otherwise(fake: FakeServer) -> None:
    fake.fail("engine_unavailable", "the engine is gone", message("par"))
    async with fake.connect() as session:
        stream = await session.create(model="m")
        with pytest.raises(ResponseFailedError, match="the engine is gone") as caught:
            await stream.get_final_response()
        assert caught.value.remedy is Remedy.RETRY
        assert len(caught.value.response.output) == 1
        response = await stream.get_final_response(raise_on_failure=False)
    assert response.error.code == "engine_unavailable"


async def test_a_refused_create_raises_and_the_session_goes_on(fake: FakeServer) -> None:
    fake.reject("model_not_found", "no model 'x'", param="model", retry_after=1.5)
    fake.answer(message("ok"))
    async with fake.connect() as session:
        with pytest.raises(RequestRejectedError) as caught:
            await session.create(model="x")
        error = caught.value
        assert (error.code, error.param, error.retry_after) == ("model_not_found", "model", 1.5)
        assert error.type == "invalid_request_error"
        assert error.request_id
        await (await session.create(model="m")).get_final_response()


async def test_an_agents_loop_starts_tools_as_soon_as_their_arguments_are_complete(fake: FakeServer) -> None:
    fake.answer(function_call("read", {"path": "a"}, call_id="c1"), function_call("read", {"path": "b"}, call_id="c2"))
    fake.answer(function_call("test", {}, call_id="c3"))
    fake.answer(message("fixed"))
    names: list[str] = []
    async with fake.connect() as session:
        stream = await session.create(model="m", input="fix it", hold=True)
        while not stream.ended:
            async with asyncio.TaskGroup() as tools:
                async for call in stream.calls():
                    names.append(call.call_id)
                    tools.create_task(stream.append(function_call_output(call.call_id, "output")))
        done = await stream.until_done()
    assert names == ["c1", "c2", "c3"]
    assert done.reason == DoneReason.DONE_REASON_COMPLETED
    assert [append.append_index for append in fake.appends] == [0, 1, 2]
    kinds = [item.WhichOneof("kind") for item in stream.output]
    assert kinds == [
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_a_pause_is_read_by_until_done_and_again_while_nobody_answers(fake: FakeServer) -> None:
    fake.answer(message("let me look"), function_call("f", {}, call_id="c1"))
    fake.answer(message("done"))
    async with fake.connect() as session:
        stream = await session.create(model="m", hold=True)
        assert [text async for text in stream.text_deltas()] == ["let", " me", " look"]
        assert [call.call_id async for call in stream.calls()] == ["c1"]
        assert [call.call_id async for call in stream.calls()] == []
        pause = await stream.until_done()
        assert pause.reason == DoneReason.DONE_REASON_TOOL_CALLS
        assert await stream.until_done() == pause
        assert stream.paused
        assert [call.call_id for call in stream.open_calls] == ["c1"]
        await stream.append([function_call_output("c1", "x")])
        assert not stream.open_calls
        assert [text async for text in stream.text_deltas()] == ["done"]
        assert (await stream.until_done()).reason == DoneReason.DONE_REASON_COMPLETED
        assert (await stream.until_done()).reason == DoneReason.DONE_REASON_COMPLETED


async def test_iteration_passes_through_pauses_that_are_answered(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    fake.answer(message("done"))
    reasons: list[int] = []
    async with fake.connect() as session:
        stream = await session.create(model="m", hold=True)
        async for event in stream:
            if event.type == "response.done":
                reasons.append(event.reason)
                if stream.paused:
                    await stream.append(function_call_output("c1", "x"))
    assert reasons == [DoneReason.DONE_REASON_TOOL_CALLS, DoneReason.DONE_REASON_COMPLETED]


async def test_a_refused_append_leaves_the_call_open(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    fake.answer(message("done"))
    async with fake.connect() as session:
        stream = await session.create(model="m", hold=True)
        await stream.until_done()
        with pytest.raises(RequestRejectedError, match="No tool call found"):
            await stream.append(function_call_output("c9", "x"))
        assert [call.call_id for call in stream.open_calls] == ["c1"]
        await stream.append({"type": "function_call_output", "call_id": "c1", "output": "x"})
        assert (await stream.get_final_response()).status == ResponseStatus.RESPONSE_STATUS_COMPLETED


async def test_a_cancelled_append_stays_unconfirmed_and_does_no_harm(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    fake.answer(message("done"))
    async with fake.connect() as session:
        stream = await session.create(model="m", hold=True)
        await stream.until_done()
        task = asyncio.create_task(stream.append(function_call_output("c1", "x")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await stream.get_final_response()
    assert len(fake.appends) == 1


async def test_a_held_response_is_cancelled_in_band(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    async with fake.connect() as session:
        stream = await session.create(model="m", hold=True)
        await stream.until_done()
        done = await stream.cancel()
        assert done.reason == DoneReason.DONE_REASON_CANCELLED
        assert list(done.void_call_ids) == ["c1"]
        assert not stream.open_calls
        assert (await stream.cancel()) == done
        assert session.last_response_id() == stream.id


async def test_cancelling_create_cancels_the_response(fake: FakeServer) -> None:
    fake.hang()
    async with fake.connect() as session:
        task = asyncio.create_task(session.create(model="m"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await session.ping()
    assert fake.cancels
    assert all(response.ended for response in fake.sessions[0].responses.values())


async def test_leaving_a_stream_cancels_what_still_runs(fake: FakeServer) -> None:
    fake.hang(message("endless"))
    async with fake.connect() as session:
        async with await session.create(model="m") as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    break
        await session.ping()
        assert stream.ended
    assert [cancel.response_id for cancel in fake.cancels] == [stream.id]


async def test_a_cancelled_read_loses_no_event(fake: FakeServer) -> None:
    fake.hang()
    async with fake.connect() as session:
        stream = await session.create(model="m")
        assert (await anext(stream)).type == "response.created"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(stream)
        await stream.cancel()
        assert [event.type async for event in stream] == ["response.done"]


async def test_lanes_chain_by_themselves(fake: FakeServer) -> None:
    for text in ("one", "two", "new"):
        fake.answer(message(text))
    async with fake.connect() as session:
        lane = session.lane("a")
        first = await lane.create(model="m", input="1")
        await first.get_final_response()
        assert lane.last_response_id == first.id
        second = await lane.create(model="m", input="2")
        await second.get_final_response()
        await (await lane.create(model="m", input="3", previous_response_id=None)).get_final_response()
    assert [create.previous_response_id for create in fake.creates] == ["", first.id, ""]
    assert [request.lane for request in fake.requests if request.HasField("create")] == ["a"] * 3
    assert second.lane == "a"


async def test_a_failed_turn_leaves_the_lane_where_it_was(fake: FakeServer) -> None:
    fake.answer(message("one"))
    fake.fail("server_error", "no")
    async with fake.connect() as session:
        lane = session.lane("a")
        first = await lane.create(model="m")
        await first.get_final_response()
        await (await lane.create(model="m")).get_final_response(raise_on_failure=False)
        assert lane.last_response_id == first.id


async def test_forks_name_their_parent(fake: FakeServer) -> None:
    fake.answer(message("one"))
    fake.answer(message("two"))
    async with fake.connect() as session:
        parent = await session.create(model="m")
        await parent.get_final_response()
        fork = await parent.fork(lane="b", input="other")
        assert isinstance(fork, ResponseStream)
        assert fork.lane == "b"
    assert fake.creates[1].previous_response_id == parent.id


async def test_a_fork_waits_for_something_to_continue(fake: FakeServer) -> None:
    fake.hang(message("not yet"))
    fake.answer(message("two"))
    async with asyncio.timeout(5), fake.connect() as session:
        parent = await session.create(model="m")
        forking = asyncio.create_task(parent.fork(lane="b"))
        await session.ping()
        assert len(fake.creates) == 1
        done = ResponseDone(reason=DoneReason.DONE_REASON_COMPLETED, continuable=True)
        fake.sessions[0].send(ServerEvent(response=1, sequence_number=100, done=done))
        await (await forking).get_final_response()
        assert fake.creates[1].previous_response_id == parent.id
        # It took no event from who reads the parent.
        assert (await anext(parent)).type == "response.created"


async def test_a_fork_that_waits_hears_of_a_loss(fake: FakeServer) -> None:
    fake.hang()
    async with asyncio.timeout(5), fake.connect() as session:
        parent = await session.create(model="m")
        fake.drop(RpcFailedError("UNAVAILABLE", "gone"))
        with pytest.raises(SessionLost, match="gone"):
            await parent.fork(lane="b")


async def test_lanes_spread_over_streams_and_forks_follow_their_parent(fake: FakeServer) -> None:
    names = [f"lane-{n}" for n in range(16)]
    for _ in range(len(names) + 2):
        fake.answer(message("x"))
    async with fake.connect(streams=2) as session:
        streams = [await session.create(model="m", lane=name) for name in names]
        counts = [len(one.responses) for one in fake.sessions]
        assert sum(counts) == len(names)
        assert all(counts)
        home = next(index for index, one in enumerate(fake.sessions) if streams[0].id in one.responses)
        other = next(
            name for name, one in zip(names, streams, strict=True) if one.id not in fake.sessions[home].responses
        )
        fork = await streams[0].fork(lane=other)
        assert fork.id in fake.sessions[home].responses
        await session.create(model="m")
        assert len(fake.sessions[0].responses) == counts[0] + 1 + (home == 0)
        assert await session.ping() >= 0


async def test_a_response_nobody_reads_blocks_no_other(fake: FakeServer) -> None:
    fake.answer(message("unread " * 1000))
    fake.answer(message("read"))
    async with fake.connect() as session:
        await session.create(model="m", lane="a")
        stream = await session.create(model="m", lane="b")
        async with asyncio.timeout(5):
            await stream.get_final_response()


async def test_credit_returns_as_the_application_reads() -> None:
    fake = FakeServer(response_credit_bytes=4096)
    fake.hang(message("word " * 1000))
    async with fake.connect(options=QUICK) as session:
        stream = await session.create(model="m")
        await session.ping()
        assert not [request for request in fake.requests if request.HasField("credit")]
        size = 0
        async for event in stream:
            if event.type != "response.created":
                size += event.proto.ByteSize()
            if event.type == "response.output_item.done":
                break
        more = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(5):
            while sum(request.credit.bytes for request in fake.requests) < size:
                await session.ping()
        more.cancel()
        returned = [request.credit for request in fake.requests if request.HasField("credit")]
        assert sum(credit.bytes for credit in returned) == size
        assert {credit.response for credit in returned} == {1}
        assert len(returned) < 8


async def test_receipt_is_acknowledged() -> None:
    fake = FakeServer(session_credit_bytes=16 * 1024)
    fake.answer(message("word " * 2000))
    async with fake.connect(options=QUICK) as session:
        await session.create(model="m")
        async with asyncio.timeout(5):
            await fake.asked("ack")


async def test_settings_are_sent_when_the_session_is_opened(fake: FakeServer) -> None:
    options = ChannelOptions(session_credit_bytes=1 << 20, response_credit_bytes=0, max_event_bytes=4096)
    async with connect(
        "memory", transport=fake.transport, verbosity="done", batch_window=0.005, options=options
    ) as session:
        assert session.id.startswith("sess_")
        assert session.opened.server == "fake"
    opened = fake.requests[0].open
    assert opened.verbosity == Verbosity.VERBOSITY_DONE
    assert opened.batch_window.nanos == 5_000_000
    assert (opened.session_credit_bytes, opened.response_credit_bytes) == (1 << 20, 0)
    assert opened.max_event_bytes == 4096
    assert "append" in opened.features


@pytest.mark.parametrize("window", [-0.001, 0.11, timedelta(minutes=1)])
def test_a_batch_window_that_no_server_takes_is_refused_at_once(window: Seconds) -> None:
    with pytest.raises(ValueError, match=r"a batch window is 0 to 0\.1 seconds, not "):
        connect(batch_window=window)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "кл\u044eч"])
def test_a_key_that_cannot_be_sent_is_refused_at_once_and_not_shown(key: str) -> None:
    for use in (connect, Client):
        with pytest.raises(ValueError, match="visible ASCII characters") as caught:
            use(api_key=key)
        assert key not in str(caught.value)


async def test_at_the_verbosity_of_done_the_calls_come_with_the_pause(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    fake.answer(message("done"))
    async with fake.connect(verbosity="done") as session:
        stream = await session.create(model="m", hold=True)
        async for call in stream.calls():
            await stream.append(function_call_output(call.call_id, "x"))
        response = await stream.get_final_response()
    kinds = [item.WhichOneof("kind") for item in response.output]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert stream.output_text == "done"


async def test_calls_that_come_with_the_pause_are_found_by_who_waits_already(fake: FakeServer) -> None:
    fake.hang()
    async with fake.connect(verbosity="done") as session:
        stream = await session.create(model="m", hold=True)
        found = asyncio.ensure_future(anext(stream.calls()))
        await session.ping()
        done = ResponseDone(
            reason=DoneReason.DONE_REASON_TOOL_CALLS,
            output=[function_call("f", {}, call_id="c1")],
            awaiting_call_ids=["c1"],
        )
        fake.sessions[0].send(ServerEvent(response=1, sequence_number=9, done=done))
        async with asyncio.timeout(5):
            assert (await found).call_id == "c1"


async def test_everyone_who_waits_hears_of_a_loss(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    fake.hang(message("on its way"))
    async with connect("memory", transport=fake.transport) as session:
        held = await session.create(model="m", lane="a", hold=True)
        await held.until_done()
        running = await session.create(model="m", lane="b")
        waiting: list[asyncio.Task[object]] = [
            asyncio.create_task(running.get_final_response()),
            asyncio.create_task(held.get_final_response()),
            asyncio.create_task(running.until_done()),
        ]
        await asyncio.sleep(0)
        fake.drop(RpcFailedError("UNAVAILABLE", "connection reset"))
        async with asyncio.timeout(5):
            results = await asyncio.gather(*waiting, return_exceptions=True)
            with pytest.raises(SessionLost):
                await session.create(model="m")
            with pytest.raises(SessionLost):
                await held.append(function_call_output("c1", "x"))
            with pytest.raises(SessionLost):
                await session.ping()
    for result in results:
        assert isinstance(result, SessionLost)
        assert isinstance(result.__cause__, RpcFailedError)
        assert result.reason == "UNAVAILABLE"
        assert "connection reset" in str(result)
        assert result.last_response_ids == {"a": held.id}
        assert list(result.open_calls) == [held.id]
        assert [one.response_id for one in result.in_flight] == [held.id, running.id]
        assert not result.unacknowledged_appends
    assert session.lost


async def test_what_arrived_before_a_loss_can_still_be_read(fake: FakeServer) -> None:
    fake.hang(message("on its way"))
    async with connect("memory", transport=fake.transport) as session:
        stream = await session.create(model="m")
        fake.drop(RpcFailedError("UNAVAILABLE", "gone"))
        while (await anext(stream)).type != "response.output_item.done":
            pass
        with pytest.raises(SessionLost):
            await anext(stream)


async def test_a_go_away_stops_creates_and_explains_the_loss(fake: FakeServer) -> None:
    fake.answer(function_call("f", {}, call_id="c1"))
    async with connect("memory", transport=fake.transport) as session:
        stream = await session.create(model="m", hold=True)
        await stream.until_done()
        fake.go_away("max_age")
        await session.ping()
        assert session.go_away is not None
        with pytest.raises(RequestRejectedError, match="max_age") as caught:
            await session.create(model="m")
        assert caught.value.remedy is Remedy.RECONNECT
        fake.drop(RpcFailedError("UNAVAILABLE", "shutting down"))
        with pytest.raises(SessionLost) as lost:
            await stream.get_final_response()
        assert lost.value.reason == "max_age"
        assert lost.value.go_away is not None


async def test_an_end_in_order_is_a_loss_too_for_who_still_waits(fake: FakeServer) -> None:
    fake.hang()
    async with connect("memory", transport=fake.transport) as session:
        stream = await session.create(model="m")
        fake.drop()
        with pytest.raises(SessionLost, match="the server ended the session") as caught:
            await stream.get_final_response()
        assert caught.value.reason == "ended"


async def test_a_server_that_breaks_the_protocol_is_left(fake: FakeServer) -> None:
    fake.hang()
    async with connect("memory", transport=fake.transport) as session:
        stream = await session.create(model="m")
        fake.sessions[0].last_event_id += 5
        fake.sessions[0].send(ServerEvent(pong=Pong()))
        with pytest.raises(SessionLost) as caught:
            await stream.get_final_response()
        assert isinstance(caught.value.__cause__, ProtocolError)
        assert caught.value.reason == "protocol_error"


async def test_the_end_of_one_stream_concerns_its_lanes_only(fake: FakeServer) -> None:
    fake.answer(message("ok"))
    async with connect("memory", transport=fake.transport, streams=2) as session:
        fake.sessions[1].end(RpcFailedError("UNAVAILABLE", "gone"))
        await (await session.create(model="m")).get_final_response()
        with pytest.raises(SessionLost):
            await session.ping()
        assert not session.lost


async def test_closing_says_so_to_the_server_and_to_who_still_waits(fake: FakeServer) -> None:
    fake.hang()
    session = await connect("memory", transport=fake.transport)
    stream = await session.create(model="m")
    waiting = asyncio.create_task(stream.get_final_response())
    await asyncio.sleep(0)
    await session.close()
    await session.close()
    with pytest.raises(SessionLost, match="closed") as caught:
        await waiting
    assert caught.value.reason == "closed"
    assert fake.requests[-1].HasField("close")


async def test_closing_does_not_wait_for_ever() -> None:
    fake = FakeServer()
    session = await connect("memory", transport=fake.transport, options=QUICK)
    fake.sessions[0].end = lambda error: None
    async with asyncio.timeout(5):
        await session.close()


async def test_a_server_that_does_not_open_is_reported_in_time() -> None:
    fake = FakeServer()

    def silent() -> object:
        transport = fake.transport()
        transport.deliver = lambda batch: None  # type: ignore[method-assign]
        fake.sessions[-1].deliver = lambda batch: None
        return transport

    with pytest.raises(TurnwireError, match=r"memory opened no session within 0\.05 s"):
        await connect("memory", transport=silent, options=QUICK)  # type: ignore[arg-type]


async def test_a_quiet_session_asks_for_a_sign_of_life(fake: FakeServer) -> None:
    options = ChannelOptions(heartbeat=0.001)
    async with fake.connect(options=options), asyncio.timeout(5):
        await fake.asked("ping")


async def test_requests_wait_for_room_in_their_own_call(fake: FakeServer) -> None:
    for _ in range(20):
        fake.answer(message("x"))
    async with fake.connect(options=ChannelOptions(max_waiting_requests=1)) as session:
        streams = await asyncio.gather(*(session.create(model="m", lane=f"l{n}") for n in range(20)))
        assert len({stream.id for stream in streams}) == 20


async def test_a_session_in_memory_has_no_one_shot_methods(fake: FakeServer) -> None:
    async with fake.connect() as session:
        with pytest.raises(TurnwireError, match="no one-shot methods"):
            await session.list_models()


async def test_no_task_is_left_behind(fake: FakeServer) -> None:
    before = asyncio.all_tasks()
    fake.hang()
    async with fake.connect() as session:
        await session.create(model="m")
    assert asyncio.all_tasks() == before
