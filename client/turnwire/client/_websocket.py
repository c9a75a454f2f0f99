"""Carries a session over WebSocket: binary messages of the subprotocol `turnwire.v1`, for where gRPC does not get
through.

Below: aiohttp, needed for such addresses only. Above: `_dial`. A ConnectRequest is one message up, a ConnectResponse
one down. What gRPC says by the status of the stream comes as a last `rejected` without a request id, followed by a
close frame whose reason is the code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from grpc import aio

from turnwire.client._channel import ChannelOptions
from turnwire.client._http_channel import HttpChannel, proxy_of
from turnwire.client._http_stream import unreachable
from turnwire.client.exceptions import AuthenticationError, ProtocolError, RequestRejectedError, RpcFailedError
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.responses_service_pb2 import ConnectResponse

if TYPE_CHECKING:
    import aiohttp

SUBPROTOCOL: Final = "turnwire.v1"

_IN_ORDER: Final = 1000
_MESSAGE: Final = "{} (WebSocket close code {})"
_LOST: Final = 1006

# Close codes of RFC 6455 to what gRPC would have said.
_STATUSES: Final = {
    1002: "INVALID_ARGUMENT",
    1003: "INVALID_ARGUMENT",
    1007: "INVALID_ARGUMENT",
    1008: "PERMISSION_DENIED",
    1009: "RESOURCE_EXHAUSTED",
    1011: "INTERNAL",
}


class WebSocketTransport:
    """Carries a session over a socket of its own."""

    def __init__(self, address: str, metadata: Sequence[tuple[str, str]], options: ChannelOptions) -> None:
        """Starts to connect; nothing is sent yet.

        Raises:
            ValueError: The address cannot be read, or a certificate of the options.
            ImportError: The package that such addresses need is missing.
        """
        self._http: Final = HttpChannel(address, options)
        self._headers: Final = dict(metadata)
        self._options: Final = options
        self._last_words: Error | None = None
        self._connecting: Final = asyncio.create_task(self._connect())

    @property
    def channel(self) -> aio.Channel:
        """What the stubs of the one-shot methods are made over."""
        return self._http.as_channel()

    async def send(self, request: ConnectRequest) -> None:
        """Sends a message; waits while the socket takes no more. Cancelling it may end the stream."""
        socket = await asyncio.shield(self._connecting)
        try:
            await socket.send_bytes(request.SerializeToString())
        except OSError as error:
            raise unreachable(error) from error

    async def receive(self) -> ConnectResponse | None:
        """Returns the next batch; None at the end of the stream. Cancelling it may end the stream."""
        socket = await asyncio.shield(self._connecting)
        message: Any = await socket.receive()
        kind = message.type.name
        if kind == "BINARY":
            try:
                batch = ConnectResponse.FromString(message.data)
            except DecodeError as error:
                msg = "a message is no ConnectResponse"
                raise ProtocolError(msg) from error
            self._note_last_words(batch)
            return batch
        if kind == "TEXT":
            msg = f"text came in the subprotocol {SUBPROTOCOL}, which has binary messages only"
            raise ProtocolError(msg)
        self._check_ending(socket, message)
        return None

    async def finish(self) -> None:
        """Does nothing: a socket has no half to close, and the server ends it after SessionClose. Cancelling it is
        safe."""

    async def close(self) -> None:
        """Ends the socket. Cancelling it leaves the rest to the garbage collector."""
        self._connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            socket = await self._connecting
            # The peer's answer is worth no wait: what had to be said was said.
            async with asyncio.timeout(self._options.close_timeout):
                await socket.close()
        await self._http.close()

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        import aiohttp

        where, options = self._http.where, self._options
        try:
            async with asyncio.timeout(options.connect_timeout):
                socket = await self._http.session().ws_connect(
                    where.url,
                    protocols=(SUBPROTOCOL,),
                    headers=self._headers,
                    # Keeps proxies from cutting a silent socket, and finds peers that are gone.
                    heartbeat=options.keepalive_time,
                    max_msg_size=options.max_message_bytes,
                    timeout=aiohttp.ClientWSTimeout(ws_close=options.close_timeout),  # pyright: ignore[reportCallIssue]
                    proxy=proxy_of(where.url),
                    ssl=self._http.tls,
                    server_hostname=options.server_name,
                )
        except TimeoutError as error:
            raise RpcFailedError("UNAVAILABLE", f"no answer within {options.connect_timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(error) from error
        if socket.protocol != SUBPROTOCOL:
            await socket.close()
            raise RpcFailedError("UNIMPLEMENTED", f"the server did not choose the subprotocol {SUBPROTOCOL}")
        return socket

    def _note_last_words(self, batch: ConnectResponse) -> None:
        self._last_words = None
        if len(batch.events) == 1 and batch.events[0].HasField("rejected"):
            rejected = batch.events[0].rejected
            if not rejected.request_id:
                self._last_words = Error()
                self._last_words.CopyFrom(rejected.error)

    def _check_ending(self, socket: aiohttp.ClientWebSocketResponse, message: Any) -> None:
        """Returns if the stream has ended in order, and raises what it ended by otherwise."""
        error, code = self._last_words, socket.close_code
        reason = message.extra if isinstance(message.extra, str) else ""
        if error is not None and reason == error.code:
            raise AuthenticationError(error.message) if reason == "invalid_api_key" else RequestRejectedError(error)
        if message.type.name == "ERROR" and isinstance(message.data, Exception):
            status = _STATUSES.get(code or _LOST, "UNAVAILABLE")
            raise RpcFailedError(status, str(message.data)) from message.data
        if code != _IN_ORDER:
            status = _STATUSES.get(code or _LOST, "UNAVAILABLE")
            raise RpcFailedError(status, _MESSAGE.format(reason or "the connection was lost", code or _LOST))
