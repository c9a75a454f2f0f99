"""A recording proxy between a client and a server: HTTP with SSE, and WebSocket; and it causes faults.

Above it: the tests of Codex. Below it: aiohttp on both sides. It changes nothing but the turns it was told to harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError, web

from .faults import Body, Fault

_HOP_BY_HOP: Final = frozenset(("host", "connection", "upgrade", "content-length", "transfer-encoding"))
_TERMINAL: Final = frozenset(("response.completed", "response.failed", "response.incomplete", "error"))


@dataclass(slots=True)
class Turn:
    """A create as the client sent it, and what came back."""

    body: Body
    size: int
    """Bytes of its JSON."""
    connection: int
    """Which WebSocket connection, counted from 1; 0 for HTTP."""
    events: list[Body] = field(default_factory=list[Body])
    cut_after: int | None = None
    """After how many events its connection is dropped."""

    @property
    def warms_up(self) -> bool:
        """Whether it asks for no output."""
        return self.body.get("generate") is False

    @property
    def is_cut(self) -> bool:
        """Whether its connection is to be dropped now."""
        return self.cut_after is not None and len(self.events) >= self.cut_after

    @property
    def outcome(self) -> str:
        """The type of the event that ended it; empty while there is none."""
        return next((event["type"] for event in self.events if event["type"] in _TERMINAL), "")


class Proxy:
    """Passes requests on to a server, and remembers them."""

    def __init__(self, base_url: str, faults: Mapping[int, Fault] | None = None, upgrade_status: int = 0) -> None:
        """Sets what goes wrong.

        Args:
            base_url: Of the server, with `/v1`.
            faults: By which turn they harm: turns with output, counted from 0.
            upgrade_status: Refuses WebSocket upgrades with this status; 0 lets them through.
        """
        self.base_url = ""
        """What the client is to take as `base_url`."""
        self.requests: list[str] = []
        """Method, path and whether it was an upgrade, of every request."""
        self.turns: list[Turn] = []
        self.connections = 0
        """WebSocket connections that were let through."""
        self._upstream = base_url.removesuffix("/v1")
        self._faults = dict(faults or {})
        self._upgrade_status = upgrade_status
        self._with_output = 0
        self._client: ClientSession | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None, None]:
        """Listens at a free port until the block ends."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        async with ClientSession() as self._client:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            try:
                yield
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        upgrade = request.headers.get("Upgrade", "").lower() == "websocket"
        self.requests.append(f"{request.method} {request.path}{' upgrade' if upgrade else ''}")
        if not upgrade:
            return await self._forward(request)
        if self._upgrade_status:
            return web.Response(status=self._upgrade_status)
        return await self._tunnel(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        turn = None
        if request.method == "POST" and request.path == "/v1/responses":
            turn, fault = self._turn(json.loads(data), len(data), 0)
            if fault is not None and fault.status is not None:
                return web.Response(status=fault.status, body=fault.body, headers=dict(fault.headers))
            if fault is not None and fault.change is not None:
                data = json.dumps(_changed(turn.body, fault.change)).encode()
        assert self._client is not None
        url = f"{self._upstream}{request.path_qs}"
        headers = _end_to_end(request.headers)
        async with self._client.request(request.method, url, data=data, headers=headers) as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await response.prepare(request)
            # Clients may leave as soon as they have read the last event.
            with contextlib.suppress(ConnectionError):
                async for line in answer.content:
                    if turn is not None and line.startswith(b"data: {"):
                        turn.events.append(json.loads(line[6:]))
                    await response.write(line)
                    if turn is not None and turn.is_cut and line == b"\n":
                        _drop(request)
                        break
                await response.write_eof()
            return response

    async def _tunnel(self, request: web.Request) -> web.StreamResponse:
        assert self._client is not None
        kept = {name: value for name, value in _end_to_end(request.headers).items() if "websocket" not in name.lower()}
        url = f"{self._upstream}{request.path_qs}"
        try:
            server = await self._client.ws_connect(url, headers=kept, max_msg_size=0)
        except WSServerHandshakeError as refusal:
            return web.Response(status=refusal.status)
        async with server:
            client = web.WebSocketResponse(max_msg_size=0)
            await client.prepare(request)
            self.connections += 1
            turns: list[Turn] = []
            down = asyncio.create_task(self._down(request, server, client, turns))
            try:
                await self._up(client, server, turns, self.connections)
            finally:
                await server.close()
                await asyncio.gather(down, return_exceptions=True)
        return client

    async def _up(
        self, client: web.WebSocketResponse, server: ClientWebSocketResponse, turns: list[Turn], connection: int
    ) -> None:
        async for message in client:
            if message.type is not WSMsgType.TEXT:
                continue
            body = json.loads(message.data)
            if body.get("type") != "response.create":
                await server.send_str(message.data)
                continue
            turn, fault = self._turn(body, len(message.data.encode()), connection)
            turns.append(turn)
            if fault is None or fault.cut_after is not None:
                await server.send_str(message.data)
                continue
            if fault.change is not None:
                await server.send_str(json.dumps(_changed(body, fault.change)))
            if fault.frame is not None:
                turn.events.append(json.loads(fault.frame))
                await client.send_str(fault.frame.decode())
            if fault.close is not None:
                await client.close(code=fault.close, message=b"told to close")
                return

    async def _down(
        self, request: web.Request, server: ClientWebSocketResponse, client: web.WebSocketResponse, turns: list[Turn]
    ) -> None:
        async for message in server:
            if message.type is not WSMsgType.TEXT:
                continue
            event = json.loads(message.data)
            # Clients that are tested through this use one lane, so turns are answered in their order.
            turn = next((turn for turn in turns if not turn.outcome), None)
            if turn is not None:
                turn.events.append(event)
            await client.send_str(message.data)
            if turn is not None and turn.is_cut:
                _drop(request)
                return
        await client.close(code=server.close_code or 1000)

    def _turn(self, body: Body, size: int, connection: int) -> tuple[Turn, Fault | None]:
        turn = Turn(body, size, connection)
        self.turns.append(turn)
        if turn.warms_up:
            return turn, None
        fault = self._faults.get(self._with_output)
        self._with_output += 1
        if fault is not None:
            turn.cut_after = fault.cut_after
        return turn, fault


def _changed(body: Body, change: Callable[[Body], None]) -> Body:
    changed = dict(body)
    change(changed)
    return changed


def _drop(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


def _end_to_end(headers: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
