"""A server and a bridge to it, for tests that need no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.bridge.scene import BOUND, Server, Stage, bridging, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    before = asyncio.all_tasks()
    async with serving(http=True) as server:
        yield server
    await _nothing_left(before)


@pytest.fixture
async def stage(server: Server) -> AsyncIterator[Stage]:
    async with bridging(server) as stage:
        yield stage


async def _nothing_left(before: set[asyncio.Task[object]]) -> None:
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=BOUND)
    assert not left
