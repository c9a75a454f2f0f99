# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from turnwire.server.engine.port import Engine
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Channel, TextChunk
from turnwire.server.session.effects import Prepare, Prepared, ToolResult
from turnwire.server.session.hosted import Listed, Target
from turnwire.server.session.session import Session
from turnwire.server.testing import ManualClock, make_services
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.tool_pb2 import ToolSet

from .conftest import Desk

MakeDesk = Callable[..., Desk]


def text(*pieces: str) -> list[TextChunk]:
    return [TextChunk(Channel.TEXT, piece) for piece in pieces]


async def test_a_small_request_does_not_wait_for_a_large_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    threads: list[int] = []
    prepare = desk.services.policy.prepare

    def slow(request: Prepare) -> Prepared:
        threads.append(threading.get_ident())
        if request.size > 100_000:
            assert release.wait(5)
        return prepare(request)

    monkeypatch.setattr(desk.services.policy, "prepare", slow)
    desk.create("x" * 200_000, "large", lane="a")
    desk.create("x", "small", lane="b")
    assert (await desk.until("created")).created.request_id == "small"
    release.set()
    assert (await desk.until("created")).created.request_id == "large"
    assert len(set(threads)) == 2
    assert threading.get_ident() in threads


async def test_a_large_append_is_checked_apart_and_in_order(desk: Desk) -> None:
    desk.create(hold=True)
    response_id = (await desk.until("created")).created.response.id
    desk.engine.emit(0, [CallStart("f", call_id="c1"), CallEnd(), CallStart("f", call_id="c2"), CallEnd()])
    desk.engine.finish(0)
    await desk.until("done")
    for call_id, size in (("c1", 100_000), ("c2", 1)):
        output = {"function_call_output": {"call_id": call_id, "output": {"text": "x" * size}}}
        desk.send({"append": {"response_id": response_id, "input": [output]}})
    assert list((await desk.until("appended")).appended.awaiting_call_ids) == ["c2"]
    async with asyncio.timeout(5):
        await desk.engine.started(2)


async def test_a_check_that_is_broken_refuses_the_request_and_nothing_else(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: Prepare) -> Prepared:
        raise ZeroDivisionError

    with caplog.at_level(logging.CRITICAL), monkeypatch.context() as patch:
        patch.setattr(desk.services.policy, "prepare", broken)
        desk.create("x", "small")
        assert (await desk.until("rejected")).rejected.error.code == "server_error"
        desk.create("x" * 100_000, "large")
        assert (await desk.until("rejected")).rejected.error.code == "server_error"
    desk.create("x", "good")
    assert (await desk.until("created")).created.request_id == "good"


async def test_a_store_that_is_broken_finds_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(principal: str, response_id: str) -> None:
        raise OSError

    monkeypatch.setattr(desk.services.store, "get", broken)
    with caplog.at_level(logging.CRITICAL):
        desk.create("x", previous_response_id="resp_1")
        assert (await desk.until("rejected")).rejected.error.code == "previous_response_not_found"


