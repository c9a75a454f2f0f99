"""The end of sessions and of servers: what runs may end, what is new is refused, what is held is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2

from turnwire.server.session.limits import SessionLimits
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.response_pb2 import DoneReason

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors, Peer

_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def _watch(door: Door, service: str = "") -> Any:
    """Watches a server that serves."""
    channel: Any = door.channel
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(
        health_pb2.HealthCheckRequest(service=service).SerializeToString()
    )
    assert await _health(watch) == health_pb2.HealthCheckResponse.SERVING
    return watch


async def _health(watch: Any) -> Any:
    async with asyncio.timeout(5):
        return health_pb2.HealthCheckResponse.FromString(await watch.read()).status


async def test_a_close_cancels_what_runs_and_ends_the_stream_well(door: Door, peer: Peer) -> None:
    held = await door.paused(peer, lane="held")
    running = await peer.create("a")
    await peer.send(lane="a", create=peer.asking(), request_id="waits")
    await peer.until("queued")
    await peer.send(close={})
    ends: dict[int, Any] = {}
    while len(ends) < 3:
        event = await peer.next()
        if event.WhichOneof("event") == "done":
            ends[event.response] = event.done
    assert {done.reason for done in ends.values()} == {DoneReason.DONE_REASON_CANCELLED}
    assert ends[held.handle].continuable
    assert list(ends[held.handle].void_call_ids) == ["call_1"]
    assert (await peer.ended()).code is grpc.StatusCode.OK
    await door.told(running, "abort")
    # The request that waited never reached the engine.
    assert len(door.engine.passes) == 2


async def test_a_draining_close_lets_what_runs_end_and_refuses_what_is_new(door: Door, peer: Peer) -> None:
    running = await peer.create("a")
    await peer.send(close={"drain": True})
    assert await peer.refusal(lane="b", create=peer.asking()) == ("session_closing", None)
    door.finish(running)
    assert (await peer.until("done", running.handle)).reason == DoneReason.DONE_REASON_COMPLETED
    assert (await peer.ended()).code is grpc.StatusCode.OK


async def test_what_is_sent_after_a_close_is_not_heard(door: Door, peer: Peer) -> None:
    await peer.send(close={})
    assert (await peer.ended()).code is grpc.StatusCode.OK
    await door.emptied()
    await door.completes(door.connect())


async def test_a_server_that_stops_lets_what_runs_end_and_takes_nothing_new(door: Door, peer: Peer) -> None:
    running = await peer.create("a")
    held = await door.paused(peer, lane="held")
    idle = door.connect()
    await idle.send(ping={})
    await idle.until("pong")
    fresh = door.new_channel()
    await fresh.channel_ready()

    stopping = asyncio.create_task(door.server.stop(grace=30.0))
    go_away = await peer.until("go_away")
    assert (go_away.reason, go_away.grace.seconds) == ("shutdown", 30)

    # An idle session ends at once, a busy one takes no more, a new one is not let in.
    assert (await idle.ended()).code is grpc.StatusCode.OK
    assert await peer.refusal(lane="b", create=peer.asking()) == ("session_closing", None)
    for channel in (fresh, door.channel):
        assert (await door.connect(channel=channel).ended()).code is grpc.StatusCode.UNAVAILABLE

    # What runs ends as if nothing were; what is held may be answered until the grace is over.
    door.say(running, "to the end")
    door.finish(running)
    assert (await peer.until("done", running.handle)).reason == DoneReason.DONE_REASON_COMPLETED
    await peer.append(held.id, peer.output("call_1"))
    await door.sampling_again(held, 3)
    door.call(held, "call_2")
    door.finish(held)
    await peer.until("done", held.handle)
    assert not stopping.done()
    door.clock.advance(31)
    done = await peer.until("done", held.handle)
    assert (done.reason, done.error.code, done.continuable) == (
        DoneReason.DONE_REASON_FAILED,
        "server_shutting_down",
        True,
    )
    assert (await peer.ended()).code is grpc.StatusCode.OK
    # Long before the grace of thirty seconds.
    async with asyncio.timeout(5):
        await stopping


async def test_a_one_shot_request_ends_within_the_grace(door: Door) -> None:
    create = pb.CreateResponseRequest(create=door.connect().asking())
    asking = asyncio.create_task(door.ask("CreateResponse", create))
    (sampling,) = await door.engine.started(1)
    stopping = asyncio.create_task(door.server.stop(grace=30.0))
    door.engine.finish(sampling.prompt.response_id)
    assert isinstance(await asking, bytes)
    async with asyncio.timeout(5):
        await stopping


async def test_a_one_shot_request_that_does_not_end_is_told_why(door: Door) -> None:
    watch = await _watch(door)
    create = pb.CreateResponseRequest(create=door.connect().asking())
    asking = asyncio.create_task(door.ask("CreateResponse", create))
    (sampling,) = await door.engine.started(1)
    stopping = asyncio.create_task(door.server.stop(grace=30.0))
    assert await _health(watch) == _NOT_SERVING
    door.clock.advance(31)
    ended = await asking
    assert not isinstance(ended, bytes)
    assert (ended.code, ended.error) == (grpc.StatusCode.UNAVAILABLE, ("server_shutting_down", None))
    assert sampling.aborted
    async with asyncio.timeout(5):
        await stopping


async def test_health_says_no_while_draining_and_its_watchers_do_not_delay_the_end(door: Door, peer: Peer) -> None:
    watches = [await _watch(door, service) for service in ("", "turnwire.v1.ResponsesService")]
    running = await peer.create()
    stopping = asyncio.create_task(door.server.stop(grace=30.0))
    for watch in watches:
        assert await _health(watch) == _NOT_SERVING
    door.finish(running)
    await peer.until("done", running.handle)
    async with asyncio.timeout(5):
        await stopping


async def test_a_stop_without_grace_ends_everything_at_once(door: Door, peer: Peer) -> None:
    running = await peer.create()
    await door.server.stop(0)
    await door.told(running, "abort")
    assert (await peer.ended()).code is not grpc.StatusCode.OK
    await door.emptied()


async def test_a_stop_that_is_cancelled_can_be_made_shorter(door: Door, peer: Peer) -> None:
    running = await peer.create()
    stopping = asyncio.create_task(door.server.stop(grace=30.0))
    await peer.until("go_away")
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    door.say(running, "still here")
    await peer.until("output_text_delta")
    async with asyncio.timeout(5):
        await door.server.stop(0)
    await door.told(running, "abort")


async def test_an_idle_session_is_sent_away_in_order(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(idle_timeout=60.0))
    peer = door.connect()
    await door.completes(peer)
    door.clock.advance(61)
    assert (await peer.until("go_away")).reason == "idle"
    assert (await peer.ended()).code is grpc.StatusCode.OK


async def test_a_session_that_is_too_old_is_sent_away_and_what_runs_may_end(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_age=60.0))
    peer = door.connect()
    running = await peer.create()
    door.clock.advance(61)
    assert (await peer.until("go_away")).reason == "max_age"
    assert await peer.refusal(lane="b", create=peer.asking()) == ("session_closing", None)
    door.finish(running)
    await peer.until("done")
    assert (await peer.ended()).code is grpc.StatusCode.OK
