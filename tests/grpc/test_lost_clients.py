"""Clients that go, do not read, or say more than they read: the engine is freed and nothing stays behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from turnwire.server.session.limits import SessionLimits
from turnwire.v1.client_event_pb2 import ConnectRequest, ResponseAppend
from turnwire.v1.response_pb2 import DoneReason

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors, Peer

_PIECE = "x" * 4096
_STALL = SessionLimits().stall_timeout


async def _time_passes(door: Door, seconds: float, reader: Peer) -> None:
    """Moves the clock in steps, between which a client that reads takes what waits for it."""
    for step in range(int(seconds)):
        door.clock.advance(1.0)
        await reader.send(ping={"nonce": step})
        while (await reader.until("pong")).nonce != step:
            pass


@pytest.mark.parametrize("how", ["cancels the call", "closes the connection"])
async def test_a_client_that_goes_frees_what_runs_waits_and_is_held(door: Door, how: str) -> None:
    channel = door.new_channel()
    peer, other = door.connect(channel=channel), door.connect()
    await other.send(ping={"nonce": 1})
    await other.until("pong")
    held = await door.paused(peer, lane="held")
    running = await peer.create("a")
    door.say(running, "once upon a time")
    await peer.send(lane="a", create=peer.asking(), request_id="waits")
    await peer.until("queued")
    large = peer.asking("x" * 2_000_000)
    await peer.send(lane="large", create=large)

    if how == "cancels the call":
        peer.call.cancel()
    else:
        await channel.close()

    await door.told(running, "abort")
    await door.watcher.until(lambda watcher: watcher.open == 1)
    assert len(door.sessions) == 1
    assert door.sampling(held).ended
    await door.completes(other)


async def test_a_deadline_on_the_stream_ends_it_and_frees_the_engine(door: Door) -> None:
    peer = door.connect(timeout=0.3)
    running = await peer.create()
    assert (await peer.ended()).code is grpc.StatusCode.DEADLINE_EXCEEDED
    await door.told(running, "abort")
    await door.emptied()


async def test_a_half_close_lets_what_runs_end_and_holds_go(door: Door, peer: Peer) -> None:
    held = await door.paused(peer, lane="held")
    running = await peer.create("a", hold=True)
    await peer.send(lane="a", create=peer.asking("next"))
    await peer.call.done_writing()

    assert (await peer.until("done", held.handle)).reason == DoneReason.DONE_REASON_CANCELLED
    door.call(running, "call_1")
    door.finish(running)
    done = await peer.until("done", running.handle)
    assert (done.reason, list(done.awaiting_call_ids)) == (DoneReason.DONE_REASON_COMPLETED, ["call_1"])
    created = await peer.until("created")
    door.engine.finish(created.response.id)
    await peer.until("done")
    assert (await peer.ended()).code is grpc.StatusCode.OK


async def test_one_request_and_a_half_close_is_answered_whole(door: Door, peer: Peer) -> None:
    await peer.send(create=peer.asking())
    await peer.call.done_writing()
    created = await peer.until("created")
    door.engine.finish(created.response.id)
    assert (await peer.until("done")).reason == DoneReason.DONE_REASON_COMPLETED
    assert (await peer.ended()).code is grpc.StatusCode.OK


async def test_nothing_but_a_half_close_is_an_orderly_end(door: Door, peer: Peer) -> None:
    await peer.call.done_writing()
    assert (await peer.ended()).code is grpc.StatusCode.OK


async def test_a_client_without_credits_that_never_reads_is_cut_off_and_its_engine_freed(door: Door) -> None:
    silent, other = door.connect(channel=door.new_channel()), door.connect()
    response = await silent.create()
    await door.fill(response)
    await other.create("a")

    await _time_passes(door, _STALL * 2, other)

    # Freed at once, not when the client reads again, which it may never do.
    await door.told(response, "abort")
    await door.watcher.until(lambda watcher: watcher.open == 1)
    await door.completes(other)
    ended = await silent.ended()
    assert (ended.code, ended.error) == (grpc.StatusCode.RESOURCE_EXHAUSTED, ("slow_consumer", None))


async def test_a_client_that_never_acknowledges_is_cut_off_and_its_engine_freed(door: Door) -> None:
    silent, other = door.connect(channel=door.new_channel()), door.connect()
    await silent.send(open={"session_credit_bytes": 16 * 1024, "response_credit_bytes": 0})
    await silent.until("opened")
    response = await silent.create()
    said = await door.fill(response)
    assert said < 300_000
    await other.create("a")

    await _time_passes(door, _STALL * 2, other)

    await door.told(response, "abort")
    ended = await silent.ended()
    assert (ended.code, ended.error) == (grpc.StatusCode.RESOURCE_EXHAUSTED, ("slow_consumer", None))
    await door.completes(other)


async def test_a_response_that_its_reader_leaves_alone_pauses_alone(door: Door, peer: Peer) -> None:
    await peer.send(open={"session_credit_bytes": 0, "response_credit_bytes": 8 * 1024})
    await peer.until("opened")
    left = await peer.create("left")
    await door.fill(left)
    # Others go on, for as long as the client takes them.
    await door.completes(peer)
    assert door.sampling(left).paused
    consumed = sum(event.ByteSize() for event in peer.seen if event.WhichOneof("event") == "output_text_delta")
    await peer.send(credit={"response": left.handle, "bytes": consumed})
    await peer.until("output_text_delta", left.handle)
    await peer.send(cancel={"response_id": left.id})
    await door.told(left, "abort")
    assert (await peer.until("done", left.handle)).reason == DoneReason.DONE_REASON_CANCELLED


async def test_a_client_that_goes_while_a_write_is_blocked_is_noticed(door: Door) -> None:
    channel = door.new_channel()
    silent = door.connect(channel=channel)
    response = await silent.create()
    await door.fill(response)
    await channel.close()
    await door.told(response, "abort")
    await door.emptied()


async def test_a_session_whose_end_is_not_taken_ends_without_its_client(door: Door) -> None:
    silent = door.connect(channel=door.new_channel())
    response = await silent.create()
    await door.fill(response)
    await silent.send(close={})
    await door.told(response, "abort")
    assert len(door.sessions) == 1
    door.clock.advance(_STALL * 2)
    await door.emptied()
    assert (await silent.ended()).code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_client_that_floods_without_reading_is_read_no_more_and_loses_nothing(open_door: Doors) -> None:
    limit, requests = 64, 3_000
    door = await open_door(limits=SessionLimits(max_control_events=limit))
    # A client that takes no more than it must.
    small = door.new_channel([("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 64 * 1024)])
    flood, other = door.connect(channel=small), door.connect()
    await other.create("a")

    async def send() -> None:
        for number in range(requests):
            append = ResponseAppend(response_id="resp_" + "x" * 60, input=[flood.output("c", _PIECE)])
            await flood.call.write(ConnectRequest(request_id=f"r{number}", append=append).SerializeToString())

    sending = asyncio.create_task(send())
    quiet, before = 0, -1
    while quiet < 50 and not sending.done():
        assert _answers_waiting(door) <= limit
        answered = len(door.watcher.codes)
        quiet = quiet + 1 if answered == before else 0
        before = answered
        # Socket buffers fill in their own time: only silence tells that they are full.
        await asyncio.sleep(0.002)
    # It stands still: the client cannot send any more because the server reads no more.
    assert not sending.done()
    assert len(door.watcher.codes) < requests
    await door.completes(other)

    # Whoever reads again gets every answer, in order.
    for number in range(requests):
        assert (await flood.until("rejected")).request_id == f"r{number}"
    await sending
    await door.completes(flood)


async def test_a_client_that_floods_with_large_requests_is_refused_before_memory_is_gone(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_state_bytes=1024 * 1024))
    peer = door.connect()
    await peer.create("a")
    refused = 0
    for _ in range(40):
        await peer.send(lane="a", create=peer.asking("x" * 100_000))
        while (event := await peer.next()).WhichOneof("event") not in ("queued", "rejected"):
            pass
        refused += event.WhichOneof("event") == "rejected"
    assert refused >= 30
    await door.completes(peer)
    await peer.close()


def _answers_waiting(door: Door) -> int:
    """Looks into the sessions for the longest queue of answers."""
    return max(len(getattr(session, "_context").outbox.control) for session in door.sessions.values())  # noqa: B009


async def test_a_flooding_lane_does_not_keep_others_from_ending(door: Door, peer: Peer) -> None:
    loud = await peer.create("loud")
    for _ in range(20):
        door.say(loud, _PIECE)
    await door.completes(peer, "quiet")
    door.finish(loud)
    await peer.until("done", loud.handle)


async def test_many_clients_that_come_and_go_leave_nothing(door: Door) -> None:
    for _ in range(20):
        peer = door.connect()
        await peer.create("a", hold=True)
        await peer.send(create=peer.asking("x" * 50_000), lane="b")
        peer.call.cancel()
    await door.emptied()
    assert not door.sessions


async def test_batches_are_counted_without_a_gap(door: Door, peer: Peer) -> None:
    for lane in ("a", "b", "c"):
        await door.completes(peer, lane)
    assert peer.last_event_id == len(peer.seen)
