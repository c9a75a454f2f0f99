"""WebSocket with the subprotocol `turnwire.v1`: the very messages of gRPC in binary frames; one socket for all.

Above it: the registry. Below it: `compact` and aiohttp.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from turnwire.bench.drivers.compact import CompactConversation, Serialized, Session
from turnwire.bench.drivers.port import Failed, Target
from turnwire.bench.drivers.sockets import Sockets
from turnwire.bench.scenario.compiling import Rollout


class NativeSocket:
    """Plays conversations on one socket."""

    def __init__(self, target: Target, rollout: Rollout, *, hold: bool) -> None:
        """Takes where the server is, the rollout and the shape."""
        self._url = f"{target.http}/v1/responses"
        self._hold = hold
        self._tls = target.tls()
        self._sockets = Sockets()
        self._http: aiohttp.ClientSession | None = None
        self._socket: Any = None
        self._session = Session(rollout, Serialized(self._write, self._read))

    async def open(self, conversations: int) -> None:
        """Opens the socket and the session; see `Driver`."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, socket_factory=self._sockets.make)
        )
        self._socket = await self._http.ws_connect(self._url, protocols=("turnwire.v1",), max_msg_size=0)
        await self._session.open()

    async def _write(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    async def _read(self) -> bytes:
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise Failed(f"the socket ended: {message.data} {message.extra}")
        return bytes(message.data)

    def conversation(self, name: str) -> CompactConversation:
        """Begins a conversation; see `Driver`."""
        return self._session.conversation(name, hold=self._hold)

    async def close(self) -> None:
        """Disconnects; see `Driver`."""
        await self._session.close()
        if self._socket is not None:
            await self._socket.close()
        if self._http is not None:
            await self._http.close()
        await self._sockets.gone()