async def test_an_engine_that_does_not_start_fails_the_response(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(prompt: object, sink: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(desk.engine, "start", broken)
    with caplog.at_level(logging.CRITICAL):
        desk.create()
        done = (await desk.until("done")).done
    assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "server_error")


async def test_a_model_that_is_gone_by_the_next_pass_fails_the_response(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(model: str) -> Engine | None:
        return None

    monkeypatch.setattr(desk.services.engines, "engine", nobody)
    desk.create()
    assert (await desk.until("done")).done.error.code == "engine_unavailable"


async def test_a_failure_inside_the_core_ends_this_session_and_no_caller_hears_of_it(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = make_desk()
    desk.create()
    await desk.until("created")

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Session, "engine_output", broken)
    with caplog.at_level(logging.CRITICAL):
        desk.engine.emit(0, text("x"))
        while await desk.batch() is not None:
            pass
    assert desk.runner.close_error is not None
    assert desk.runner.close_error.code == "server_error"
    desk.runner.abandon()
    assert desk.engine.find(0).aborted


class Tools:
    def __init__(self, outcome: Callable[[], ToolResult]) -> None:
        self.outcome = outcome
        self.go = asyncio.Event()
        self.cancelled = False
        self.started = asyncio.Event()

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        return frozenset({"h"})

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        return ()

    async def list_tools(self, label: str, tools: ToolSet, principal: str) -> Listed:
        raise NotImplementedError

    async def run(self, target: Target, arguments: str, tools: ToolSet, principal: str) -> ToolResult:
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.outcome()


def broken_tool() -> ToolResult:
    raise ZeroDivisionError


async def call_hosted(desk: Desk) -> None:
    desk.create(tools={"tools": [{"function": {"name": "h"}}]})
    await desk.until("created")
    desk.engine.emit(0, [CallStart("h"), CallDelta("{}"), CallEnd()])
    desk.engine.finish(0)


async def test_the_output_of_a_hosted_tool_is_counted_where_the_tool_does_not(make_desk: MakeDesk) -> None:
    tools = Tools(lambda: ToolResult("one two three"))
    desk = make_desk(tools=tools)
    await call_hosted(desk)
    tools.go.set()
    async with asyncio.timeout(5):
        await desk.engine.started(2)
    first, second = (each.prompt for each in desk.engine.passes)
    # The call's own two tokens, and three of the output.
    assert second.input_tokens - first.input_tokens == 5


async def test_a_hosted_tool_that_raises_is_a_failure_the_model_is_told_of(
    make_desk: MakeDesk, caplog: pytest.LogCaptureFixture
) -> None:
    tools = Tools(broken_tool)
    desk = make_desk(tools=tools)
    await call_hosted(desk)
    tools.go.set()
    with caplog.at_level(logging.CRITICAL):
        item = (await desk.until("output_item_done")).output_item_done.item
    assert item.mcp_call.error == "The tool 'h' failed."
    async with asyncio.timeout(5):
        await desk.engine.started(2)


async def test_abandoning_a_session_frees_everything(make_desk: MakeDesk) -> None:
    before = asyncio.all_tasks()
    tools = Tools(lambda: ToolResult("x"))
    desk = make_desk(tools=tools)
    await call_hosted(desk)
    await tools.started.wait()
    desk.create(lane="b")
    desk.create("x" * 100_000, lane="c")
    async with asyncio.timeout(5):
        await desk.engine.started(2)
    desk.runner.abandon()
    desk.runner.abandon()
    assert desk.engine.find(1).aborted
    assert await desk.batch() is None
    left = asyncio.all_tasks() - before
    await asyncio.gather(*left, return_exceptions=True)
    assert tools.cancelled
    assert asyncio.all_tasks() == before
    assert not desk.services.sessions
    assert desk.clock.pending == 0
    desk.create()
    desk.runner.half_closed()
    desk.runner.go_away("shutdown", 1.0, 0.0)
    assert await desk.batch() is None


async def test_one_timer_serves_all_deadlines(desk: Desk) -> None:
    for lane in "abcdef":
        desk.create(lane=lane, hold=True)
    async with asyncio.timeout(5):
        await desk.engine.started(6)
    for number in range(6):
        desk.engine.emit(number, [CallStart("f"), CallEnd()])
        desk.engine.finish(number)
    assert desk.clock.pending <= 2


async def test_an_earlier_deadline_replaces_the_timer(desk: Desk) -> None:
    desk.create(timeouts={"first_token": "1s"})
    await desk.until("created")
    desk.clock.advance(1.1)
    assert (await desk.until("done")).done.error.code == "first_token_timeout"


async def test_the_batch_window_delays_text_and_nothing_else(make_desk: MakeDesk) -> None:
    desk = make_desk(batch_window=0.01)
    desk.create()
    await desk.until("created")
    desk.engine.emit(0, text("first"))
    assert (await desk.until("output_text_delta")).output_text_delta.delta == "first"
    desk.engine.emit(0, text("a"))
    assert await desk.idle()
    desk.clock.advance(0.005)
    desk.engine.emit(0, text("b"))
    assert await desk.idle()
    desk.clock.advance(0.006)
    # Its client did not ask for a window, so it gets what the engine said piece by piece.
    assert [event.output_text_delta.delta for event in await desk.batch() or ()] == ["a", "b"]
    desk.engine.emit(0, text("c"))
    desk.engine.finish(0)
    assert [event.WhichOneof("event") for event in await desk.batch() or ()] == [
        "output_text_delta",
        "output_item_done",
        "done",
    ]


async def test_a_batch_window_delays_nothing_that_comes_more_seldom(make_desk: MakeDesk) -> None:
    desk = make_desk(batch_window=0.01)
    desk.create()
    await desk.until("created")
    desk.engine.emit(0, text("first"))
    await desk.until("output_text_delta")
    for piece in ("a", "b", "c"):
        desk.clock.advance(0.011)
        desk.engine.emit(0, text(piece))
        assert (await desk.until("output_text_delta")).output_text_delta.delta == piece


async def test_a_batch_window_that_passes_when_all_was_sent_wakes_nobody(make_desk: MakeDesk) -> None:
    desk = make_desk(batch_window=0.01)
    desk.create()
    await desk.until("created")
    desk.engine.emit(0, text("first"))
    await desk.until("output_text_delta")
    desk.engine.emit(0, text("a"))
    desk.send({"ping": {"nonce": 1}})
    assert [event.WhichOneof("event") for event in await desk.batch() or ()] == ["pong", "output_text_delta"]
    desk.clock.advance(0.011)
    desk.engine.emit(0, text("b"))
    assert (await desk.until("output_text_delta")).output_text_delta.delta == "b"


async def test_a_client_that_asks_for_a_batch_window_gets_what_waited_in_one_piece(desk: Desk) -> None:
    desk.send({"open": {"batch_window": "0.010s"}})
    desk.create()
    await desk.until("created")
    desk.engine.emit(0, text("first"))
    await desk.until("output_text_delta")
    desk.engine.emit(0, text("a"))
    desk.engine.emit(0, text("b"))
    assert await desk.idle()
    desk.clock.advance(0.011)
    assert (await desk.until("output_text_delta")).output_text_delta.delta == "ab"


@pytest.mark.parametrize(
    ("said", "window"), [(None, 0.002), (0.0, 0.0), (0.005, 0.005)], ids=["unsaid", "none", "longer"]
)
async def test_the_door_says_how_long_tokens_wait_where_the_operator_does_not(
    said: float | None, window: float
) -> None:
    services = make_services([StepEngine()], clock=ManualClock(), batch_window=said)
    assert SessionRunner(services, "", "test", batch_window=0.002).session.batch_window == window


async def test_a_client_that_floods_is_read_again_when_its_answers_are_taken(make_desk: MakeDesk) -> None:
    desk = make_desk(max_control_events=10)
    for nonce in range(9):
        desk.send({"ping": {"nonce": nonce}})
    async with asyncio.timeout(5):
        await desk.runner.room()
    desk.send({"ping": {"nonce": 10}})
    waiting = asyncio.create_task(desk.runner.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await desk.batch()
    async with asyncio.timeout(5):
        await waiting


async def test_a_wait_for_the_next_batch_can_be_cancelled_without_loss(desk: Desk) -> None:
    assert await desk.idle()
    desk.create()
    assert (await desk.until("created")).created
    waiting = asyncio.create_task(desk.runner.next_batch())
    await asyncio.sleep(0)
    desk.engine.emit(0, text("x"))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await desk.until("output_text_delta")).output_text_delta.delta == "x"


async def test_what_credit_holds_back_is_sent_before_the_end(desk: Desk) -> None:
    desk.send({"open": {"session_credit_bytes": 16_384, "response_credit_bytes": 0}})
    desk.create()
    await desk.until("created")
    desk.engine.emit(0, text("x" * 20_000))
    await desk.until("output_text_delta")
    desk.engine.emit(0, text("tail"))
    desk.engine.finish(0)
    desk.send({"close": {"drain": True}})
    assert await desk.idle()
    desk.send({"ack": {"last_event_id": len(desk.events)}})
    await desk.until("done")
    assert await desk.batch() is None
    assert desk.runner.close_error is None


async def test_a_client_that_does_not_take_the_end_is_cut_off(make_desk: MakeDesk) -> None:
    desk = make_desk(stall_timeout=50.0)
    desk.send({"open": {"session_credit_bytes": 16_384, "response_credit_bytes": 0}})
    desk.create()
    await desk.until("created")
    desk.engine.emit(0, text("x" * 20_000))
    await desk.until("output_text_delta")
    desk.engine.emit(0, text("tail"))
    desk.send({"close": {}})
    assert await desk.idle()
    desk.clock.advance(51.0)
    while await desk.batch() is not None:
        pass
    assert desk.runner.close_error is not None
    assert desk.runner.close_error.code == "slow_consumer"


async def test_breaking_off_sends_nothing_more_and_the_first_reason_counts(desk: Desk) -> None:
    cuts: list[str] = []
    desk.runner.on_cut = lambda: cuts.append("cut")
    desk.create()
    desk.runner.break_off(_error("invalid_request_error"))
    desk.runner.break_off(_error("server_error"))
    assert await desk.batch() is None
    assert desk.runner.close_error is not None
    assert desk.runner.close_error.code == "invalid_request_error"
    assert cuts == ["cut"]


def _error(code: str) -> Any:
    refusal: RequestError = reject(code, "x")
    return refusal.error
