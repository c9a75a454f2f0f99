"""One connection to an MCP server: opened, used by several calls at once, and closed, in a task of its own.

The SDK wants a connection left by the task that entered it. Above: the pool. Below: the transports and the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from mcp import Client, MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    Tool,
)
from pydantic import ValidationError

from turnwire.server.tools.config import McpLimits
from turnwire.server.tools.declared import ServerSpec
from turnwire.server.tools.mcp.http import http_transport
from turnwire.server.tools.mcp.stdio import stdio_transport

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_log: Final = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_MAX_PAGES: Final = 64
_GONE: Final = ("Session terminated", "Session not found")
"""What the SDK and servers say where a server has forgotten its session, with a code that says something else."""


class McpFailure(Exception):
    """A server could not do what was asked; the text is for the model and the client, and holds no secret."""

    def __init__(self, message: str, *, lost: bool = False, unsent: bool = False) -> None:
        """Takes the text.

        Args:
            message: What went wrong.
            lost: Whether the connection is of no use any more.
            unsent: Whether the server certainly did not carry out what was asked, so that it may be asked again.
        """
        super().__init__(message)
        self.lost = lost
        self.unsent = unsent


class Connection:
    """A connection to one server, for one principal."""

    def __init__(self, spec: ServerSpec, limits: McpLimits, on_end: Callable[[Connection], None]) -> None:
        """Starts to connect; who is told when the connection has ended forgets it."""
        self.spec = spec
        self.users = 0
        """Calls and listings at work."""
        self.lost = False
        self._limits = limits
        self._client: Client | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Nobody may wait for it any more when it fails.
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._serve())
        self._task.add_done_callback(lambda task: on_end(self))

    async def _serve(self) -> None:
        try:
            # The time-out stands for the handshake alone; leaving has its own.
            async with asyncio.timeout(self._limits.connect_timeout) as patience:
                async with Client(self._transport(), cache=None, client_info=_us(), raise_exceptions=False) as client:
                    patience.reschedule(None)
                    self._client = client
                    self._ready.set_result(None)
                    await self._closing.wait()
                    patience.reschedule(asyncio.get_running_loop().time() + self._limits.close_timeout)
        except Exception as error:
            if not self._ready.done():
                self._ready.set_exception(self._no_connection(error))
            elif not self._closing.is_set():
                _log.warning("the connection to MCP server %s broke: %s", self.spec.label, _name(error))
        finally:
            self.lost = True
            if not self._ready.done():
                self._ready.cancel()

    def _transport(self) -> AbstractAsyncContextManager[TransportStreams]:
        if self.spec.command:
            return stdio_transport(self.spec, self._limits, self._server_ended)
        return http_transport(self.spec, self._limits)

    def _server_ended(self) -> None:
        # What is at work hears of it by itself; nothing more may be asked.
        self.lost = True

    def _no_connection(self, error: Exception) -> McpFailure:
        if isinstance(error, TimeoutError):
            message = f"The MCP server '{self.spec.label}' did not answer in time."
        else:
            _log.warning("no connection to MCP server %s: %s", self.spec.label, _name(error))
            message = f"The MCP server '{self.spec.label}' could not be reached."
        return McpFailure(message, lost=True)

    async def ready(self) -> None:
        """Waits until the server can be asked. Safe to cancel: the connection goes on for others.

        Raises:
            McpFailure: It cannot.
        """
        # Waited for no longer than it may take: a server that failed is still to be ended then.
        await asyncio.wait((self._ready,), timeout=self._limits.connect_timeout)
        if not self._ready.done():
            raise self._no_connection(TimeoutError())
        if self._ready.cancelled():
            message = f"The connection to the MCP server '{self.spec.label}' was closed."
            raise McpFailure(message, lost=True)
        self._ready.result()

    async def list_tools(self) -> list[Tool]:
        """Lists the server's tools, all pages of them, as far as they may be taken. Safe to cancel.

        Raises:
            McpFailure: It cannot.
        """
        return await self._ask(self._list(), self._limits.list_timeout)

    async def _list(self) -> list[Tool]:
        client = self._connected()
        tools: list[Tool] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            # A server that gives a page twice gives it forever.
            if cursor is None or cursor in seen or len(tools) > self._limits.max_tools:
                break
            seen.add(cursor)
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Calls a tool. Cancelling it tells the server to stop.

        Raises:
            McpFailure: There is no result.
        """
        return await self._ask(self._call(name, arguments), self._limits.call_timeout)

    async def _call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        session = self._connected().session
        # Not by the SDK's own method, which holds results against the server's schema: the model reads the text
        # whatever a schema says, and checking patterns of a stranger's making can take forever.
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        try:
            return await session.send_request(request, CallToolResult)
        except MCPError as error:
            if error.error.code != HEADER_MISMATCH:
                raise
        # The server wants arguments repeated as headers, and those are known from its list.
        await self._list()
        return await session.send_request(request, CallToolResult)

    def _connected(self) -> Client:
        assert self._client is not None, "ready() comes first"
        return self._client

    async def _ask(self, work: Awaitable[_Result], patience: float) -> _Result:
        label = self.spec.label
        try:
            async with asyncio.timeout(patience):
                return await work
        except TimeoutError:
            message = f"The MCP server '{label}' did not answer within {patience:g} seconds."
            raise McpFailure(message) from None
        except MCPError as error:
            raise _failure(label, error) from None
        except ValidationError:
            message = f"The MCP server '{label}' gave an answer that does not follow the protocol."
            raise McpFailure(message) from None
        except Exception as error:
            _log.warning("asking MCP server %s failed: %s", label, _name(error))
            message = f"The connection to the MCP server '{label}' broke."
            raise McpFailure(message, lost=True) from None

    def close(self) -> None:
        """Lets go of the server; calls that are at work fail. Idempotent."""
        if not self._ready.done():
            self._task.cancel()
        self._closing.set()

    async def closed(self) -> None:
        """Waits until the server was let go of, or for as long as that may take. Safe to cancel."""
        _, still = await asyncio.wait((self._task,), timeout=2 * self._limits.close_timeout)
        for task in still:
            task.cancel()


def _us() -> Implementation:
    return Implementation(name="turnwire", version=version("turnwire"))


def _failure(label: str, error: MCPError) -> McpFailure:
    code, text = error.error.code, error.error.message[:2_000]
    if code == CONNECTION_CLOSED:
        return McpFailure(f"The connection to the MCP server '{label}' broke.", lost=True)
    if text.startswith(_GONE):
        # The server said so instead of doing what was asked.
        return McpFailure(f"The MCP server '{label}' ended its session.", lost=True, unsent=True)
    return McpFailure(f"The MCP server '{label}' refused: {text}")


def _name(error: BaseException) -> str:
    """Returns what may be logged of an error: texts of HTTP clients hold URLs, and those may hold keys."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return type(error).__name__
