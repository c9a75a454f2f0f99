"""Asks upstreams now and then whether they are well, where that is configured.

Above it: whoever opens engines. Below it: `pool`. An upstream that is out is then brought back by a question instead of
somebody's request, and one that fails is noticed before the next request goes there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, runtime_checkable

from turnwire.server.routing.pool import Member, Pool
from turnwire.server.session.chunks import EngineFailure

_log: Final = logging.getLogger(__name__)

TIMEOUT: Final = 5.0
"""Seconds for an answer."""


@runtime_checkable
class Checkable(Protocol):
    """What an engine may be too: one whose upstream can be asked cheaply how it is."""

    async def check(self) -> EngineFailure | None:
        """Asks the upstream something that costs it nothing; returns what is wrong. Safe to cancel."""
        ...


class Checks:
    """Asks all members of a pool, each at every interval."""

    def __init__(self, pool: Pool[Any], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Begins, on the running event loop, where the pool's policy says so and its members can be asked."""
        self._pool = pool
        self._sleep = sleep
        asked = [member for member in pool.members if isinstance(member.engine, Checkable)]
        interval = pool.policy.check_interval
        self._tasks = [asyncio.create_task(self._ask(member, interval)) for member in asked] if interval else []

    async def aclose(self) -> None:
        """Stops asking. Safe to cancel."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, member: Member[Any], interval: float) -> None:
        while True:
            await self._sleep(interval)
            try:
                async with asyncio.timeout(TIMEOUT):
                    failure = await member.engine.check()
            except TimeoutError:
                failure = EngineFailure("engine_unavailable", f"It did not answer within {TIMEOUT:g} seconds.")
            except Exception:
                _log.exception("the upstream %s cannot be asked how it is", member.address)
                failure = EngineFailure("server_error", "It cannot be asked how it is.")
            self._pool.checked(member, failure)
