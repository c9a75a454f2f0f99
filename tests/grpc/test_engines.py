"""Engines that are down, refuse, or die: one response fails with a code, its lane and everything else goes on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.runtime.services import Services
from turnwire.server.session.effects import Prepare
from turnwire.server.session.session import Session
from turnwire.v1.response_pb2 import DoneReason

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors, Peer

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Broken(StepEngine):
    """An engine that cannot start a pass."""

    name = "broken"

    def __init__(self) -> None:
        super().__init__([ModelInfo("broken")])

    def start(self, prompt: Any, sink: Any) -> Any:
        msg = "no memory left"
        raise OSError(msg)


class Fickle(StepEngine):
    """An engine that forgets its model between the check of a request and the start of its pass."""

    def __init__(self) -> None:
        super().__init__([ModelInfo("fickle")])
        self.down = False

    def models(self) -> Any:
        return () if self.down else super().models()


def _take(caplog: pytest.LogCaptureFixture, *texts: str) -> None:
    """Checks what was logged, and lets go of it: a logged traceback keeps its frames alive."""
    for text in texts:
        assert text in caplog.text
    caplog.clear()


async def test_without_an_engine_no_model_is_found_and_the_stream_lives(open_door: Doors) -> None:
    door = await open_door(engines=[])
    peer = door.connect()
    assert await peer.refusal(create=peer.asking()) == ("model_not_found", "model")
    await peer.send(ping={"nonce": 1})
    await peer.until("pong")
    await peer.close()


async def test_an_engine_that_cannot_start_fails_its_response_and_no_other(
    open_door: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    engine = StepEngine()
    door = await open_door(engines=[Broken(), engine])
    door.engine = engine
    peer = door.connect()
    for _ in range(2):
        failed = await peer.create("a", model="broken")
        done = await peer.until("done", failed.handle)
        assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "server_error")
        assert "memory" not in done.error.message
    _take(caplog, "no memory left")
    await door.completes(peer, "a")


async def test_an_engine_that_went_down_fails_the_response_as_unavailable(open_door: Doors) -> None:
    fickle = Fickle()

    def check_then_lose(services: Services) -> None:
        prepare = services.policy.prepare

        class Policy:
            prepare_append = services.policy.prepare_append

            def prepare(self, request: Prepare, found: Any = NOTHING) -> Any:
                ready = prepare(request, found)
                fickle.down = True
                # As engines do whose models change.
                services.engines.replace(services.engines.engines)
                return ready

        services.policy = Policy()

    door = await open_door(engines=[fickle], services_of=check_then_lose)
    door.engine = fickle
    peer = door.connect()
    failed = await peer.create("a", model="fickle")
    done = await peer.until("done", failed.handle)
    assert (done.reason, done.error.code, done.error.retry_after.seconds) == (
        DoneReason.DONE_REASON_FAILED,
        "engine_unavailable",
        1,
    )
    fickle.down = False
    again = await peer.create("a", model="fickle")
    done = await peer.until("done", again.handle)
    assert done.error.code == "engine_unavailable"
    await peer.close()


@pytest.mark.parametrize("code", ["server_error", "server_is_overloaded", "context_length_exceeded"])
async def test_an_engine_that_dies_in_the_middle_fails_its_response_and_the_lane_goes_on(
    door: Door, peer: Peer, code: str
) -> None:
    first = await door.completes(peer, "a")
    dying = await peer.create("a", previous_response_id=first.id)
    beside = await peer.create("b")
    await peer.send(lane="a", create=peer.asking(previous_response_id=first.id), request_id="next")
    door.say(dying, "half a sen")
    door.engine.fail(dying.id, code, "the worker went", retry_after=1.5)
    done = await peer.until("done", dying.handle)
    assert (done.reason, done.error.code, done.error.message) == (
        DoneReason.DONE_REASON_FAILED,
        code,
        "the worker went",
    )
    assert (done.error.retry_after.seconds, done.error.retry_after.nanos, done.continuable) == (1, 500_000_000, False)
    # The next in the lane runs, from the parent that the failure left in place.
    created = await peer.until("created")
    assert created.request_id == "next"
    door.engine.finish(created.response.id)
    assert (await peer.until("done")).reason == DoneReason.DONE_REASON_COMPLETED
    door.finish(beside)
    await peer.until("done", beside.handle)


async def test_an_engine_that_dies_in_a_later_pass_leaves_the_last_pause(door: Door, peer: Peer) -> None:
    held = await door.paused(peer)
    await peer.append(held.id, peer.output("call_1"))
    await door.sampling_again(held, 2)
    door.engine.fail(held.id)
    done = await peer.until("done", held.handle)
    assert (done.reason, done.continuable) == (DoneReason.DONE_REASON_FAILED, True)
    again = await peer.create(previous_response_id=held.id)
    door.finish(again)
    await peer.until("done", again.handle)


async def test_a_model_that_never_starts_to_answer_times_out_and_is_freed(door: Door, peer: Peer) -> None:
    silent = await peer.create("a", timeouts={"first_token": {"seconds": 2}})
    door.clock.advance(3)
    done = await peer.until("done", silent.handle)
    assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "first_token_timeout")
    await door.told(silent, "abort")
    await door.completes(peer, "a")


async def test_a_check_that_is_broken_refuses_its_request_and_no_other(
    open_door: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    def break_checks(services: Services) -> None:
        policy = services.policy

        class Policy:
            def prepare(self, request: Prepare, found: Any = NOTHING) -> Any:
                if request.settings.instructions == "break":
                    msg = "a bug"
                    raise ZeroDivisionError(msg)
                return policy.prepare(request, found)

            def prepare_append(
                self, items: Any, visits: Any, conversations: Any, model: str = "", found: Any = NOTHING
            ) -> Any:
                msg = "another bug"
                raise ZeroDivisionError(msg)

        services.policy = Policy()

    door = await open_door(services_of=break_checks)
    peer = door.connect()
    for text in ("small", "large" * 20_000):
        refusal = await peer.refusal(lane="a", create=peer.asking(text, instructions="break"))
        assert refusal == ("server_error", None)
    held = await door.paused(peer, lane="held")
    for text in ("small", "large" * 20_000):
        append = {"response_id": held.id, "input": [peer.output("call_1", text)]}
        assert await peer.refusal(append=append) == ("server_error", None)
    _take(caplog, "a bug", "another bug")
    await door.completes(peer, "a")


@pytest.mark.parametrize("where", ["receive", "engine_output", "engine_ended", "tick", "half_closed", "lost"])
async def test_a_bug_in_a_session_ends_that_session_and_no_other(
    door: Door, peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    running = await peer.create("a")
    (session,) = door.sessions.values()
    other = door.connect()
    await other.create("a")

    broken, works = session.id, getattr(Session, where)

    def fail(session: Session, *args: Any) -> None:
        if session.id == broken:
            msg = "a bug in the core"
            raise ZeroDivisionError(msg)
        works(session, *args)

    monkeypatch.setattr(Session, where, fail)
    del session
    match where:
        case "receive":
            await peer.send(ping={})
        case "engine_output":
            door.say(running, "x")
        case "engine_ended":
            door.finish(running)
        case "tick":
            door.clock.advance(20)
        case "half_closed":
            await peer.call.done_writing()
        case _:
            peer.call.cancel()
    if where != "lost":
        ended = await peer.ended()
        assert (ended.code, ended.error) == (grpc.StatusCode.INTERNAL, ("server_error", None))
        assert "bug" not in ended.message
    await door.watcher.until(lambda watcher: watcher.open == 1)
    _take(caplog, "a bug in the core")
    monkeypatch.undo()
    await door.completes(other)
