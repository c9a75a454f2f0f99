"""The public API's WebSocket mode: creates, or, as our extension of it, appends into held responses.

Above it: the registry. Below it: `official` and aiohttp. Conversations share sockets, up to the official limit of 16
unless more are asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from turnwire.bench.drivers import official
from turnwire.bench.drivers.port import Conversation, Failed, New, Target, Turn
from turnwire.bench.scenario.compiling import Rollout

SHARED: Final = 16
"""Responses at work on one socket, by the public API's limit."""
ALL: Final = 4096
"""In place of it, for one socket that carries all: the public API refuses that, our server can be told not to."""

_GOODBYE: Final = 2.0
"""Seconds that closing a connection may take."""
_LOOK: Final = 0.005
"""Seconds after which it is looked at again."""


class WebSocket:
    """Plays conversations on sockets, each in a lane of its own."""

    def __init__(
        self, target: Target, rollout: Rollout, *, hold: bool = False, shared: int = SHARED, bridged: bool = False
    ) -> None:
        """Takes where the server is, the rollout, the shape, how many conversations share a socket, and whether to go
        through the bridge."""
        self._url = f"{target.bridge if bridged else target.http}/v1/responses"
        self._tls = target.tls()
        self._rollout = rollout
        self._hold = hold
        self._shared = shared
        self._http: aiohttp.ClientSession | None = None
        self._sockets: list[_Socket] = []
        self._lanes: dict[str, _Socket] = {}

    async def open(self, conversations: int) -> None:
        """Opens as many sockets as are needed; see `Driver`."""
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=self._tls))
        for _ in range(-(-conversations // self._shared)):
            socket: Any = await self._http.ws_connect(self._url, compress=0, decode_text=False, max_msg_size=0)
            self._sockets.append(_Socket(socket))

    def conversation(self, name: str) -> Conversation:
        """Begins a conversation, on the sockets by turns; see `Driver`.

        A lane stays on its socket, since a socket may name only 32 of them in its life.
        """
        socket = self._lanes.setdefault(name, self._sockets[len(self._lanes) % len(self._sockets)])
        return _Conversation(socket, name, self._rollout, hold=self._hold)

    async def close(self) -> None:
        """Disconnects; see `Driver`."""
        await asyncio.gather(*(socket.close() for socket in self._sockets))
        if self._http is not None:
            await self._http.close()


class _Socket:
    """One socket and the turns that are played on it."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._turns: dict[str, tuple[Turn, asyncio.Future[official.Event]]] = {}
        self.created: dict[str, str] = {}
        """The latest response of each lane: a pause does not repeat its id."""
        self._reading = asyncio.create_task(self._receive())

    async def play(self, lane: str, turn: Turn, body: dict[str, Any]) -> official.Event:
        """Sends a message in a lane; returns the event that ends its turn."""
        ended: asyncio.Future[official.Event] = asyncio.get_running_loop().create_future()
        self._turns[lane] = turn, ended
        try:
            await self._socket.send_frame(official.encode(body), aiohttp.WSMsgType.TEXT)
            return await ended
        finally:
            self._turns.pop(lane, None)

    async def _receive(self) -> None:
        try:
            while True:
                message = await self._socket.receive()
                now = time.perf_counter()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    raise Failed(f"the socket ended: {message.data} {message.extra}")
                self._take(official.decode(message.data), now)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Whatever it was, those who wait have to hear of it: each in an exception of its own, since all are raised.
            self._fail(f"{type(error).__name__}: {error}")

    def _take(self, event: official.Event, now: float) -> None:
        if not event.stream_id and event.type == "error":
            self._fail(bytes(event.error).decode())
        elif event.stream_id in self._turns:
            turn, ended = self._turns[event.stream_id]
            if event.type == "response.created" and event.response is not None:
                self.created[event.stream_id] = event.response.id
            try:
                if official.take(turn, event, now):
                    ended.set_result(event)
            except Failed as error:
                ended.set_exception(error)

    def _fail(self, words: str) -> None:
        for _, ended in self._turns.values():
            if not ended.done():
                ended.set_exception(Failed(words))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        connection = self._socket.get_extra_info("socket")
        await self._socket.close()
        # With TLS the connection says good-bye, too, after the socket counts as closed; nothing tells when it has.
        end = time.monotonic() + _GOODBYE
        while connection is not None and connection.fileno() >= 0 and time.monotonic() < end:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_LOOK)


class _Conversation:
    def __init__(self, socket: _Socket, lane: str, rollout: Rollout, *, hold: bool, previous: str = "") -> None:
        self._socket = socket
        self._lane = lane
        self._rollout = rollout
        self._hold = hold
        self._previous = previous
        self._held = False
        self._settings = official.settings(rollout) | {"type": "response.create", "stream_id": lane, "store": False}
        if hold:
            self._settings["hold"] = True

    async def turn(self, new: Sequence[New]) -> Turn:
        turn = Turn()
        turn.send()
        event = await self._socket.play(self._lane, turn, self._body(official.items(new)))
        self._held = official.paused(event)
        self._previous = self._socket.created[self._lane]
        return turn

    def _body(self, items: list[Any]) -> dict[str, Any]:
        if self._held:
            return {"type": "response.append", "stream_id": self._lane, "response_id": self._previous, "input": items}
        if self._previous:
            return self._settings | {"input": items, "previous_response_id": self._previous}
        return self._settings | {"input": official.history(self._rollout) + items}

    def fork(self, name: str) -> Conversation:
        return _Conversation(self._socket, name, self._rollout, hold=self._hold, previous=self._previous)
