"""Connections to MCP servers, kept while they are used and for a while after: one per principal and server.

Above: the room of hosted tools. Below: connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from turnwire.server.tools.config import McpLimits
from turnwire.server.tools.declared import ServerSpec
from turnwire.server.tools.mcp.connection import Connection, McpFailure

_Key = tuple[str, bytes]
_Result = TypeVar("_Result")

_CHATTY: Final = {"mcp": logging.CRITICAL, "client": logging.CRITICAL, "httpx2": logging.WARNING}
"""Loggers of the SDK that write URLs, session ids and what servers say, and the least that they may write."""


class Pool:
    """All connections."""

    def __init__(self, limits: McpLimits) -> None:
        """Takes what servers may use."""
        self._limits = limits
        self._open: dict[_Key, Connection] = {}
        self._ending: set[Connection] = set()
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        for name, level in _CHATTY.items():
            logging.getLogger(name).setLevel(level)

    def __len__(self) -> int:
        return len(self._open)

    async def use(self, principal: str, spec: ServerSpec, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Does something over the connection of a principal to a server; opens it where there is none.

        Cancelling it stops the work and keeps the connection.

        Raises:
            McpFailure: There is no connection, or the work failed.
        """
        key = (principal, spec.fingerprint())
        known = key in self._open
        connection = self._take(key, spec)
        try:
            return await self._with(connection, work)
        except McpFailure as failure:
            if failure.lost:
                self._forget(key, connection)
            if not (known and failure.unsent):
                raise
        # A server that was restarted has forgotten the session, which is no reason to fail.
        connection = self._take(key, spec)
        try:
            return await self._with(connection, work)
        except McpFailure as failure:
            if failure.lost:
                self._forget(key, connection)
            raise

    async def _with(self, connection: Connection, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        timer = self._idle.pop(connection, None)
        if timer is not None:
            timer.cancel()
        connection.users += 1
        try:
            await connection.ready()
            return await work(connection)
        finally:
            connection.users -= 1
            if connection.users == 0 and not connection.lost:
                loop = asyncio.get_running_loop()
                self._idle[connection] = loop.call_later(self._limits.idle_timeout, self._expire, connection)

    def _take(self, key: _Key, spec: ServerSpec) -> Connection:
        connection = self._open.get(key)
        if connection is not None and not connection.lost:
            return connection
        own = [other for (principal, _), other in self._open.items() if principal == key[0]]
        self._make_room(own, self._limits.max_connections_per_principal)
        self._make_room(list(self._open.values()), self._limits.max_connections)
        connection = self._open[key] = Connection(spec, self._limits, self._ended)
        return connection

    def _make_room(self, connections: list[Connection], limit: int) -> None:
        if len(connections) < limit:
            return
        # Timers were set in the order in which connections fell idle.
        resting = next((each for each in self._idle if each in connections), None)
        if resting is None:
            msg = f"Too many connections to MCP servers are in use ({limit}). Try again later."
            raise McpFailure(msg)
        self._expire(resting)

    def _expire(self, connection: Connection) -> None:
        for key, other in list(self._open.items()):
            if other is connection:
                self._forget(key, connection)

    def _forget(self, key: _Key, connection: Connection) -> None:
        if self._open.get(key) is connection:
            del self._open[key]
        timer = self._idle.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._ending.add(connection)
        connection.close()

    def _ended(self, connection: Connection) -> None:
        self._expire(connection)
        self._ending.discard(connection)

    async def aclose(self) -> None:
        """Closes all connections. Safe to cancel; those that are left end by themselves."""
        for key, connection in list(self._open.items()):
            self._forget(key, connection)
        await asyncio.gather(*(connection.closed() for connection in list(self._ending)))
