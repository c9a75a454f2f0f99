"""What a stream keeps while nothing happens on it, and how what it waits for is cut off."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from turnwire.server.doors.grpc.connect import BytesContext, write_until_over
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.testing import ManualClock, make_services
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import make_error
from turnwire.v1.responses_service_pb2 import ConnectResponse

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.grpc.conftest import Door, Peer


def _tasks_of_the_door() -> list[str]:
    coroutines: list[Any] = [task.get_coro() for task in asyncio.all_tasks()]
    codes = [each.cr_code for each in coroutines if hasattr(each, "cr_code")]
    return [code.co_name for code in codes if "server/doors" in code.co_filename]


def _messages() -> int:
    gc.collect()
    return sum(isinstance(each, (ConnectRequest, ConnectResponse)) for each in gc.get_objects())


async def test_an_idle_stream_has_one_task_beside_those_of_grpc(door: Door, peer: Peer) -> None:
    await peer.send(ping={"nonce": 1})
    await peer.until("pong")
    assert _tasks_of_the_door() == ["_read"]


async def test_an_idle_stream_keeps_neither_the_last_request_nor_the_last_batch(door: Door, peer: Peer) -> None:
    before = _messages()
    await peer.send(ping={"nonce": 1})
    await peer.until("pong")
    assert _messages() == before


class _Aborted:
    """An RPC of which only the status matters."""

    def __init__(self) -> None:
        self.codes: list[grpc.StatusCode] = []

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: object = ()) -> None:
        self.codes.append(code)


@pytest.fixture
def runner() -> Generator[SessionRunner, None, None]:
    runner = SessionRunner(make_services((), clock=ManualClock()), "", "test")
    yield runner
    runner.abandon()


async def _serving(runner: SessionRunner, rpc: _Aborted) -> asyncio.Task[None]:
    """Begins to serve by a write that never ends."""

    async def blocked() -> None:
        await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(write_until_over(runner, cast("BytesContext", rpc), blocked()))
    await asyncio.sleep(0)
    return task


async def test_a_blocked_write_ends_with_its_session_and_the_rpc_with_the_reason(runner: SessionRunner) -> None:
    rpc = _Aborted()
    task = await _serving(runner, rpc)
    runner.break_off(make_error("slow_consumer", "too slow"))
    async with asyncio.timeout(5):
        await task
    assert rpc.codes == [grpc.StatusCode.RESOURCE_EXHAUSTED]


async def test_an_rpc_cancelled_while_its_session_is_cut_off_ends_cancelled(runner: SessionRunner) -> None:
    rpc = _Aborted()
    task = await _serving(runner, rpc)
    runner.break_off(make_error("slow_consumer", "too slow"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not rpc.codes


async def test_what_is_cut_off_as_it_ends_by_itself_ends_with_the_reason(runner: SessionRunner) -> None:
    async def fails_itself() -> None:
        runner.break_off(make_error("server_error", "broken"))

    rpc = _Aborted()
    await write_until_over(runner, cast("BytesContext", rpc), fails_itself())
    # The cut came too late for the write, and must not strike what comes after it.
    await asyncio.sleep(0)
    assert rpc.codes == [grpc.StatusCode.INTERNAL]
